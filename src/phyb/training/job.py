"""What a run was asked for, resolved: its log, task, settings and folder, for every stage to read."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from phyb.algorithms.base import Algorithm
from phyb.data.log import Log
from phyb.envs.functions import RowFunction
from phyb.envs.tasks import Task
from phyb.envs.termination import Termination
from phyb.evaluation.returns import runs_fast
from phyb.interrupt import StopRequests
from phyb.training.folder import RunFolder
from phyb.training.progress import Stages
from phyb.training.settings import Settings

# Steps imagined for one estimate of the return under the belief, and episodes of a simulator that is not vectorised:
# on the way, and at the end.
_BELIEF_STEPS, FINAL_BELIEF_STEPS = 20_000, 100_000
_SLOW_EPISODES, FINAL_SLOW_EPISODES = 20, 100


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of `phyb.train`."""

    name: str
    algorithm: Algorithm[Any, Any]
    log: Log
    task: Task | None
    termination: Termination
    reward: RowFunction | None
    env_id: str | None
    settings: Settings
    seed: int
    folder: RunFolder
    stages: Stages
    stop: StopRequests

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

    def belief_episodes(self, final: bool) -> int:
        """Imagined episodes of an evaluation: fewer where episodes are long."""
        return max(50, (FINAL_BELIEF_STEPS if final else _BELIEF_STEPS) // self.horizon)

    def episodes(self, final: bool) -> int:
        """Episodes of an evaluation: as set, but few where the simulator is slow."""
        training = self.settings.training
        asked = training.final_episodes if final else training.evaluation_episodes
        if self.env_id is None or runs_fast(self.env_id):
            return asked
        return min(asked, FINAL_SLOW_EPISODES if final else _SLOW_EPISODES)
