"""A run folder of format 2, as phyb 0.2 wrote it: it can be evaluated and reported on, and nothing else."""

import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

import phyb
from phyb.errors import DataError
from phyb.report.page import write_report
from phyb.storage.store import FORMAT_VERSION
from phyb.training.doctor import examine
from phyb.training.folder import RunFolder

QUIET = Console(quiet=True)


@pytest.fixture
def old(tmp_path):
    return Path(shutil.copytree(Path(__file__).parent / "runs" / "format-2", tmp_path / "old"))


def test_the_folder_is_of_an_earlier_format(old):
    assert RunFolder(old).read_config()["format"] == 2 < FORMAT_VERSION
    assert examine(old).healthy


def test_its_policy_is_evaluated(old):
    found, result = phyb.evaluate_run(old, 2000, console=QUIET), phyb.open_run(old).result
    assert found["env_id"] == "phyb/Liquidation-v0"
    assert abs(found["mean_return"] - result["mean_return"]) < 4 * (found["std_error"] + result["std_error"])


def test_its_report_shows_result_pool_and_learning_curves(old):
    page = write_report(old).read_text()
    score = phyb.open_run(old).result["normalized_score"]
    assert f"{score:.1f}" in page
    for words in ("return under the belief", "hold-out"):
        assert words in page


def test_its_metrics_are_read(old):
    stages = [line["stage"] for line in phyb.open_run(old).metrics]
    assert stages.count("evaluation") == 3
    assert {"pool", "policy"} < set(stages)


@pytest.mark.parametrize("finished", [True, False])
def test_it_is_refused_for_resume_and_left_as_it_is(old, finished):
    if not finished:
        manifest = json.loads((old / "manifest.json").read_text())
        del manifest["files"]["result.json"]
        (old / "manifest.json").write_text(json.dumps(manifest))
        (old / "result.json").unlink()
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match=r"earlier version.*phyb evaluate and phyb report.*--out"):
        phyb.train("liquidation", out=old, resume=True, console=QUIET)
    assert {path: path.read_bytes() for path in before} == before
