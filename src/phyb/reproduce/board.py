"""Progress of many runs: a bar over all of them, and a line for each active one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from phyb.errors import DataError
from phyb.report.elements import duration
from phyb.reproduce.plan import Planned
from phyb.reproduce.processes import Active, Failed, last_lines
from phyb.storage.files import parse_json, read_json


def progress_of(planned: Planned) -> tuple[float, str]:
    """How far the updates of a run have come, from 0 to 1, and a description."""
    steps = planned.settings.training.steps
    for line in reversed(last_lines(planned.folder / "metrics.jsonl")):
        try:
            record = parse_json(line)
            if record["stage"] in ("policy", "evaluation"):
                step = int(record["step"])
                return min(1.0, step / steps), f"{step:,} of {steps:,} updates"
        except (ValueError, KeyError, TypeError):  # half a line, just being written
            continue
    output = last_lines(planned.output)
    return 0.0, output[-1].strip()[:70] if output else "starting"


class Board:
    """A `Monitor` that draws a moving board on a terminal, and prints a line per event elsewhere."""

    def __init__(self, console: Console, plan: Sequence[Planned], done: Sequence[Planned], jobs: int) -> None:
        self._console, self._total, self._done, self._jobs = console, len(plan), len(done), jobs
        self._seconds: dict[str, list[float]] = {}
        for run in done:
            self._record_time(run)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[info]}", style="dim"),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._all = self._progress.add_task("[bold]all runs", total=self._total, completed=self._done, info="")
        self._lines: dict[str, TaskID] = {}

    def __enter__(self) -> Board:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def message(self, text: str) -> None:
        """Show a message above the bars."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def started(self, run: Active) -> None:
        """Add a line."""
        name = run.planned.name
        self._lines[name] = self._progress.add_task(f"  {name}", total=1.0, info="starting")
        if not self._console.is_terminal:
            self.message(f"started {name}")

    def ended(self, run: Active, failed: Failed | None) -> None:
        """Remove the line, and report the outcome."""
        name = run.planned.name
        self._progress.remove_task(self._lines.pop(name))
        if failed is not None:
            self.message(f"[bold red]failed[/] {name}, exit code {failed.code}. Last output:")
            self.message(escape(failed.tail) or "(nothing)")
        elif run.stop_sent:
            self.message(f"saved {name}")
        else:
            self._done += 1
            self._record_time(run.planned)
            taken = time.monotonic() - run.started
            self.message(f"finished {name} in {duration(taken)} ({self._done} of {self._total} runs)")

    def update(self, active: Sequence[Active], waiting: Sequence[Planned]) -> None:
        """Redraw everything."""
        if not self._console.is_terminal:
            return
        shares = {}
        for run in active:
            share, info = progress_of(run.planned)
            shares[run.planned.name] = share
            self._progress.update(self._lines[run.planned.name], completed=share, info=escape(info))
        left = self.seconds_left(active, waiting, shares)
        info = f"{self._done} of {self._total}" + ("" if left is None else f", about {duration(left)} left")
        self._progress.update(self._all, completed=self._done + sum(shares.values()), info=info)

    def seconds_left(
        self, active: Sequence[Active], waiting: Sequence[Planned], shares: dict[str, float]
    ) -> float | None:
        """Time to the end, estimated from runs of the same algorithm, else of any; None before one is finished."""
        known = [seconds for each in self._seconds.values() for seconds in each]
        if not known:
            return None

        def expected(planned: Planned) -> float:
            found = self._seconds.get(planned.algorithm, known)
            return sum(found) / len(found)

        work = sum(expected(run) for run in waiting)
        work += sum(expected(run.planned) * (1.0 - shares.get(run.planned.name, 0.0)) for run in active)
        return work / max(1, min(self._jobs, len(active) + len(waiting)))

    def _record_time(self, planned: Planned) -> None:
        """Keep the wall time of a finished run, all its stages together, if it is known."""
        with contextlib.suppress(DataError, KeyError, TypeError, AttributeError):
            seconds = sum(read_json(planned.folder / "result.json")["wall_seconds"].values())
            self._seconds.setdefault(planned.algorithm, []).append(float(seconds))
