"""Data sets of Minari, written here in the layout that its version 0.5 writes."""

import json

import h5py
import numpy as np
import pytest

from phyb.data import load_log
from phyb.data.files import log_header
from phyb.data.formats import LogHeader
from phyb.errors import DataError

RANDOM = np.random.default_rng(0)


def write(root, lengths=(4, 3, 2), terminated=(True, False, False), truncated=(False, True, False), **metadata):
    """A data set of a pendulum; the last episode was just stopped."""
    folder = root / "pendulum" / "test-v0" / "data"
    folder.mkdir(parents=True)
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        for number in reversed(range(len(lengths))):  # files list names, not numbers, in order
            steps, group = lengths[number], file.create_group(f"episode_{number}")
            group.create_group("infos")
            group["observations"] = np.arange(3 * (steps + 1), dtype=np.float64).reshape(-1, 3) + 100 * number
            group["actions"] = RANDOM.uniform(-2, 2, (steps, 1)).astype(np.float32)
            group["rewards"] = np.full(steps, float(number))
            for name, flags in (("terminations", terminated), ("truncations", truncated)):
                group[name] = np.arange(steps) == (steps - 1 if flags[number] else -1)
    about = {
        "dataset_id": "pendulum/test-v0",
        "algorithm_name": "random",
        "action_space": json.dumps({"type": "Box", "dtype": "float32", "shape": [1], "low": [-2.0], "high": [2.0]}),
        "env_spec": json.dumps({"id": "Pendulum-v1"}),
    }
    (folder / "metadata.json").write_text(json.dumps(about | metadata))
    return folder / "main_data.hdf5"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("by_name", [True, False])
def test_episodes_become_rows_with_true_successors(cache, by_name):
    path = write(cache)
    log = load_log("minari:pendulum/test-v0" if by_name else path)
    assert (len(log), log.env_id) == (9, "Pendulum-v1")
    np.testing.assert_array_equal(log.episode_lengths(), [4, 3, 2])
    np.testing.assert_array_equal(log.rewards, [0, 0, 0, 0, 1, 1, 1, 2, 2])
    np.testing.assert_array_equal(log.next_observations[3], [12, 13, 14])
    np.testing.assert_array_equal(log.observations[4], [100, 101, 102])
    np.testing.assert_array_equal(np.flatnonzero(log.terminated), [3])
    np.testing.assert_array_equal(np.flatnonzero(log.truncated), [6, 8], "the last was cut where recording stopped")
    np.testing.assert_array_equal((log.action_low, log.action_high), ([-2], [2]))
    assert log.provenance["minari"]["algorithm_name"] == "random"


def test_the_header_of_a_data_set_gives_its_id_and_environment(cache):
    write(cache)
    assert log_header("minari:pendulum/test-v0") == LogHeader(9, 3, 1, "Pendulum-v1", "pendulum/test-v0")


def test_episodes_of_different_width_are_refused(cache):
    path = write(cache)
    with h5py.File(path, "a") as file:
        del file["episode_1/observations"]
        file["episode_1/observations"] = np.zeros((4, 2))
    with pytest.raises(DataError, match="observations: has another width"):
        load_log(path)


def test_more_than_ten_episodes_come_in_the_order_of_their_numbers(cache):
    write(cache, [1] * 12, [True] * 12, [False] * 12)
    np.testing.assert_array_equal(load_log("minari:pendulum/test-v0").rewards, range(12))


def test_an_absent_data_set_says_how_to_get_it(cache):
    with pytest.raises(DataError, match=r"not in the local cache.*minari download mujoco/hopper/medium-v0"):
        load_log("minari:mujoco/hopper/medium-v0")


@pytest.mark.parametrize("name", ["", "../../etc", "/etc", "a\0b"])
def test_names_that_lead_elsewhere_are_refused(cache, name):
    with pytest.raises(DataError, match="not the name of a data set"):
        load_log(f"minari:{name}")


def test_parts_of_different_length_are_refused(cache):
    path = write(cache)
    with h5py.File(path, "a") as file:
        del file["episode_1/rewards"]
        file["episode_1/rewards"] = np.zeros(2)
    with pytest.raises(DataError, match=r"episode_1.*different length"):
        load_log(path)


@pytest.mark.parametrize("harm", ["missing", "group", "link"])
def test_episodes_that_are_none_are_refused(cache, harm):
    path = write(cache)
    with h5py.File(path, "a") as file:
        del file["episode_2/observations"]
        if harm == "group":
            file.create_group("episode_2/observations")
        if harm == "link":
            file["episode_2/observations"] = h5py.ExternalLink("elsewhere.hdf5", "observations")
    with pytest.raises(DataError, match=r"episode_2/observations"):
        load_log(path)


@pytest.mark.parametrize(
    "metadata",
    [{"action_space": "{"}, {"action_space": 3}, {"env_spec": None}, {"action_space": '{"type": "Discrete"}'}],
)
def test_metadata_that_says_nothing_useful_is_passed_over(cache, metadata):
    path = write(cache, **metadata)
    bounds = (np.array([-2.0]), np.array([2.0]))
    assert len(load_log(path, action_bounds=bounds)) == 9


def test_metadata_with_bounds_that_are_none_is_refused(cache):
    space = json.dumps({"type": "Box", "low": ["a"], "high": [2.0]})
    with pytest.raises(DataError, match="bounds"):
        load_log(write(cache, action_space=space))
