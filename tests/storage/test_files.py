"""Single files: whole or not at all, whatever happens on the way."""

import errno
import json
import os

import jax.numpy as jnp
import numpy as np
import pytest

from phyb.errors import DataError, StorageError
from phyb.storage import files
from phyb.storage.files import atomic_path, read_json, remove_leftovers, write_bytes, write_json


def test_an_interrupted_write_keeps_the_old_file_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    with atomic_path(path) as temporary:
        temporary.write_text("old")
        assert not path.exists(), "the name is taken only at the end"

    def interrupted():
        with atomic_path(path) as temporary:
            temporary.write_text("half of the ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("below", ["file.json", "more/file.json"])
def test_a_folder_that_is_a_file_is_reported_cleanly(tmp_path, below):
    (tmp_path / "taken").write_text("a file")
    path = tmp_path / "taken" / below
    with pytest.raises(StorageError, match="cannot be written") as error:
        write_json(path, {})
    assert str(path) in str(error.value)
    assert (tmp_path / "taken").read_text() == "a file"


def test_json_holds_plain_values_of_arrays_and_paths(tmp_path):
    content = {
        "array": np.arange(3),
        "jax": jnp.float32(0.5),
        "number": np.int64(4),
        "path": tmp_path,
        "none": None,
    }
    write_json(tmp_path / "a.json", content)
    expected = {"array": [0, 1, 2], "jax": 0.5, "number": 4, "path": str(tmp_path), "none": None}
    assert read_json(tmp_path / "a.json") == expected
    assert json.loads((tmp_path / "a.json").read_text()) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32("nan"), object()])
def test_json_refuses_what_is_not_json_and_keeps_the_old_file(tmp_path, value):
    write_json(tmp_path / "a.json", 1)
    with pytest.raises((ValueError, TypeError)):
        write_json(tmp_path / "a.json", {"value": value})
    assert read_json(tmp_path / "a.json") == 1
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe\x00", b"[" * 100_000, b"1" * 5000, None])
def test_damaged_and_missing_json_is_named(tmp_path, content):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as error:
        read_json(path)
    assert str(path) in str(error.value)


CALLS = ("mkdir", "open", "write", "fsync", "chmod", "replace")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "the disk is full .*MiB free.* Make room"),
        (errno.EIO, r"Input/output error\. Check the folder"),
        (errno.EACCES, "rights"),
        (errno.EDQUOT, "the disk is full"),
    ],
)
def test_whatever_call_fails_the_old_file_stays_and_the_message_says_why(tmp_path, monkeypatch, call, number, said):
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr(os, call, fail)
        if call == "mkdir":
            path = tmp_path / "new" / "file"
        with pytest.raises(StorageError, match=said):
            write_bytes(path, b"the new content")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [left.name for left in tmp_path.iterdir() if left.is_file()] == ["file"]


def test_short_writes_are_continued(tmp_path, monkeypatch):
    whole = os.write
    monkeypatch.setattr(files.os, "write", lambda handle, content: whole(handle, content[:3]))
    write_bytes(tmp_path / "file", b"many more than three bytes")
    assert (tmp_path / "file").read_bytes() == b"many more than three bytes"


def test_leftovers_of_a_killed_process_are_removed_and_nothing_else(tmp_path):
    (tmp_path / "below").mkdir()
    for name in (".file.json.x1y2.tmp", "below/.a.b.tmp", "below/mine.tmp", ".hidden"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"below/mine.tmp", ".hidden"}
