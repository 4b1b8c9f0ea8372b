import io

import pytest
from rich.console import Console

from phyb.training.progress import Stages


def test_stages_keep_the_seconds_of_each_and_add_up_repeats():
    stages = Stages(Console(quiet=True))
    for _ in range(2):
        with stages.stage("pool", "pool", 2) as advance:
            advance(1, "half way")
    with stages.stage("policy", "policy"):
        pass
    assert list(stages.seconds) == ["pool", "policy"]
    assert all(seconds >= 0 for seconds in stages.seconds.values())


def test_time_is_kept_when_a_stage_fails():
    stages = Stages(Console(quiet=True))
    with pytest.raises(ValueError, match="broken"), stages.stage("pool", "pool", 1):
        raise ValueError("broken")
    assert "pool" in stages.seconds


def test_the_bar_shows_title_count_and_newest_numbers():
    shown = io.StringIO()
    with Stages(Console(file=shown, width=120, force_terminal=True)).stage("pool", "training", 4) as advance:
        advance(3, "loss 1.25")
    assert "training" in shown.getvalue()
    assert "4/4" in shown.getvalue()
    assert "loss 1.25" in shown.getvalue()


def test_a_log_file_gets_lines_instead_of_a_moving_bar(monkeypatch):
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr("phyb.training.progress.time.monotonic", lambda: float(next(clock)))
    shown = io.StringIO()
    with Stages(Console(file=shown, width=120)).stage("policy", "policy", 100) as advance:
        for done in range(0, 101, 5):
            advance(done, "")
    assert "50%, about" in shown.getvalue()


@pytest.mark.parametrize(("widgets", "lines"), [(True, False), (False, True)])
def test_a_notebook_gets_a_moving_bar_or_lines(monkeypatch, widgets, lines):
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr("phyb.training.progress.time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr("phyb.training.progress.importlib.util.find_spec", lambda name: widgets or None)
    made = []
    monkeypatch.setattr("phyb.training.progress.Progress", lambda *columns, **options: made.append(options) or NoBar())
    shown = io.StringIO()
    console = Console(file=shown, width=120)
    console.is_jupyter = True
    monkeypatch.setattr(console, "print", lambda text, **options: shown.write(text))
    with Stages(console).stage("policy", "policy", 100) as advance:
        for done in range(0, 101, 5):
            advance(done, "")
    assert made[0]["disable"] is lines
    assert ("50%, about" in shown.getvalue()) is lines


class NoBar:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def add_task(self, *_, **options):
        return 0

    def update(self, *_, **options):
        pass
