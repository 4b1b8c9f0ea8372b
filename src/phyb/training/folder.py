"""The run folder: where everything a run writes has its place."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from phyb.errors import DataError
from phyb.storage.files import read_json
from phyb.storage.trees import load_tree, read_about, save_tree

State = TypeVar("State")


class RunFolder:
    """Paths of one run, and the writing of its metrics and checkpoints."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.policy = self.path / "policy"
        self.result = self.path / "result.json"
        self.diagnostics = self.path / "diagnostics.json"
        self.report = self.path / "report.html"
        self.tensorboard = self.path / "tensorboard"

    def read_config(self) -> dict[str, Any]:
        """The run's config.json; a folder without one is not a run."""
        if not self.config.is_file():
            raise DataError(
                f"{self.path}: is not a run folder (no config.json). Train one with: phyb train --out FOLDER"
            )
        return read_json(self.config)

    def save_checkpoint(self, state: Any, step: int, keep: int) -> Path:
        """Write the state and the length of the metrics file so far; drop all but the newest `keep` checkpoints."""
        length = self.metrics.stat().st_size if self.metrics.exists() else 0
        path = self.checkpoints / f"step-{step:09d}.safetensors"
        save_tree(path, state, {"step": step, "metrics_bytes": length})
        for old in self.checkpoint_files()[:-keep]:
            old.unlink()
        return path

    def checkpoint_files(self) -> list[Path]:
        """Checkpoints, oldest first."""
        return sorted(self.checkpoints.glob("step-*.safetensors"))

    def load_checkpoint(self, like: State) -> tuple[State, int] | None:
        """The newest readable checkpoint and its step; the metrics file is cut back to that moment.

        None if there is no checkpoint. A damaged one is passed over for the one before it.
        """
        damage: DataError | None = None
        for path in reversed(self.checkpoint_files()):
            try:
                state = load_tree(path, like)
                about = read_about(path)
                step, length = int(about["step"]), int(about["metrics_bytes"])
            except DataError as error:
                damage = error
                continue
            except (KeyError, TypeError, ValueError) as error:
                damage = DataError(f"{path}: does not say its step ({error}).")
                continue
            if self.metrics.exists():
                os.truncate(self.metrics, min(length, self.metrics.stat().st_size))
            return state, step
        if damage is not None:
            raise damage
        return None


class MetricsWriter:
    """Appends metrics to metrics.jsonl and, if its package is installed, to TensorBoard events."""

    def __init__(self, folder: RunFolder) -> None:
        folder.path.mkdir(parents=True, exist_ok=True)
        self._file = folder.metrics.open("a", encoding="utf-8")
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            self._events = None
        else:
            self._events = SummaryWriter(str(folder.tensorboard), write_to_disk=True)

    def write(self, stage: str, step: int, metrics: Mapping[str, Any]) -> None:
        """One line of JSON, flushed; numbers that are not finite become null."""
        plain = {name: _finite(np.asarray(value).tolist()) for name, value in metrics.items()}
        self._file.write(json.dumps({"stage": stage, "step": step, **plain}) + "\n")
        self._file.flush()
        if self._events is not None:
            for name, value in plain.items():
                if isinstance(value, int | float):
                    self._events.add_scalar(f"{stage}/{name}", value, step)

    def close(self) -> None:
        """Finish both files."""
        os.fsync(self._file.fileno())
        self._file.close()
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
