"""What a run was asked for, resolved: its log, task, settings and folder, for every stage to read."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from phyb.algorithms.base import Algorithm
from phyb.algorithms.settings import Settings
from phyb.data.log import Log
from phyb.envs.functions import RowFunction
from phyb.envs.tasks import Task, TaskChoice
from phyb.envs.termination import Termination
from phyb.interrupt import StopRequests
from phyb.training.folder import RunFolder
from phyb.training.progress import Stages


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of `Algorithm.fit`."""

    name: str
    algorithm: Algorithm[Any, Any]
    log: Log
    choice: TaskChoice
    termination: Termination
    reward: RowFunction | None
    env_id: str | None
    settings: Settings
    seed: int
    folder: RunFolder
    stages: Stages
    stop: StopRequests

    @property
    def task(self) -> Task | None:
        """What the library knows about the environment."""
        return self.choice.task

    @property
    def discount(self) -> float:
        """gamma: as set, else what suits the task."""
        chosen = self.settings.training.discount
        return chosen if chosen is not None else self.task.discount if self.task is not None else 0.99

    @property
    def rows_in(self) -> Path | None:
        """Where rows in learning units go while the run lasts, if the log is on disk; None keeps them in memory."""
        return self.folder.rows if self.log.on_disk else None

    @functools.cached_property
    def horizon(self) -> int:
        """The most steps of an episode."""
        return self.task.horizon if self.task is not None else int(self.log.episode_lengths().max())
