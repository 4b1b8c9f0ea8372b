"""What a person sees while a run goes on: stages with a bar, rate and time left, and tables at the end."""

from __future__ import annotations

import contextlib
import importlib.util
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
        self._running: tuple[str, float] | None = None

    def message(self, text: str) -> None:
        """Show a message above the bar."""
        self.console.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Show a warning above the bar."""
        self.console.print(Text.assemble(("warning ", "bold yellow"), text), highlight=False)

    def seconds_so_far(self) -> dict[str, float]:
        """Seconds of every stage, with those of the one under way."""
        found = dict(self.seconds)
        if self._running is not None:
            name, started = self._running
            found[name] = found.get(name, 0.0) + time.monotonic() - started
        return {name: round(seconds, 2) for name, seconds in found.items()}

    @contextlib.contextmanager
    def stage(self, name: str, title: str, total: float | None = None) -> Iterator[Advance]:
        """A bar while the block runs; the time is added to `seconds[name]`."""
        started = time.monotonic()
        self._running = (name, started)
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[info]}", style="dim"),
        )
        # In a notebook the bar is a widget; without widgets, lines do.
        widgets = self.console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
        moving, shows = self.console.is_terminal or widgets, widgets or not self.console.is_jupyter
        with Progress(*columns, console=self.console, speed_estimate_period=60.0, disable=not shows) as progress:
            task = progress.add_task(title, total=total, info="")

            shown, shown_at = 0.0, started

            def advance(completed: float, info: str) -> None:
                nonlocal shown, shown_at
                progress.update(task, completed=completed, info=info)
                # A log file or a cluster's console shows no moving bar: a line now and then does instead.
                now, due = time.monotonic(), bool(total) and 0.1 * total <= completed - shown and completed < total
                if not moving and total and due and now - shown_at > 5.0:
                    shown, shown_at = completed, now
                    left = (now - started) * (total - completed) / completed
                    line = f"{title} {completed / total:4.0%}, about {left:,.0f} s left  {info}"
                    self.console.print(line, highlight=False)

            try:
                yield advance
                if total is not None:
                    progress.update(task, completed=total)
            finally:
                self._running = None
                self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started
