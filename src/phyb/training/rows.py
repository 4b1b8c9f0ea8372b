"""The log of a run: opened, with the rewards asked for, its rows in memory or on disk if they would not fit."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from phyb.algorithms.base import Algorithm
from phyb.data.collect import collect_liquidation
from phyb.data.disk import log_on_disk, put_on_disk
from phyb.data.files import LogFiles, load_log, log_files, log_header
from phyb.data.formats import LogHeader, names_log
from phyb.data.log import Log
from phyb.envs import rewards
from phyb.envs.liquidation import ENV_ID
from phyb.envs.tasks import Task
from phyb.envs.termination import Termination, compare, resolve
from phyb.errors import UsageError
from phyb.training.memory import available, check, estimate, line
from phyb.training.progress import Stages

RowsIn = Literal["auto", "memory", "disk"]
BUILT_IN = "liquidation"
"""The task whose log is collected when it is asked for."""


def log_origin(data: LogFiles | Log) -> tuple[str | None, str | None]:
    """The env_id and the kind or data set that a log itself records; no row is read, and no file name counts."""
    if isinstance(data, Log):
        kind = data.provenance.get("kind")
        return data.env_id, kind if isinstance(kind, str) else None
    if str(data) == BUILT_IN:
        return ENV_ID, None
    words = [data] if isinstance(data, str | os.PathLike) else data
    named = all(names_log(str(word)) or os.path.isdir(word) for word in words)
    header = log_header(data) if named else None
    return (None, None) if header is None else (header.env_id, header.dataset)


def open_log(
    data: LogFiles | Log,
    algorithm: Algorithm[Any, Any],
    seed: int,
    rows_in: RowsIn,
    cache: Path,
    waiting: Callable[[str], None] = lambda reason: None,
) -> Log:
    """The log of a built-in task, of files or as it is given."""
    if isinstance(data, Log):
        return data
    if str(data) == BUILT_IN:
        return collect_liquidation(algorithm.settings.training.transitions, seed)
    for word in [data] if isinstance(data, str | os.PathLike) else data:
        if not Path(word).suffix and not Path(word).exists() and not str(word).startswith("minari:"):
            raise UsageError(
                f"{word}: there is no such task or file. Built-in tasks: {BUILT_IN}, which stands alone. "
                "Or give log files (.hdf5 in D4RL layout, .npz, .csv, .parquet), a folder of them, or minari:ID."
            )
    log, files = load_rows(data, rows_in, algorithm, cache, waiting), log_files(data)
    return dataclasses.replace(log, provenance={**log.provenance, "path": files[0] if len(files) == 1 else files})


def with_rewards(log: Log, reward: str, warn: Callable[[str], None] = lambda text: None) -> Log:
    """The log with the rewards of a user's function, so that log, values and imagination speak of one reward.

    `reward` is "learned", which leaves the log as it is, or package.module:function.
    """
    function = rewards.resolve(reward)
    if function is None:
        return log
    found = rewards.on_logged_rows(function, reward, log.observations, log.actions, log.next_observations)
    off = np.abs(found - log.rewards)
    differ = int(np.sum(off > 1e-3 * (float(np.ptp(log.rewards)) or 1.0)))
    if differ:
        warn(
            f"the reward {reward} differs from the log's on {differ:,} of {len(log):,} rows, by up to {off.max():.4g}. "
            "Training follows the function; simulators pay their own reward all the same."
        )
    return dataclasses.replace(log, rewards=found)


def choose_termination(
    log: Log, word: str, task: Task | None, warn: Callable[[str], None] = lambda text: None
) -> Termination:
    """How imagined episodes end, after a rule has been tried on the log; warns where the two differ.

    A log without a terminated row teaches no ends: what would be learned is then "none".
    """
    termination = resolve(word, task)
    if termination.rule == "learned" and not log.terminated.any():
        return Termination("none", "none")
    differ = compare(termination, log.observations, log.actions, log.next_observations, log.terminated)
    if differ:
        warn(
            f"the termination rule {termination.name} disagrees with the log on "
            f"{differ.rule_only + differ.log_only:,} of {len(log):,} rows: it ends {differ.rule_only:,} rows that went "
            f"on, and lets {differ.log_only:,} of {int(log.terminated.sum()):,} terminated rows go on. Imagined "
            "episodes will end by the rule. If the log is right, choose another rule, or --termination learned."
        )
    return termination


def load_rows(
    path: LogFiles,
    rows_in: RowsIn,
    algorithm: Algorithm[Any, Any],
    cache: Path,
    waiting: Callable[[str], None],
) -> Log:
    """The log of files. On disk, its numbers are kept below `cache`, for all runs on the same files."""
    header = None if rows_in == "disk" else log_header(path)
    if rows_in == "disk" or (rows_in == "auto" and header is not None and _is_too_large(header, algorithm)):
        return log_on_disk(path, cache / "rows", waiting=waiting)
    if header is not None:
        check(estimate(header, algorithm, on_disk=False), available(), on_disk=False)
    return load_log(path)


def move_rows(log: Log, rows_in: RowsIn, algorithm: Algorithm[Any, Any], folder: Path) -> Log:
    """A log that came whole into memory, moved to disk below the run's `folder` if that is asked for or needed."""
    if log.on_disk or rows_in == "memory" or (rows_in == "auto" and not _is_too_large(log, algorithm)):
        return log
    folder.joinpath("log").mkdir(parents=True, exist_ok=True)
    return put_on_disk(log, folder / "log")


def show_memory(log: Log, algorithm: Algorithm[Any, Any], stages: Stages) -> None:
    """Say what the run will need beside what the machine has, and warn or refuse if that may be too much."""
    need, free = estimate(log, algorithm, on_disk=log.on_disk), available()
    where = "rows on disk, " if log.on_disk else ""
    stages.console.print(f"  {where}{line(need, free)}", style="dim", highlight=False, soft_wrap=True)
    warning = check(need, free, on_disk=log.on_disk)
    if warning is not None:
        stages.warn(warning)


def _is_too_large(log: Log | LogHeader, algorithm: Algorithm[Any, Any]) -> bool:
    free = available()
    return free is not None and estimate(log, algorithm, on_disk=False).total > free
