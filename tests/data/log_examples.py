"""Small logs for the tests of `phyb.data`: a valid one to damage, and a strategy for arbitrary valid ones."""

import dataclasses

import h5py
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from phyb.data import Log

FILE_NAMES = {"terminated": "terminals", "truncated": "timeouts"}


def example_log(rows=40, observation_size=3, action_size=2, episode=10, seed=0):
    """Episodes of equal length; every second one terminates, the others time out. Successors are true."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(rows, observation_size)).astype(np.float32)
    successors = np.roll(states, -1, axis=0)
    last = np.arange(rows) % episode == episode - 1
    last[-1] = True
    successors[last] = rng.normal(size=(last.sum(), observation_size))
    number = np.arange(rows) // episode
    return Log(
        observations=states,
        actions=rng.uniform(-1, 1, (rows, action_size)).astype(np.float32),
        rewards=rng.normal(size=rows).astype(np.float32),
        next_observations=successors,
        terminated=last & (number % 2 == 0),
        truncated=last & (number % 2 == 1),
        action_low=np.full(action_size, -1, np.float32),
        action_high=np.full(action_size, 1, np.float32),
        env_id="Example-v0",
        provenance={"behaviour": "random", "seed": seed},
    )


def with_value(log, field, row, value):
    """A copy of the log with one row of one field overwritten."""
    array = getattr(log, field).copy()
    array[row] = value
    return dataclasses.replace(log, **{field: array})


def file_arrays(log):
    """The arrays of a log under their names in a file."""
    fields = ("observations", "actions", "rewards", "next_observations", "terminated", "truncated")
    return {FILE_NAMES.get(field, field): getattr(log, field) for field in fields}


def write_hdf5(path, arrays, **attributes):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
        file.attrs.update(attributes)
    return path


def write_npz(path, arrays, **metadata):
    np.savez(path, **arrays, **metadata)
    return path


@st.composite
def logs(draw):
    """Any valid log: any finite numbers, any pattern of termination, any bounds."""
    rows, observation_size, action_size = (draw(st.integers(1, high)) for high in (12, 3, 3))
    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
    flags = hnp.arrays(bool, rows)
    observations = draw(hnp.arrays(np.float32, (rows, observation_size), elements=numbers))
    terminated, truncated = draw(flags), draw(flags)
    successors = draw(hnp.arrays(np.float32, (rows, observation_size), elements=numbers))
    inside = np.flatnonzero(~(terminated | truncated)[:-1])
    successors[inside] = observations[inside + 1]
    low = draw(st.floats(-1e6, 1e6, width=32))
    high = float(np.float32(low + draw(st.floats(1, 1e6))))
    within = st.floats(low, high, width=32)
    return Log(
        observations=observations,
        actions=draw(hnp.arrays(np.float32, (rows, action_size), elements=within)),
        rewards=draw(hnp.arrays(np.float32, rows, elements=numbers)),
        next_observations=successors,
        terminated=terminated,
        truncated=truncated,
        action_low=np.full(action_size, low, np.float32),
        action_high=np.full(action_size, high, np.float32),
        env_id=draw(st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)),
        provenance=draw(st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.none(), max_size=3)),
    )
