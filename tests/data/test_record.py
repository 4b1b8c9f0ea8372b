"""Recording an environment: what is kept is what happened."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import phyb
from phyb.data.log import FIELDS
from phyb.errors import DataError, UsageError


class Walk(gymnasium.Env):
    """Position and step; ends at 2, or is cut after four steps. The same array is written again and again."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(np.array([-0.5]), np.array([1.0]), dtype=np.float64)

    def __init__(self):
        self.state, self.taken = np.zeros(2), []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state[:] = self.np_random.uniform(0, 0.1), 0
        return self.state, {}

    def step(self, action):
        self.taken.append(action.copy())
        self.state += action[0], 1
        return self.state, float(action[0]), self.state[0] >= 2, self.state[1] >= 4, {}


def test_terminated_and_truncated_are_kept_apart():
    env = Walk()
    speed = iter([1, 1, 0, 0, 0, 0, 5, -3, 1])
    log = phyb.record(env, lambda seen: [next(speed)], 9, seed=3)
    assert log.terminated.tolist() == [False, True] + [False] * 7
    assert log.truncated.tolist() == [False] * 5 + [True, False, False, True]
    assert log.actions[:, 0].tolist() == [1, 1, 0, 0, 0, 0, 1, -0.5, 1]  # as taken: clipped
    assert np.array_equal(np.array(env.taken, np.float32), log.actions)
    inside = ~log.episode_ends[:-1]
    assert np.array_equal(log.next_observations[:-1][inside], log.observations[1:][inside])
    assert log.next_observations[1, 0] >= 2
    assert (log.env_id, log.action_low.tolist(), log.action_high.tolist()) == (None, [-0.5], [1])
    assert log.provenance["recorded"]["seed"] == 3


def test_the_seed_decides_and_the_id_is_kept(tmp_path):
    logs = [phyb.record("Pendulum-v1", lambda seen: [seen[0]], 250, seed=seed) for seed in (0, 0, 1)]
    assert logs[0].fingerprint() == logs[1].fingerprint() != logs[2].fingerprint()
    assert logs[0].env_id == "Pendulum-v1"
    assert logs[0].episode_lengths().tolist() == [200, 50]
    phyb.save_log(logs[0], tmp_path / "log.hdf5")
    assert phyb.load_log(tmp_path / "log.hdf5").fingerprint() == logs[0].fingerprint()
    env = gymnasium.make("Pendulum-v1")
    again = phyb.record(env, lambda seen: [seen[0]], 250)
    assert all(np.array_equal(getattr(again, name), getattr(logs[0], name)) for name in FIELDS)
    env.reset()  # still open


def test_a_policy_object_acts():
    class Still:
        def act(self, observations):
            return np.zeros((*np.shape(observations)[:-1], 1))

    assert not phyb.record("Pendulum-v1", Still(), 3).actions.any()


class Choice(Walk):
    action_space = Discrete(2)


class Picture(Walk):
    observation_space = Box(0, 255, (8, 8, 3), np.uint8)


class Boundless(Walk):
    action_space = Box(-np.inf, np.inf, (1,))


@pytest.mark.parametrize(
    ("words", "env", "policy", "rows"),
    [
        (r"Choice has actions in Discrete\(2\); they must be continuous", Choice(), lambda seen: 0, 5),
        (r"Picture has observations in Box.*must be vectors", Picture(), lambda seen: [0], 5),
        ("SyncVectorEnv is a vector environment", "vector", lambda seen: [0], 5),
        ("cannot make environment 'Nothing-v0'", "Nothing-v0", lambda seen: [0], 5),
        ("the policy is a int", Walk(), 3, 5),
        (r"the policy gave \[0, 0\] at step 0, no action of .*must give 1 finite", Walk(), lambda seen: [0, 0], 5),
        (r"the policy gave \[nan\] at step 0", Walk(), lambda seen: [np.nan], 5),
        (r"the policy gave buy at step 0", Walk(), lambda seen: "buy", 5),
        ("at least 1 row, asked for 0", Walk(), lambda seen: [0], 0),
    ],
)
def test_what_cannot_be_recorded_is_refused(words, env, policy, rows):
    env = gymnasium.vector.SyncVectorEnv([Walk]) if env == "vector" else env
    with pytest.raises(UsageError, match=words):
        phyb.record(env, policy, rows)  # pyright: ignore[reportArgumentType]


def test_actions_without_bounds_are_refused():
    with pytest.raises(DataError, match="Give finite bounds"):
        phyb.record(Boundless(), lambda seen: [0], 5)
