from contextlib import closing

import counting
import numpy as np
import pytest

from phyb.collection.copies import Copies, RandomStreams, record
from phyb.collection.logs import to_log
from phyb.data import validate

counting.register()


def recorded(rows):
    with closing(Copies(counting.ENV_ID, 2)) as copies:
        return record(copies, rows, RandomStreams(0), lambda rows, step: np.full((2, 2), -0.5), lambda rows: None)


@pytest.fixture(scope="module")
def task():
    with closing(Copies(counting.ENV_ID, 2)) as copies:
        return copies.task


def test_a_log_has_copy_after_copy_and_cuts_what_was_going_on(task):
    log = to_log(task, [recorded(16)], {"kind": "test"})
    validate(log, "test")  # raises if rows of an episode do not follow each other
    np.testing.assert_array_equal(log.observations[:, 1], [0, 1, 2, 0, 1, 2, 0, 1] * 2)
    np.testing.assert_array_equal(np.flatnonzero(log.terminated), [2, 10])
    np.testing.assert_array_equal(np.flatnonzero(log.truncated), [5, 7, 13, 15])
    np.testing.assert_allclose(log.actions[0], [-0.5, 1.0])
    assert log.provenance["kind"] == "test"
    assert (log.provenance["episodes"], log.provenance["cut_episodes"]) == (4, 2)
    assert log.provenance["returns"] == {"mean": 6.0, "std": 0.0, "min": 6.0, "max": 6.0}


def test_an_episode_that_ends_with_its_recording_is_not_cut(task):
    log = to_log(task, [recorded(6), recorded(8)], {})
    np.testing.assert_array_equal(np.flatnonzero(log.terminated), [2, 5, 8, 12])
    np.testing.assert_array_equal(np.flatnonzero(log.truncated), [9, 13])
    assert (log.provenance["episodes"], log.provenance["cut_episodes"]) == (4, 2)


def test_without_a_whole_episode_there_are_no_returns(task):
    log = to_log(task, [recorded(4)], {})
    assert log.provenance["returns"] is None
    assert log.provenance["episodes"] == 0
    assert {"phyb", "gymnasium", "jax"} <= log.provenance["versions"].keys()
