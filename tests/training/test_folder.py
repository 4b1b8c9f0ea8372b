"""The run folder: its config, what a killed process leaves in it, and folders of other versions."""

import json

import jax.numpy as jnp
import pytest

from phyb.errors import DataError
from phyb.training.folder import POLICY_FILES, RunFolder, versions


def test_a_folder_without_config_is_not_a_run(tmp_path):
    with pytest.raises(DataError, match="not a run folder"):
        RunFolder(tmp_path).read_config()


def checkpoint(folder, step, **kwargs):
    folder.save_checkpoint({"weights": jnp.full(2, step)}, {"step": step, "score": kwargs.pop("score", None)}, **kwargs)


def steps(folder):
    return [int(path.stem[5:]) for path in folder.checkpoint_files()]


def test_unscheduled_checkpoints_live_until_the_next_and_push_nothing_out(tmp_path):
    folder = RunFolder(tmp_path)
    for step in (10, 20):
        checkpoint(folder, step, keep=2)
    checkpoint(folder, 25, scheduled=False, keep=2)
    assert steps(folder) == [10, 20, 25]
    checkpoint(folder, 27, scheduled=False, keep=2)
    assert steps(folder) == [10, 20, 27]
    checkpoint(folder, 30, keep=2)
    assert steps(folder) == [20, 30]


def test_the_best_scores_are_kept_and_the_older_wins_a_tie(tmp_path):
    folder = RunFolder(tmp_path)
    for step, score in ((1, 5.0), (2, 7.0), (3, 7.0), (4, None), (5, 6.0), (6, 1.0)):
        checkpoint(folder, step, score=score, keep=1, keep_best=1)
    assert steps(folder) == [2, 6]
    newest = folder.newest_checkpoint()
    assert newest is not None
    assert newest[1]["step"] == 6


def test_opening_removes_what_a_killed_process_left_and_nothing_else(tmp_path):
    folder = RunFolder(tmp_path)
    folder.open()
    checkpoint(folder, 1)
    (tmp_path / "pool").mkdir()
    for name in ("checkpoints/step-000000002.safetensors", "pool/members-0000.safetensors", ".config.json.abc.tmp"):
        (tmp_path / name).write_text("unlisted")
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder(tmp_path).open()
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"manifest.json", "checkpoints/step-000000001.safetensors", "notes.txt"}


def test_a_run_is_finished_only_while_result_and_policy_are_whole(tmp_path):
    folder = RunFolder(tmp_path)
    folder.save_json("result.json", {})
    folder.save_json("diagnostics.json", {})
    assert not folder.finished
    for name in POLICY_FILES:
        folder.save_json(name, {})
    assert folder.finished
    (tmp_path / POLICY_FILES[1]).write_text("other")
    assert not folder.finished


def test_runs_of_the_first_format_say_what_can_be_done_with_them(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"format": 1}))
    assert RunFolder(tmp_path).read_config() == {"format": 1}
    with pytest.raises(DataError, match=r"earlier version.*phyb evaluate and phyb report"):
        RunFolder(tmp_path).open()


def test_a_lost_manifest_is_not_taken_for_a_fresh_start(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"format": 3}))
    with pytest.raises(DataError, match=r"manifest is gone.*doctor"):
        RunFolder(tmp_path).open()


@pytest.mark.parametrize("content", ["[]", "{}", '{"format": 99}', '{"format": null}', "1", "{"])
def test_a_config_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(DataError, match=r"config\.json"):
        RunFolder(tmp_path).read_config()


def test_versions_name_what_the_numbers_depend_on():
    assert {"phyb", "jax", "numpy", "python", "device"} <= versions().keys()
