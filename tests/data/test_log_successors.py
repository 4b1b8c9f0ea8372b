import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from log_examples import example_log, file_arrays, write_hdf5, write_npz

from phyb.data import load_log, validate
from phyb.data._assemble import rebuild_successors
from phyb.errors import DataError


def without_successors(log):
    arrays = file_arrays(log)
    del arrays["next_observations"]
    return arrays


@pytest.mark.parametrize("write", [write_hdf5, write_npz])
def test_successors_are_rebuilt_inside_episodes_only(tmp_path, write):
    original = example_log(rows=35, episode=10)
    path = write(tmp_path / ("log.npz" if write is write_npz else "log.hdf5"), without_successors(original))
    log = load_log(path)
    kept = np.flatnonzero(~original.episode_ends)
    np.testing.assert_array_equal(log.observations, original.observations[kept])
    np.testing.assert_array_equal(log.next_observations, original.next_observations[kept])
    np.testing.assert_array_equal(log.rewards, original.rewards[kept])
    assert not log.terminated.any()
    np.testing.assert_array_equal(np.flatnonzero(log.episode_ends), [8, 17, 26, 30])
    assert log.provenance["dropped_rows"] == {"terminated": 2, "truncated": 2, "unfinished": 0}


def test_dropped_rows_are_reported_by_the_validator(tmp_path):
    log = load_log(write_hdf5(tmp_path / "log.hdf5", without_successors(example_log())))
    [finding] = [finding for finding in validate(log, "log") if finding.field == "next_observations"]
    assert "2 terminated, 2 truncated" in finding.message
    assert "termination cannot be learned" in finding.advice


def test_a_terminal_row_never_gets_the_first_state_of_the_next_episode():
    arrays = {
        "observations": np.array([[1], [2], [3], [100], [101], [200]], np.float32),
        "actions": np.zeros((6, 1), np.float32),
        "rewards": np.arange(6, dtype=np.float32),
        "terminated": np.array([0, 0, 1, 0, 0, 0], bool),
        "truncated": np.array([0, 0, 0, 0, 1, 0], bool),
    }
    rebuilt, dropped = rebuild_successors(arrays, "log")
    assert rebuilt["observations"].ravel().tolist() == [1, 2, 100]
    assert rebuilt["next_observations"].ravel().tolist() == [2, 3, 101]
    assert rebuilt["truncated"].tolist() == [False, True, True]
    assert dropped == {"terminated": 1, "truncated": 1, "unfinished": 1}


@given(data=st.data(), rows=st.integers(2, 30))
def test_rebuilt_rows_stay_in_their_episode_and_none_is_lost_uncounted(data, rows):
    terminated, truncated = (data.draw(hnp.arrays(bool, rows)) for _ in range(2))
    ends = terminated | truncated
    ends[-1] = True
    episode = np.concatenate([[0], np.cumsum(ends[:-1])])
    arrays = {
        "observations": np.stack([np.arange(rows), episode], axis=1).astype(np.float32),
        "actions": np.zeros((rows, 1), np.float32),
        "rewards": np.zeros(rows, np.float32),
        "terminated": terminated,
        "truncated": truncated,
    }
    if ends.all():
        with pytest.raises(DataError, match=r"every episode is one row long"):
            rebuild_successors(arrays, "log")
        return
    rebuilt, dropped = rebuild_successors(arrays, "log")
    step = rebuilt["next_observations"] - rebuilt["observations"]
    assert (step == [1, 0]).all()
    assert len(rebuilt["rewards"]) + sum(dropped.values()) == rows
    changes = np.flatnonzero(np.diff(rebuilt["observations"][:, 1]))
    assert rebuilt["truncated"][changes].all()


def test_without_successors_and_timeouts_the_file_is_refused(tmp_path):
    arrays = without_successors(example_log())
    del arrays["timeouts"]
    with pytest.raises(DataError, match=r"log\.hdf5: timeouts: is missing, and so is next_observations.*add timeouts"):
        load_log(write_hdf5(tmp_path / "log.hdf5", arrays))


def test_rows_in_messages_are_those_of_the_file_before_any_is_dropped(tmp_path):
    arrays = without_successors(example_log())
    arrays["rewards"] = arrays["rewards"].copy()
    arrays["rewards"][25] = np.nan
    with pytest.raises(DataError, match=r"rewards, row 25"):
        load_log(write_hdf5(tmp_path / "log.hdf5", arrays))
