"""What a run was asked for, resolved, for every stage to read; config.json keeps it and is compared on resuming."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phyb.algorithms.base import Algorithm
from phyb.algorithms.registry import word_of
from phyb.algorithms.settings import Settings
from phyb.data.log import Log
from phyb.envs.tasks import Task, TaskChoice
from phyb.envs.termination import Termination
from phyb.errors import DataError, UsageError
from phyb.fields import difference
from phyb.interrupt import StopRequests
from phyb.storage.files import json_bytes
from phyb.storage.store import FORMAT_VERSION
from phyb.training.folder import RunFolder, versions
from phyb.training.progress import Stages


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of `Algorithm.fit`."""

    name: str
    algorithm: Algorithm[Any, Any]
    log: Log
    choice: TaskChoice
    termination: Termination
    env_id: str | None
    seed: int
    folder: RunFolder
    stages: Stages
    stop: StopRequests

    @property
    def settings(self) -> Settings:
        """Every setting."""
        return self.algorithm.settings

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
    def horizon(self) -> int:
        """The most steps of an episode."""
        return self.task.horizon if self.task is not None else int(self.log.episode_lengths().max())

    @property
    def rows_in(self) -> Path | None:
        """Where rows in learning units go while the run lasts, if the log is on disk; None keeps them in memory."""
        return self.folder.rows if self.log.on_disk else None


def write_or_compare_config(job: Job) -> None:
    """Write config.json, or refuse to go on if the run in the folder was started with something else, or cannot say."""
    content = {
        "format": FORMAT_VERSION,
        "task": job.name,
        "algorithm": word_of(type(job.algorithm)),
        "preset": job.algorithm.preset,
        "seed": job.seed,
        "env_id": job.env_id,
        "data": {
            "fingerprint": job.log.fingerprint(),
            "rows": len(job.log),
            "episodes": int(job.log.episode_ends.sum()),
            "provenance": dict(job.log.provenance),
        },
        "resolved": {
            "task": None if job.task is None else job.task.name,
            "task_by": job.choice.source,
            "discount": job.discount,
            "horizon": job.horizon,
            "termination": job.termination.name,
            "reward": job.settings.training.reward,
        },
        "settings": job.settings.to_json(),
        "versions": versions(),
    }
    folder, name = job.folder, job.folder.config.name
    if not folder.config.is_file() or not folder.vouches(name):
        entry = folder.entries.get(name) if folder.config.is_file() else None
        if entry is not None and hashlib.sha256(json_bytes(content)).hexdigest() != entry.sha256:
            raise DataError(
                f"{folder.config}: is damaged, and the settings given now are not those the run was started with, so "
                f"that it cannot be restored. See what can still be used with: phyb doctor {folder.path}"
            )
        folder.save_json(name, content)
        return
    found = folder.read_config()
    same = ["task", "algorithm", "seed", "env_id"]
    if found.get("algorithm") == content["algorithm"]:  # settings of another one have nothing in common with ours
        same.append("settings")
        # Settings that did not exist when the run was started have their defaults.
        found["settings"] = Settings.from_json(found.get("settings", {}), type(job.algorithm)).to_json()
    lines = difference({key: content[key] for key in same}, {key: found.get(key) for key in same})
    if found.get("data", {}).get("fingerprint") != content["data"]["fingerprint"]:
        lines.append("data: the log differs from the one the run was started with")
    refuse_other_settings(folder.path, lines)
    report_other_versions(content["versions"], found.get("versions"), job.stages.message)


def refuse_other_settings(folder: Path, lines: list[str]) -> None:
    """Raise a `UsageError` with the lines that say in what the folder's settings differ, if there are any."""
    if lines:
        raise UsageError(
            f"{folder}: was started with other settings:\n  "
            + "\n  ".join(lines)
            + "\nChoose another folder with --out, or give the settings it was started with."
        )


def report_other_versions(
    ours: dict[str, Any], theirs: dict[str, Any] | None, on_message: Callable[[str], None]
) -> None:
    """Say that packages have changed since the folder was started, if they have."""
    changed = difference(ours, theirs or {})
    if changed:
        on_message(
            "This folder was started with other versions, so that last digits may differ from an unbroken run:\n  "
            + "\n  ".join(changed)
        )
