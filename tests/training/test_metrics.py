"""The metrics file."""

import errno
import json
import os
from contextlib import closing

import jax.numpy as jnp
import pytest

from phyb.errors import StorageError
from phyb.training.folder import RunFolder
from phyb.training.metrics import MetricsWriter


def test_metrics_are_strict_json_lines_and_tensorboard_events(tmp_path):
    folder = RunFolder(tmp_path)
    with closing(MetricsWriter(folder)) as writer:
        writer.write("policy", 5, {"loss": jnp.asarray(0.5), "list": jnp.asarray([1.0, jnp.nan])})
        writer.write("policy", 6, {"loss": float("inf")})
    first, second = (json.loads(line, parse_constant=pytest.fail) for line in folder.metrics.read_text().splitlines())
    assert first == {"stage": "policy", "step": 5, "loss": 0.5, "list": [1.0, None]}
    assert second["loss"] is None
    (events,) = folder.tensorboard.glob("events.*")
    assert events.read_bytes().count(b"policy/loss") == 1


def test_the_file_begins_with_what_the_checkpoint_remembers(tmp_path):
    folder = RunFolder(tmp_path)
    folder.metrics.write_text("left by another life\n")
    with closing(MetricsWriter(folder, b'{"a": 1}\n')) as writer:
        writer.write("policy", 1, {})
        assert bytes(writer.text) == folder.metrics.read_bytes()
    assert folder.metrics.read_text().splitlines()[0] == '{"a": 1}'


def test_a_full_disk_is_told_and_what_was_written_stays(tmp_path, monkeypatch):
    folder, whole = RunFolder(tmp_path), os.write
    with closing(MetricsWriter(folder)) as writer:
        writer.write("policy", 1, {"loss": 1.0})

        def half(handle, content):
            if len(content) > 20:
                return whole(handle, content[:20])
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", half)
        with pytest.raises(StorageError, match="disk is full"):
            writer.write("policy", 2, {"loss": 2.0})
        monkeypatch.undo()
        assert bytes(writer.text) == folder.metrics.read_bytes()[: len(writer.text)]


def test_events_that_cannot_be_written_do_not_end_a_run(tmp_path, monkeypatch):
    said = []
    (tmp_path / "tensorboard").touch()
    with closing(MetricsWriter(RunFolder(tmp_path))) as writer:
        writer.write("policy", 1, {"loss": 1.0})
    (tmp_path / "tensorboard").unlink()
    with closing(MetricsWriter(RunFolder(tmp_path), on_message=said.append)) as writer:
        writer.write("policy", 1, {"loss": 1.0})

        def fail(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("os.fsync", fail)
        writer.write("policy", 2, {"loss": 1.0})
        writer.write("policy", 3, {"loss": 1.0})
    assert len(said) == 1
    assert len(RunFolder(tmp_path).metrics.read_text().splitlines()) == 3
