"""A small table of a treatment, as a practitioner may have it, and what its columns are."""

import numpy as np

ROLES = {
    "observations": ["obs_pulse", "obs_pressure"],
    "actions": ["a_dose"],
    "reward": "reward",
    "episode": "id",
    "terminated": "terminated",
}


def table(episodes=3, length=4, seed=0):
    """Columns of episodes of equal length, of which the first terminates."""
    rng, rows = np.random.default_rng(seed), episodes * length
    return {
        "id": np.repeat([f"patient {number}" for number in range(episodes)], length),
        "time": np.tile(np.arange(length), episodes),
        "obs_pulse": rng.normal(70, 10, rows),
        "obs_pressure": rng.normal(120, 15, rows),
        "a_dose": rng.uniform(0, 2, rows),
        "reward": rng.normal(size=rows),
        "terminated": np.arange(rows) == length - 1,
    }


def arrays(columns):
    """The same table as the arguments of `Log.from_arrays`."""
    return {
        "observations": np.stack([columns["obs_pulse"], columns["obs_pressure"]], axis=1),
        "actions": columns["a_dose"][:, None],
        "rewards": columns["reward"],
        "episode": columns["id"],
        "terminated": columns["terminated"],
    }
