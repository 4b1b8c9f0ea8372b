"""A log whose numbers stay on disk is the log that is read into memory, refused for the same reasons."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from log_examples import example_log, file_arrays, logs, write_hdf5, write_npz

from phyb.data import disk, load_log, save_log, validate
from phyb.data.disk import log_on_disk, open_log, put_on_disk
from phyb.data.log import FIELDS
from phyb.errors import BusyError, DataError
from phyb.storage import mapped
from phyb.storage.lock import locked


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    before, mapped.BLOCK_BYTES = mapped.BLOCK_BYTES, 100
    yield
    mapped.BLOCK_BYTES = before


def altered(change):
    """The arrays of a file, after a change to them."""
    arrays = {name: array.copy() for name, array in file_arrays(example_log()).items()}
    change(arrays)
    return arrays


def drop_successors(arrays):
    del arrays["next_observations"]


def widen(arrays):
    arrays["observations"], arrays["actions"] = arrays["observations"].astype(">f8"), arrays["actions"].astype("f2")
    arrays["next_observations"], arrays["rewards"] = (
        arrays["next_observations"].astype("f8"),
        arrays["rewards"][:, None],
    )
    arrays["terminals"] = arrays["terminals"].astype("u1")


def exceed_slightly(arrays):
    arrays["actions"][7] = 1 + 5e-6


@pytest.mark.parametrize("change", [lambda arrays: None, drop_successors, widen, exceed_slightly])
@pytest.mark.parametrize("write", [write_hdf5, write_npz])
def test_the_log_on_disk_is_the_log_in_memory(tmp_path, change, write):
    suffix = {write_hdf5: "hdf5", write_npz: "npz"}[write]
    path = write(tmp_path / f"log.{suffix}", altered(change))
    memory, mapped_log = load_log(path), load_log(path, rows_in=tmp_path / "rows")
    assert mapped_log.on_disk
    assert not memory.on_disk
    assert mapped_log.fingerprint() == memory.fingerprint()
    assert mapped_log.provenance == memory.provenance
    assert validate(mapped_log, "log") == validate(memory, "log")
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(mapped_log, field), getattr(memory, field))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=logs())
def test_any_log_goes_to_disk_and_back(tmp_path, log):
    log = dataclasses.replace(log, observations=log.observations.astype(np.float64))
    found = put_on_disk(log, tmp_path)
    assert found.fingerprint() == log.fingerprint()
    assert (found.env_id, found.provenance) == (log.env_id, log.provenance)
    assert not found.observations.flags.writeable


def spoil(arrays, name, row, value):
    arrays[name][row] = value


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: spoil(arrays, "observations", 33, np.nan),
        lambda arrays: spoil(arrays, "rewards", 39, np.inf),
        lambda arrays: spoil(arrays, "actions", 31, 3.0),
        lambda arrays: spoil(arrays, "next_observations", 25, 100.0),
        lambda arrays: arrays.update(terminals=np.full(40, 0.5)),
        lambda arrays: arrays.update({name: array[:0] for name, array in arrays.items()}),
        lambda arrays: arrays.update(rewards=arrays["rewards"][:-1]),
    ],
)
def test_a_bad_log_is_refused_in_the_same_words_and_leaves_nothing(tmp_path, change):
    path = write_hdf5(tmp_path / "log.hdf5", altered(change), action_low=-1.0, action_high=1.0)
    with pytest.raises(DataError) as in_memory:
        load_log(path)
    with pytest.raises(DataError) as on_disk:
        load_log(path, rows_in=tmp_path / "rows")
    assert str(on_disk.value) == str(in_memory.value)
    assert not list((tmp_path / "rows").rglob("*.rows"))


@pytest.fixture
def path(tmp_path):
    save_log(example_log(), tmp_path / "log.hdf5")
    return tmp_path / "log.hdf5"


def test_rows_are_written_once_for_each_content(path, tmp_path, monkeypatch):
    first = load_log(path, rows_in=tmp_path / "rows")
    copy = path.with_name("copy.hdf5")
    copy.write_bytes(path.read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(disk, "read_log", None)
        assert load_log(copy, rows_in=tmp_path / "rows").fingerprint() == first.fingerprint()
    save_log(example_log(seed=1), copy)
    assert load_log(copy, rows_in=tmp_path / "rows").fingerprint() != first.fingerprint()
    wider = load_log(path, rows_in=tmp_path / "rows", action_bounds=(-2, 2))
    assert wider.action_high.tolist() == [2, 2]


@pytest.mark.parametrize("damage", ["flip", "cut", "note"])
def test_damaged_rows_are_written_again(path, tmp_path, damage):
    log = load_log(path, rows_in=tmp_path / "rows")
    (folder,) = (tmp_path / "rows").iterdir()
    rows = folder / "rewards.rows"
    content = bytearray(rows.read_bytes())
    content[5] ^= 1
    {
        "flip": lambda: rows.write_bytes(bytes(content)),
        "cut": lambda: rows.write_bytes(bytes(content[:-4])),
        "note": lambda: (folder / "log.json").write_text('{"format": 1, "fields": {"observations": 3}}'),
    }[damage]()
    with pytest.raises(DataError, match="cannot be used"):
        open_log(folder)
    assert load_log(path, rows_in=tmp_path / "rows").fingerprint() == example_log().fingerprint() == log.fingerprint()


def test_who_finds_another_process_writing_waits(path, tmp_path, monkeypatch):
    load_log(path, rows_in=tmp_path / "rows")
    (place,) = (tmp_path / "rows").iterdir()
    monkeypatch.setattr(disk.time, "sleep", lambda seconds: None)
    with locked(place):
        with pytest.raises(BusyError):
            log_on_disk(path, tmp_path / "rows")
        reasons = []

        def waiting(reason):
            reasons.append(reason)
            if len(reasons) == 3:
                raise TimeoutError

        with pytest.raises(TimeoutError):
            log_on_disk(path, tmp_path / "rows", waiting=waiting)
    assert "is in use by process" in reasons[0]
