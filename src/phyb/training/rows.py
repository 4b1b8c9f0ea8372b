"""Where the rows of a run lie: in memory, or on disk if they would not fit."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from phyb.data.disk import log_on_disk, put_on_disk
from phyb.data.files import load_log, log_header
from phyb.data.log import Log
from phyb.training.memory import available, check, estimate, line
from phyb.training.progress import Stages
from phyb.training.settings import Settings

RowsIn = Literal["auto", "memory", "disk"]


def load_rows(
    path: str | os.PathLike[str], rows_in: RowsIn, settings: Settings, cache: Path, waiting: Callable[[str], None]
) -> Log:
    """The log of a file. On disk, its numbers are kept below `cache`, for all runs on the same file.

    Raises:
        MemoryShortError: rows in memory are asked for, and cannot fit.
    """
    header = None if rows_in == "disk" else log_header(path)
    shape = None if header is None else (header.rows, header.observation_size, header.action_size)
    if rows_in == "disk" or (rows_in == "auto" and shape is not None and _is_too_large(*shape, settings)):
        return log_on_disk(path, cache / "rows", waiting=waiting)
    if shape is not None:
        check(estimate(*shape, settings, on_disk=False), available(), on_disk=False)
    return load_log(path)


def move_rows(log: Log, rows_in: RowsIn, settings: Settings, folder: Path) -> Log:
    """A log that came whole into memory, moved to disk below the run's `folder` if that is asked for or needed."""
    if log.on_disk or rows_in == "memory":
        return log
    if rows_in == "auto" and not _is_too_large(len(log), log.observation_size, log.action_size, settings):
        return log
    folder.joinpath("log").mkdir(parents=True, exist_ok=True)
    return put_on_disk(log, folder / "log")


@contextlib.contextmanager
def removed_afterwards(folder: Path) -> Iterator[None]:
    """Remove what a run has put into a folder, however the run ends: it is made again when it is needed."""
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tell_memory(log: Log, settings: Settings, stages: Stages) -> None:
    """Say what the run will need beside what the machine has; a warning if it may not fit.

    Raises:
        MemoryShortError: it cannot fit.
    """
    need = estimate(len(log), log.observation_size, log.action_size, settings, on_disk=log.on_disk)
    free = available()
    where = "  rows on disk, " if log.on_disk else "  "
    stages.console.print(where + line(need, free), style="dim", highlight=False, soft_wrap=True)
    warning = check(need, free, on_disk=log.on_disk)
    if warning is not None:
        stages.console.print(f"[yellow]warning[/] {warning}", highlight=False)


def _is_too_large(rows: int, observation_size: int, action_size: int, settings: Settings) -> bool:
    free = available()
    need = estimate(rows, observation_size, action_size, settings, on_disk=False)
    return free is not None and need.total > free
