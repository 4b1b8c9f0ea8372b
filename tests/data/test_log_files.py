import dataclasses
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from log_examples import example_log, file_arrays, logs, write_hdf5, write_npz

from phyb.data import load_log, save_log
from phyb.data.log import FIELDS
from phyb.errors import DataError, StorageError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
WRITERS = {".hdf5": write_hdf5, ".npz": write_npz}


@pytest.fixture(params=[".hdf5", ".npz"])
def suffix(request):
    return request.param


def assert_same(one, other):
    for field in (*FIELDS, "action_low", "action_high"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field), err_msg=field)
        assert getattr(one, field).dtype == getattr(other, field).dtype
    assert one.env_id == other.env_id
    assert one.provenance == other.provenance
    assert one.fingerprint() == other.fingerprint()


@given(log=logs())
@settings(max_examples=25, deadline=None)
def test_any_valid_log_survives_both_formats(log, tmp_path_factory):
    folder = tmp_path_factory.mktemp("round_trip")
    for name in ("log.hdf5", "log.npz"):
        save_log(log, folder / name)
        assert_same(load_log(folder / name), log)


def test_h5_and_upper_case_suffixes_are_hdf5(tmp_path):
    for name in ("log.h5", "LOG.HDF5"):
        save_log(example_log(), tmp_path / name)
        assert h5py.is_hdf5(tmp_path / name)
        assert_same(load_log(str(tmp_path / name)), example_log())


def test_written_hdf5_has_the_d4rl_layout_in_float32(tmp_path):
    save_log(example_log(), tmp_path / "log.hdf5")
    with h5py.File(tmp_path / "log.hdf5") as file:
        assert set(file) == set(file_arrays(example_log()))
        assert {np.asarray(file[name]).dtype.name for name in file} == {"float32", "bool"}
        assert file.attrs["env_id"] == "Example-v0"
        assert file.attrs["provenance"] == '{"behaviour": "random", "seed": 0}'
        assert file.attrs["phyb_format"] == 1


def test_float64_logs_are_stored_as_float32(tmp_path, suffix):
    log = example_log()
    wide = {name: getattr(log, name).astype(np.float64) for name in ("observations", "rewards", "action_low")}
    save_log(dataclasses.replace(log, **wide), tmp_path / f"log{suffix}")
    assert_same(load_log(tmp_path / f"log{suffix}"), log)


def test_alternative_flag_names_columns_and_number_types_are_read(tmp_path, suffix):
    log = example_log()
    arrays = file_arrays(log)
    arrays["terminated"] = arrays.pop("terminals").astype(np.uint8)
    arrays["truncated"] = arrays.pop("timeouts").astype(np.float64)[:, None]
    arrays["rewards"] = arrays["rewards"][:, None]
    arrays["observations"] = np.asfortranarray(arrays["observations"].astype(np.float64))
    path = WRITERS[suffix](tmp_path / f"log{suffix}", arrays, action_low=-1.0, action_high=1.0, env_id="Example-v0")
    assert_same(load_log(path), dataclasses.replace(log, provenance={}))


def test_other_content_is_ignored_and_other_attributes_are_kept_as_provenance(tmp_path):
    arrays = file_arrays(example_log()) | {"infos/qpos": np.zeros((40, 2))}
    path = write_hdf5(tmp_path / "log.hdf5", arrays, mean_return=2.5, note=np.bytes_(b"by hand"), table=np.zeros(3))
    assert load_log(path).provenance["attributes"] == {"mean_return": 2.5, "note": "by hand"}


def test_provenance_that_is_not_json_is_kept_as_a_note(tmp_path, suffix):
    path = WRITERS[suffix](tmp_path / f"log{suffix}", file_arrays(example_log()), provenance="from the plant")
    assert load_log(path).provenance["note"] == "from the plant"


