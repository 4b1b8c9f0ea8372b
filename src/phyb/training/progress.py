"""What a person sees while a run goes on: stages with a bar, rate and time left, and tables at the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Advance = Callable[[float, str], None]
"""(completed so far, short text about the newest numbers)."""


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        rate = task.finished_speed or task.speed
        return Text("" if rate is None else f"{rate:,.0f}/s", style="cyan")


class Stages:
    """Shows stages one after the other and keeps the seconds each took."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str, title: str, total: float | None = None) -> Iterator[Advance]:
        """A bar while the block runs; the time is added to `seconds[name]`."""
        started = time.monotonic()
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[info]}", style="dim"),
        )
        with Progress(*columns, console=self.console, speed_estimate_period=60.0) as progress:
            task = progress.add_task(title, total=total, info="")

            def advance(completed: float, info: str) -> None:
                progress.update(task, completed=completed, info=info)

            try:
                yield advance
                if total is not None:
                    progress.update(task, completed=total)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started
