"""The run folder: where everything a run writes has its place, and what of it can be believed."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax

from phyb.dynamics.fit import POOL_FILES
from phyb.errors import DataError
from phyb.storage.files import read_json, remove_leftovers
from phyb.storage.store import FORMAT_VERSION, Store, check_format

State = TypeVar("State")
POLICY_FILES = ("policy/policy.json", "policy/policy.safetensors")


class RunFolder(Store):
    """Paths of one run, its config and its checkpoints."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.config = self.path / "config.json"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.policy = self.path / "policy"
        self.result = self.path / "result.json"
        self.diagnostics = self.path / "diagnostics.json"
        self.timing = self.path / "timing.json"
        self.report = self.path / "report.html"
        self.tensorboard = self.path / "tensorboard"
        self.rows = self.path / "rows"

    @property
    def finished(self) -> bool:
        """Whether the run is done: result and policy, and diagnostics if there are any, are as they were written."""
        diagnostics = {"diagnostics.json"} & self.entries.keys()
        return self.vouches("result.json", *diagnostics, *POLICY_FILES)

    def read_config(self) -> dict[str, Any]:
        """The run's config.json; a folder without one is not a run."""
        if not self.config.is_file():
            raise DataError(
                f"{self.path}: is not a run folder (no config.json). Train one with: phyb train --out FOLDER"
            )
        config = read_json(self.config)
        if not isinstance(config, dict):
            raise DataError(f"{self.config}: is not the config of a run.")
        check_format(config.get("format"), self.config)
        return config

    def open(self) -> None:
        """Begin to write, or go on if that can be: make the manifest, remove what a killed process left half-done."""
        if self.manifest.exists():
            _ = self.entries  # refuses a manifest that cannot be used
            written = read_json(self.manifest)["format"]
        else:
            written = self.read_config()["format"] if self.config.is_file() else FORMAT_VERSION
        if written < FORMAT_VERSION:
            raise DataError(
                f"{self.path}: was written by an earlier version of phyb, with which this one cannot go on. It can be "
                "used with phyb evaluate and phyb report; to train, start again with another --out."
            )
        if self.config.is_file() and not self.manifest.exists():
            raise DataError(f"{self.path}: its manifest is gone. See what is left with: phyb doctor {self.path}")
        self.start()
        remove_leftovers(self.path)
        for path in (*self.checkpoint_files(), *sorted((self.path / POOL_FILES).glob("*.safetensors"))):
            name = path.relative_to(self.path).as_posix()
            if name not in self.entries:
                self.drop(name)

    def save_checkpoint(
        self, state: Any, about: Mapping[str, Any], *, scheduled: bool = True, keep: int = 1, keep_best: int = 0
    ) -> Path:
        """Write a checkpoint, then drop those that are not to be kept.

        Kept are the newest `keep` scheduled ones and the `keep_best` with the highest `about["score"]`. One that is
        not scheduled, made because a run was stopped, lives until the next: a run that was stopped and continued ends
        with the same checkpoints as one that was not.
        """
        name = f"checkpoints/step-{about['step']:09d}.safetensors"
        self.save_tree(name, state, {**about, "scheduled": scheduled})
        self.prune_checkpoints(name, keep, keep_best)
        return self.path / name

    def prune_checkpoints(self, current: str, keep: int, keep_best: int) -> None:
        """Drop the checkpoints that are not to be kept beside the current one."""
        notes = {name: self.about(name) or {} for name in self._checkpoint_names()}
        regular = [name for name, note in notes.items() if note.get("scheduled")]
        best = sorted(
            (name for name in regular if notes[name].get("score") is not None),
            key=lambda name: (-notes[name]["score"], name),
        )
        kept = {current, *regular[-keep:], *best[:keep_best]} if current in regular else {current, *regular}
        outdated = [name for name in notes if name not in kept]
        self.drop(*outdated)

    def checkpoint_files(self) -> list[Path]:
        """Checkpoints, oldest first."""
        return sorted(self.checkpoints.glob("step-*.safetensors"))

    def _checkpoint_names(self) -> list[str]:
        return sorted(name for name in self.entries if name.startswith("checkpoints/step-"))

    def newest_checkpoint(self) -> tuple[str, dict[str, Any]] | None:
        """Name and note of the newest checkpoint that is as it was written; damaged ones are passed over."""
        for name in reversed(self._checkpoint_names()):
            about = self.about(name)
            if about is not None:
                return name, about
        return None

    def damaged_checkpoints(self) -> list[str]:
        """Checkpoints that the manifest lists and that are not, or not any more, as it says."""
        return [name for name in self._checkpoint_names() if not self.vouches(name)]


def versions() -> dict[str, str]:
    """What the numbers of a run depend on beside its settings."""
    packages = ("phyb", "jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium")
    found = {name: importlib.metadata.version(name) for name in packages}
    device = jax.devices()[0]
    return found | {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": f"{device.platform} ({device.device_kind}), {os.cpu_count()} cores",
    }
