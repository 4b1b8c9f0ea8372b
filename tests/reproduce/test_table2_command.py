"""The whole path with one small algorithm: train, write, find everything finished, refuse what does not fit."""

import dataclasses
import io
import json

import pytest
from rich.console import Console

from phyb.cli import main
from phyb.errors import UsageError
from phyb.reproduce import command
from phyb.reproduce.command import FailedRunsError
from phyb.reproduce.processes import Failed
from phyb.reproduce.table2 import TABLE2

TINY = {
    "policy_hidden": (8,), "batch_size": 8, "steps": 20, "log_every": 10, "evaluate_every": 20, "checkpoint_every": 20,
    "transitions": 300, "evaluation_episodes": 20, "final_episodes": 30,
}  # fmt: skip
TABLE = dataclasses.replace(TABLE2, quick=lambda usual: TINY)


def reproduce(folder, **changed):
    shown = io.StringIO()
    options = {"algorithms": ["bc"], "seeds": 1, "jobs": 1, "quick": True, **changed}
    found = command.reproduce(TABLE, out=folder, console=Console(file=shown, width=150), **options)
    return found, shown.getvalue()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with one finished run, and what was shown."""
    folder = tmp_path_factory.mktemp("table2")
    return folder, *reproduce(folder)


def test_a_run_is_trained_and_the_table_written_in_every_form(trained):
    folder, found, shown = trained
    assert "started bc-seed0" in shown
    assert "finished bc-seed0" in shown
    assert "exact optimum" in shown
    written = {f"table2.{ending}" for ending in ("md", "tex", "csv", "json", "svg", "png")}
    assert written < {path.name for path in folder.iterdir()}
    [run] = json.loads((folder / "table2.json").read_text())["runs"]
    result = json.loads((folder / "bc-seed0" / "result.json").read_text())
    assert run["score"] == result["normalized_score"] == found.rows[0].mean
    assert run["command"].startswith("phyb train liquidation --algorithm bc --seed 0")
    assert str(folder) not in run["command"]  # anyone can make it again, in a folder of their own
    assert "report.html" in (folder / "bc-seed0.txt").read_text()


def test_finished_runs_are_not_trained_again(trained, monkeypatch):
    folder, found, _ = trained
    before = (folder / "bc-seed0" / "manifest.json").stat().st_mtime_ns
    (folder / "table2.md").unlink()
    monkeypatch.setattr(command, "run_all", lambda *_: pytest.fail("something was trained"))
    again, shown = reproduce(folder)
    assert again.outcomes == found.outcomes
    assert "started" not in shown
    assert (folder / "table2.md").is_file()
    assert (folder / "bc-seed0" / "manifest.json").stat().st_mtime_ns == before


def test_only_missing_runs_are_trained_and_failures_end_in_an_error_after_the_table(trained, monkeypatch):
    folder, *_ = trained
    asked = []

    def fail(plan, shares, monitor, stop):
        asked.extend(run.name for run in plan)
        return [Failed(run, 3, "diverged") for run in plan]

    monkeypatch.setattr(command, "run_all", fail)
    (folder / "table2.md").unlink()
    with pytest.raises(FailedRunsError, match=r"1 of 2 runs failed: bc-seed1\."):
        reproduce(folder, seeds=2)
    assert asked == ["bc-seed1"]
    assert "Not all of the 2 seeds are finished: BC." in (folder / "table2.md").read_text()


def test_a_finished_run_with_other_settings_is_refused(trained):
    folder, *_ = trained
    with pytest.raises(UsageError, match=r"(?s)bc-seed0: was started with other settings.*training.steps: 10000 here"):
        reproduce(folder, quick=False)


def test_gathering_nothing_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no run of the table is finished"):
        reproduce(tmp_path, gather=True)


def test_rough_numbers_have_a_folder_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="runs/table2-quick: no run"):
        command.reproduce("table2", quick=True, gather=True, algorithms=["bc"])
    with pytest.raises(UsageError, match="runs/table2: no run"):
        command.reproduce("table2", gather=True, algorithms=["bc"])


def test_the_command_line_passes_everything_on(monkeypatch):
    given = {}
    monkeypatch.setattr(command, "reproduce", lambda table, **options: given.update(options, table=table))
    main([*"reproduce table2 --quick --seeds 2 --jobs 3 --algorithms bc cql --gather".split()])
    given.pop("console")
    expected = {"table": "table2", "seeds": 2, "quick": True, "jobs": 3, "algorithms": ("bc", "cql"), "gather": True}
    assert given == {**expected, "out": None, "cache": None}


@pytest.mark.parametrize("words", ["--algorithms bc --seeds 0", "--algorithms bc --jobs 0", "--algorithms nobody"])
def test_impossible_requests_are_refused(words, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(f"reproduce table2 --out {tmp_path} --gather {words}".split())
    assert stop.value.code == 2
    assert "error:" in capsys.readouterr().err
