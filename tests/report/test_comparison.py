"""Two runs on one page: the verdict, the curves over each other, and the settings that differ."""

import dataclasses
import json
import re

import pytest
from run_folders import config, diagnostics, metrics, result, write_run

from phyb.cli import main, parse
from phyb.errors import DataError
from phyb.report.comparison import render, settings, verdict, write_comparison
from phyb.training.records import read_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = {"metrics": metrics()[::4], "diagnostics": diagnostics()}
    write_run(folder / "one", config=config(), result=result(), **made)
    write_run(folder / "two", config=config(seed=4), result=result(mean_return=130.0, std_error=0.3), **made)
    return read_run(folder / "one"), read_run(folder / "two")


def test_both_runs_are_in_every_picture(runs):
    page = render(runs)
    plots = [json.loads(found.replace("&quot;", '"')) for found in re.findall(r'data-curves="([^"]*)"', page)]
    assert len(plots) > 10
    assert all([curve[:2] for curve in plot["curves"]] == [["A one", "true"], ["B two", "belief"]] for plot in plots)


def changed(run, **values):
    return dataclasses.replace(run, result={**run.result, **values})


def test_the_verdict_needs_two_standard_errors(runs):
    one, two = runs
    assert verdict(runs) == ("good", "A earns 6.58 ± 0.51 more in the simulator.")
    close = verdict((one, changed(two, mean_return=136.0)))
    assert close == ("open", "No clear difference in the simulator: −0.58 ± 0.51.")
    lost = {"mean_return": None, "std_error": None}
    words = verdict((changed(one, **lost), changed(two, **lost, belief_return=140.0)))[1]
    assert words == "B earns 8.09 ± 0.74 more under the belief of each, which nothing has tested."
    assert "no return in common" in verdict((one, dataclasses.replace(two, result={})))[1]
    other = dataclasses.replace(two, config={**two.config, "task": "plant"})
    assert "different tasks, liquidation and plant" in verdict((one, other))[1]


def test_only_settings_that_differ_are_listed(runs):
    rows = re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td><td>([^<]*)</td>', settings(runs).html)
    assert rows == [("seed", "3", "4")]
    assert settings((runs[0], runs[0])).sentences == ["All settings, versions and the seed are the same."]


def test_the_command_writes_one_page_for_two_runs_and_refuses_three(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folders = [str(write_run(tmp_path / name, config=config())) for name in ("one", "two")]
    main(["report", *folders])
    assert "Two runs" in (tmp_path / "comparison.html").read_text(encoding="utf-8")
    main(["report", folders[0], "--out", "page.html"])
    assert "A run" not in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not (tmp_path / "one" / "report.html").exists()
    with pytest.raises(SystemExit) as caught:
        main(["report", *folders, folders[0]])
    assert caught.value.code == 2
    assert "found 3 run folders, expected one or two" in capsys.readouterr().err
    assert parse(["report", "a", "b"]).out is None
    with pytest.raises(DataError, match="not a run folder"):
        write_comparison(folders[0], tmp_path / "none", tmp_path / "no.html")
    assert not (tmp_path / "no.html").exists()
