"""The doctor finds every harm, names what is left, and changes nothing."""

import io
import json
import os

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

from phyb.errors import DataError, LaterFormatError
from phyb.networks import Standardizer
from phyb.policy.actor import Actor
from phyb.policy.policy import Policy
from phyb.storage.lock import locked
from phyb.training.doctor import examine, render
from phyb.training.folder import POLICY_FILES, RunFolder


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path)
    folder.open()
    folder.save_json("config.json", {"format": 3})
    folder.save_json("diagnostics.json", {})
    folder.metrics.write_text("{}\n")
    folder.add("metrics.jsonl", grows=True)
    for step in (10, 20):
        folder.save_checkpoint({"w": jnp.zeros(3)}, {"step": step, "score": None}, keep=2)
    ones = jnp.ones(2)
    Policy(Actor(jax.random.key(0), 2, 2, (4,)), Standardizer(ones, ones), -ones, ones).save(folder.policy)
    folder.add(*POLICY_FILES)
    folder.save_json("result.json", {})
    (tmp_path / "report.html").write_text("<p>")
    return folder


def states(diagnosis):
    return {file.name: file.state for file in diagnosis.files}


def text(diagnosis):
    out = io.StringIO()
    render(diagnosis, Console(file=out, width=100), "run")
    return out.getvalue()


def test_a_healthy_run_is_called_healthy(folder):
    diagnosis = examine(folder.path)
    assert diagnosis.healthy
    assert set(states(diagnosis).values()) == {"fine", "extra"}
    assert "The run is finished" in text(diagnosis)


@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
def test_every_file_that_is_harmed_is_named(folder, harm):
    for name in list(folder.entries):
        path = folder.path / name
        content = path.read_bytes()
        path.unlink()
        if harm != "gone":
            path.write_bytes(bytes([content[0] ^ 1]) + content[1:] if harm == "flip" else content[:-1])
        diagnosis = examine(folder.path)
        assert not diagnosis.healthy
        assert states(diagnosis)[name] == ("missing" if harm == "gone" else "damaged")
        path.write_bytes(content)
    assert examine(folder.path).healthy


def test_it_says_from_where_a_run_can_be_gone_on_with(folder):
    folder.drop("result.json")
    assert "goes on from update 20" in text(examine(folder.path))
    (folder.checkpoints / "step-000000020.safetensors").write_bytes(b"")
    assert "goes on from update 10" in text(examine(folder.path))
    (folder.checkpoints / "step-000000010.safetensors").write_bytes(b"")
    assert "starts again" in text(examine(folder.path))
    (folder.policy / "policy.safetensors").write_bytes(b"")
    assert "policy cannot be used" in text(examine(folder.path))


def test_files_that_were_never_listed_are_told_apart(folder):
    (folder.path / "notes.txt").write_text("mine")
    assert states(examine(folder.path))["notes.txt"] == "unlisted"
    assert examine(folder.path).healthy


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"format": 2, "files": {"../x": 1}}'])
def test_without_a_manifest_it_says_what_can_be_read(folder, content):
    folder.manifest.unlink()
    if content is not None:
        folder.manifest.write_bytes(content)
    (folder.checkpoints / "step-000000020.safetensors").write_bytes(b"broken")
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    diagnosis = examine(folder.path)
    assert not diagnosis.healthy
    assert "policy can be used" in text(diagnosis)
    assert "--resume goes on" not in text(diagnosis)
    assert states(diagnosis)["checkpoints/step-000000010.safetensors"] == "readable"
    assert states(diagnosis)["checkpoints/step-000000020.safetensors"] == "damaged"
    assert before == {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def test_a_run_in_use_is_said_to_be(folder):
    with locked(folder.path):
        assert f"In use by process {os.getpid()}" in text(examine(folder.path))


def test_other_formats(folder):
    folder.manifest.write_text(json.dumps({"format": 4, "written_by": "phyb 7", "files": {}}))
    with pytest.raises(LaterFormatError, match="phyb 7"):
        examine(folder.path)
    folder.manifest.unlink()
    folder.config.write_text(json.dumps({"format": 1}))
    assert "phyb 0.1" in text(examine(folder.path))


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a run folder"):
        examine(tmp_path)


def test_links_out_of_the_folder_are_not_followed(folder, tmp_path_factory):
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.json"
    secret.write_text("{}")
    folder.manifest.unlink()
    folder.diagnostics.unlink()
    os.symlink(secret, folder.diagnostics)
    assert states(examine(folder.path))["diagnostics.json"] == "damaged"
