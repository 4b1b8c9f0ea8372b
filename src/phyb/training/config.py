"""config.json: what a run was started with, written once and compared when the run is gone on with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phyb.algorithms.registry import word_of
from phyb.algorithms.settings import Settings
from phyb.errors import DataError, UsageError
from phyb.fields import difference
from phyb.storage.files import json_bytes
from phyb.storage.store import FORMAT_VERSION
from phyb.training.folder import RunFolder, versions
from phyb.training.job import Job


def write_or_compare_config(job: Job) -> None:
    """Write config.json, or refuse to go on if the run in the folder was started with something else.

    Raises:
        UsageError: names every setting that differs.
    """
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
    if not job.folder.config.is_file():
        job.folder.save_json(job.folder.config.name, content)
        return
    if not job.folder.vouches(job.folder.config.name):
        _mend_config(job.folder, content)
    found = job.folder.read_config()
    same = ("task", "algorithm", "seed", "env_id", "settings")
    theirs = {key: found.get(key) for key in same}
    if theirs["algorithm"] == content["algorithm"]:  # settings of another one have nothing in common with ours
        # Settings that did not exist when the run was started have their defaults.
        theirs["settings"] = Settings.from_json(found.get("settings", {}), type(job.algorithm)).to_json()
    else:
        same = ("task", "algorithm", "seed", "env_id")
    lines = difference({key: content[key] for key in same}, {key: theirs[key] for key in same})
    if found.get("data", {}).get("fingerprint") != content["data"]["fingerprint"]:
        lines.append("data: the log differs from the one the run was started with")
    refuse_other_settings(job.folder.path, lines)
    tell_other_versions(content["versions"], found.get("versions"), job.stages.message)


def refuse_other_settings(folder: Path, lines: list[str]) -> None:
    """Raise a `UsageError` with the lines that say in what the folder's settings differ, if there are any."""
    if lines:
        raise UsageError(
            f"{folder}: was started with other settings:\n  "
            + "\n  ".join(lines)
            + "\nChoose another folder with --out, or give the settings it was started with."
        )


def tell_other_versions(ours: dict[str, Any], theirs: dict[str, Any] | None, tell: Callable[[str], None]) -> None:
    """Say that packages have changed since the folder was started, if they have."""
    changed = difference(ours, theirs or {})
    if changed:
        tell(
            "This folder was started with other versions, so that last digits may differ from an unbroken run:\n  "
            + "\n  ".join(changed)
        )


def _mend_config(folder: RunFolder, content: dict[str, Any]) -> None:
    """Restore a config.json that is not what was written, if the settings given now are the run's own."""
    entry = folder.entries.get(folder.config.name)
    if entry is not None and hashlib.sha256(json_bytes(content)).hexdigest() != entry.sha256:
        raise DataError(
            f"{folder.config}: is damaged, and the settings given now are not those the run was started with, so that "
            f"it cannot be restored. See what can still be used with: phyb doctor {folder.path}"
        )
    folder.save_json(folder.config.name, content)
