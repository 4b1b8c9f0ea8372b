"""Runs as processes of their own, several at a time, each on its share of the cores."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from phyb.errors import InterruptedRunError, UsageError
from phyb.interrupt import StopRequests
from phyb.reproduce.plan import Planned
from phyb.storage.files import storage_errors

_BYTES_PER_RUN = 3 * 2**29
"""What a run on the tasks of the paper's tables takes at its peak, with a little to spare."""
_TAIL_LINES = 12
_TAIL_BYTES = 16_384
Cores = tuple[int, ...]


@dataclasses.dataclass
class Active:
    """An active run."""

    planned: Planned
    process: subprocess.Popen[bytes]
    cores: Cores
    started: float
    stop_sent: bool = False


@dataclasses.dataclass(frozen=True)
class Failed:
    """A run whose process ended without a result."""

    planned: Planned
    code: int
    tail: str
    """The last lines it printed."""


class Monitor(Protocol):
    """Gets the events of the runs."""

    def started(self, run: Active) -> None:
        """A process has started."""

    def ended(self, run: Active, failed: Failed | None) -> None:
        """A process has ended, with or without success."""

    def update(self, active: Sequence[Active], waiting: Sequence[Planned]) -> None:
        """Called several times a second."""


def share_cores(jobs: int | None, cores: Cores | None = None, free_bytes: int | None = None) -> list[Cores]:
    """The cores of each of so many processes at a time; None takes a process per core, as far as memory is enough.

    Small networks gain little from a second core, so that more runs at a time beat more cores per run.

    Raises:
        UsageError: fewer than one process is asked for.
    """
    if cores is None:
        limited = hasattr(os, "sched_getaffinity")
        cores = tuple(sorted(os.sched_getaffinity(0)) if limited else range(os.cpu_count() or 1))
    if jobs is None:
        fitting = len(cores) if free_bytes is None else free_bytes // _BYTES_PER_RUN
        jobs = max(1, min(len(cores), fitting))
    if jobs < 1:
        raise UsageError(f"--jobs {jobs}: at least 1 run at a time is needed.")
    if jobs >= len(cores):
        return [(cores[number % len(cores)],) for number in range(jobs)]
    return [cores[number::jobs] for number in range(jobs)]


def next_run(waiting: Sequence[Planned], active: Sequence[Planned]) -> Planned | None:
    """The first waiting run that would not train a pool that an active run is training."""
    in_training = {run.pool for run in active if run.pool is not None and not run.pool_is_there}
    return next((run for run in waiting if run.pool not in in_training), None)


def run_all(
    plan: Sequence[Planned], shares: Sequence[Cores], monitor: Monitor, stop: StopRequests, poll_every: float = 0.3
) -> list[Failed]:
    """Train all runs of the plan, as many at a time as there are shares of cores; those that failed are given back.

    A request to stop is passed on, and the processes get time to save. If anything else ends this function
    early, they are killed, which costs what they did since their last checkpoint.

    Raises:
        InterruptedRunError: a stop was asked for; no process is left.
    """
    waiting, free, failed = list(plan), list(shares), []
    active: list[Active] = []
    try:
        while active or (waiting and not stop.requested):
            for run in [run for run in active if run.process.poll() is not None]:
                active.remove(run)
                free.append(run.cores)
                found = _failure(run)
                failed += [found] if found is not None else []
                monitor.ended(run, found)
            while free and not stop.requested:
                chosen = next_run(waiting, [run.planned for run in active])
                if chosen is None:
                    break
                waiting.remove(chosen)
                active.append(_start(chosen, free.pop(0)))
                monitor.started(active[-1])
            if stop.requested:
                for run in active:
                    if not run.stop_sent:
                        run.process.terminate()
                        run.stop_sent = True
            monitor.update(active, waiting)
            if active:
                time.sleep(poll_every)
    finally:
        for run in active:
            run.process.kill()
            run.process.wait()
    if stop.requested:
        raise InterruptedRunError("Stopped as asked; every run has saved. Go on with the same command.")
    return failed


def last_lines(path: Path) -> list[str]:
    """The last lines of a file that are not blank; none if there is no such file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()]


def _start(planned: Planned, cores: Cores) -> Active:
    limits = {"NPROC": str(len(cores)), "OMP_NUM_THREADS": str(len(cores)), "PYTHONUNBUFFERED": "1"}
    with storage_errors(planned.output):
        planned.output.parent.mkdir(parents=True, exist_ok=True)
        output = os.open(planned.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        # In a session of its own, Ctrl-C in the terminal reaches it once, through us, and not twice.
        process = subprocess.Popen(
            planned.process_command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | limits,
            start_new_session=True,
        )
    finally:
        os.close(output)
    if hasattr(os, "sched_setaffinity"):
        # Threads started later inherit it, and the array library counts its cores by it. The process may be gone.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(process.pid, cores)
    return Active(planned, process, cores, time.monotonic())


def _failure(run: Active) -> Failed | None:
    code = run.process.returncode
    if run.stop_sent or (code == 0 and run.planned.finished):
        return None
    return Failed(run.planned, code, "\n".join(last_lines(run.planned.output)[-_TAIL_LINES:]))