def test_missing_timeouts_are_taken_as_false_and_recorded(tmp_path, suffix):
    arrays = file_arrays(example_log(rows=10))
    del arrays["timeouts"]
    log = load_log(WRITERS[suffix](tmp_path / f"log{suffix}", arrays))
    assert not log.truncated.any()
    assert "timeouts" in log.provenance["assumed"]


def test_flags_never_written_to_hdf5_are_false(tmp_path):
    arrays = file_arrays(example_log(rows=10))
    del arrays["timeouts"]
    path = write_hdf5(tmp_path / "log.hdf5", arrays)
    with h5py.File(path, "r+") as file:
        file.create_dataset("timeouts", 10, bool)
    assert not load_log(path).truncated.any()


def test_bounds_default_to_the_unit_box_and_say_so(tmp_path, suffix):
    log = load_log(WRITERS[suffix](tmp_path / f"log{suffix}", file_arrays(example_log())))
    np.testing.assert_array_equal([log.action_low, log.action_high], [[-1, -1], [1, 1]])
    assert "action_bounds" in log.provenance["assumed"]


def test_bounds_given_by_the_caller_win_over_those_in_the_file(tmp_path):
    arrays = file_arrays(example_log())
    path = write_hdf5(tmp_path / "log.hdf5", arrays, action_low=-1.0, action_high=1.0)
    log = load_log(path, action_bounds=(-3, [2, 3]))
    np.testing.assert_array_equal([log.action_low, log.action_high], [[-3, -3], [2, 3]])
    assert "assumed" not in log.provenance


def test_actions_outside_by_rounding_are_clipped_and_counted(tmp_path, suffix):
    arrays = file_arrays(example_log())
    arrays["actions"] = arrays["actions"].copy()
    arrays["actions"][3] = 1 + 1e-6
    log = load_log(WRITERS[suffix](tmp_path / f"log{suffix}", arrays))
    assert log.actions.max() == 1
    assert log.provenance["clipped_actions"] == 1


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, suffix):
    path = tmp_path / f"log{suffix}"
    save_log(example_log(), path)
    broken = dataclasses.replace(example_log(seed=1), provenance={"when": object()})
    with pytest.raises(DataError, match=r"cannot be written .*not JSON serializable.*provenance"):
        save_log(broken, path)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert_same(load_log(path), example_log())


def test_saving_makes_missing_folders_and_replaces_files(tmp_path, suffix):
    path = tmp_path / "a" / "b" / f"log{suffix}"
    save_log(example_log(seed=0), path)
    save_log(example_log(seed=1), path)
    assert_same(load_log(path), example_log(seed=1))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_writing_the_same_log_twice_gives_the_same_bytes(tmp_path, suffix):
    for name in "ab":
        save_log(example_log(), tmp_path / f"{name}{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_a_log_that_breaks_a_rule_is_not_written(tmp_path, suffix):
    log = example_log()
    log.rewards[4] = np.nan
    with pytest.raises(DataError, match=r"rewards, row 4: found nan"):
        save_log(log, tmp_path / f"log{suffix}")
    too_large = dataclasses.replace(example_log(), rewards=np.full(40, 1e300))
    with pytest.raises(DataError, match=r"rewards, row 0: found inf.*fit float32"):
        save_log(too_large, tmp_path / f"log{suffix}")
    assert not list(tmp_path.iterdir())


def test_unwritable_places_are_reported(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"cannot be written.*Check the folder"):
        save_log(example_log(), tmp_path / "file" / "log.npz")


@pytest.mark.skipif(not SHARED.exists(), reason="the shared logs are not here")
@pytest.mark.parametrize("name", ["hopper-medium", "hopper-random", "halfcheetah-medium-replay"])
def test_shared_logs_load(name):
    log = load_log(SHARED / f"{name}.hdf5")
    assert len(log) == 100_000
    assert log.provenance["attributes"]["mean_return"] == pytest.approx(log.episode_returns().mean(), rel=0.01)
    assert (log.terminated.any(), log.action_size) == ((True, 3) if "hopper" in name else (False, 6))
