"""One short run on a folder of tables: its name, task, events, and how it shows itself in a notebook."""

import io
import sys
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

import phyb
from phyb.errors import DataError, UsageError
from phyb.pipeline import _name_of
from phyb.training.rows import log_origin

sys.path.append(str(Path(__file__).parents[1] / "data"))
from frame_examples import ROLES, table  # pyright: ignore[reportMissingImports]

QUIET = Console(file=io.StringIO())
TINY = {"steps": 20, "log_every": 10, "evaluate_every": 20, "checkpoint_every": 20, "policy_hidden": (8,),
        "batch_size": 8, "final_episodes": 20, "evaluation_episodes": 20}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("own")
    (place / "ward").mkdir()
    for seed, name in enumerate(("a.csv", "b.csv")):
        pd.DataFrame(table(seed=seed)).to_csv(place / "ward" / name, index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        run = phyb.BC(**TINY).fit(place / "ward", logger="tensorboard", seed=3, cache=place, console=QUIET)
    assert run.folder == Path("runs/ward-bc-seed3")
    return phyb.open_run(place / run.folder, console=QUIET)


def test_it_is_named_after_the_folder_and_has_no_task(run):
    assert run.folder.name == "ward-bc-seed3"
    assert run.config["resolved"]["task_by"] == "a log without env_id"
    assert run.config["env_id"] is run.config["resolved"]["task"] is None
    assert run.config["data"]["rows"] == 20
    assert run.config["data"]["provenance"]["names"]["actions"] == ["a_dose"]


def test_its_log_is_found_again_in_its_files(run):
    assert run.log.fingerprint() == run.fingerprint
    assert [Path(path).name for path in run.log.provenance["path"]] == ["a.csv", "b.csv"]


def test_events_are_written_for_tensorboard(run):
    (events,) = (run.folder / "tensorboard").iterdir()
    assert b"policy/" in events.read_bytes()


def test_a_notebook_shows_result_and_report(run):
    assert repr(run).startswith(f"Run('{run.folder}')\n")
    assert "behaviour in the log" in repr(run)
    shown = run._repr_html_()
    assert shown is not None
    assert shown.startswith("<pre")
    assert "behaviour in the log" in shown
    page = run.report()
    assert page._repr_html_().startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert repr(page) == f"Page('{run.folder / 'report.html'}')"


def test_a_run_without_result_or_report_says_so(tmp_path):
    run = phyb.Run(tmp_path / "no run")
    assert repr(run) == f"Run('{tmp_path / 'no run'}')"
    assert run._repr_html_() is None
    with pytest.raises(DataError, match=r"there is no report\. Write it with: phyb report"):
        run.report()


def test_logs_made_in_python_are_named_by_their_environment():
    log = phyb.Log.from_frame(table(), **ROLES, env_id="Hopper-v5")
    assert (_name_of(log), log_origin(log)) == ("hopper-v5", ("Hopper-v5", None))
    assert _name_of(phyb.Log.from_frame(table(), **ROLES)) == "log"
    assert _name_of(["a/x.csv", "minari:b/c-v0"]) == "x-and-b-c-v0"
    assert _name_of(["x.csv", "y.csv", "z.csv"]) == "x-and-2-more"


def test_the_logger_is_refused_before_anything_else(tmp_path):
    with pytest.raises(UsageError, match="logger: 'paper'"):
        phyb.BC().fit("no such file", logger="paper", out=tmp_path / "run")  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="nothing: there is no such task or file"):
        phyb.BC(**TINY).fit(["nothing", "liquidation"], out=tmp_path / "run", console=QUIET)
