"""What is shown while runs go on."""

import io
import json
import time

import pytest
from made_up import script
from rich.console import Console

from phyb.reproduce.board import Board, progress_of
from phyb.reproduce.processes import Active, Failed


def active(planned):
    return Active(planned, None, (0,), time.monotonic())  # pyright: ignore[reportArgumentType]


def finish(planned, seconds):
    (planned.folder / "result.json").write_text(json.dumps({"wall_seconds": {"pool": 1.0, "policy": seconds - 1.0}}))


def test_the_place_of_a_run_is_read_from_its_metrics_else_from_what_it_says(tmp_path):
    run = script(tmp_path / "run", "")
    assert progress_of(run) == (0.0, "starting")
    run.output.write_text("log\npool   10%, about 30 s left\n\n")
    assert progress_of(run) == (0.0, "pool   10%, about 30 s left")
    steps = run.settings.training.steps
    lines = [{"stage": "pool", "step": 9}, {"stage": "policy", "step": steps // 4}]
    (run.folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"stage": "pol')
    assert progress_of(run) == (0.25, f"{steps // 4:,} of {steps:,} updates")


def test_time_left_is_estimated_from_finished_runs(tmp_path):
    runs = [script(tmp_path / name, "") for name in "abcd"]
    console = Console(file=io.StringIO())
    assert Board(console, runs, [], 2).seconds_left([], runs, {}) is None
    finish(runs[0], 100.0)
    board = Board(console, runs, runs[:1], 2)
    left = board.seconds_left([active(runs[1])], runs[2:], {"b": 0.75})
    assert left == pytest.approx((25.0 + 200.0) / 2)


def test_a_log_file_gets_a_line_per_event(tmp_path):
    runs = [script(tmp_path / name, "") for name in "ab"]
    shown = io.StringIO()
    with Board(Console(file=shown, width=200), runs, [], 1) as board:
        for run in runs:
            board.started(active(run))
        board.update([active(run) for run in runs], [])
        finish(runs[0], 10.0)
        board.ended(active(runs[0]), None)
        board.ended(active(runs[1]), Failed(runs[1], 3, "error: [it] diverged"))
    lines = shown.getvalue().splitlines()
    assert lines[:2] == ["started a", "started b"]
    assert lines[2].startswith("finished a in 0.0 s (1 of 2 runs)")
    assert lines[3:] == ["failed b, exit code 3. Last output:", "error: [it] diverged"]


def test_a_terminal_gets_a_bar_over_all_runs_and_a_line_each(tmp_path):
    runs = [script(tmp_path / name, "") for name in ("first", "second")]
    finish(runs[0], 100.0)
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    with Board(console, runs, runs[:1], 1) as board:
        board.started(active(runs[1]))
        board.update([active(runs[1])], [])
    assert "second" in shown.getvalue()
    assert "1 of 2, about 1 min 40 s left" in shown.getvalue()
