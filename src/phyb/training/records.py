"""Reading what a run folder says about its run; what is missing, null or of an unexpected kind is simply absent."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from phyb.envs.tasks import Task, find_task
from phyb.errors import DataError
from phyb.storage.files import parse_json, read_json

Record = Mapping[str, Any]
_RENAMED = {"doubt": "disagreement", "boldness": "trust_region_scale"}
"""Metrics of older runs, with their present names."""


@dataclasses.dataclass(frozen=True)
class RunData:
    """Everything a run folder says about its run."""

    folder: Path
    config: Record
    result: Record
    diagnostics: Record
    metrics: Mapping[str, Sequence[Record]]
    """Lines of metrics.jsonl by stage, ordered by step; of a step written twice the last one counts."""
    damaged_lines: int

    @property
    def task(self) -> Task | None:
        """What the library knows about the environment of the run."""
        return find_task(text(self.config.get("env_id"))) or find_task(self.name)

    @property
    def name(self) -> str:
        """The task as the user named it."""
        return text(self.config.get("task")) or text(self.result.get("task")) or self.folder.name

    @property
    def algorithm(self) -> str:
        """What was trained; runs that do not say so trained PhyB."""
        return text(self.config.get("algorithm")) or "phyb"

    @property
    def is_policy_search(self) -> bool:
        """Whether the run searched whole policies and learned no critics; older runs call that judge "episodes"."""
        return (
            self.algorithm == "phyb-search"
            or mapping(mapping(self.config.get("settings")).get("agent")).get("judge") == "episodes"
        )

    @property
    def has_pool(self) -> bool:
        """Whether the algorithm learns models; runs that do not say so do."""
        return mapping(self.config.get("settings")).get("pool", {}) is not None

    def stage(self, name: str) -> Sequence[Record]:
        """The metrics of one stage."""
        return self.metrics.get(name, ())

    def dimension_name(self, name: str) -> str:
        """A readable name for an output of the pool, where the task has one."""
        names = {"observation 0": "time", "observation 1": "holding", "observation 2": "price"}
        is_liquidation = self.task is not None and self.task.name == "liquidation"
        return names.get(name, name) if is_liquidation else name


def read_run(folder: str | os.PathLike[str]) -> RunData:
    """Read a run folder, which must hold something of a run; damaged JSON files are a `DataError`."""
    path = Path(folder)
    files = [path / name for name in ("config.json", "result.json", "diagnostics.json")]
    if not any(file.is_file() for file in (*files, path / "metrics.jsonl")):
        raise DataError(f"{path}: is not a run folder. Expected config.json, metrics.jsonl or result.json in it.")
    config, result, diagnostics = (mapping(read_json(file)) if file.is_file() else {} for file in files)
    metrics, damaged = _read_metrics(path / "metrics.jsonl")
    return RunData(path, config, result, diagnostics, metrics, damaged)


def _read_metrics(path: Path) -> tuple[dict[str, list[Record]], int]:
    stages: dict[str, dict[float, Record]] = {}
    damaged = 0
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    for line in filter(str.strip, lines):
        try:
            record = parse_json(line)
        except ValueError:
            damaged += 1
            continue
        step = number(record.get("step")) if isinstance(record, dict) else None
        if step is None:
            damaged += 1
            continue
        record = {_RENAMED.get(key, key): value for key, value in mapping(record).items()}
        stages.setdefault(text(record.get("stage")), {})[step] = record
    return {stage: [by_step[step] for step in sorted(by_step)] for stage, by_step in stages.items()}, damaged


def number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def numbers(value: Any) -> np.ndarray:
    """A list of numbers as an array, with NaN where one is missing; empty for anything else."""
    items = value if isinstance(value, list) else []
    return np.array([np.nan if number(item) is None else float(item) for item in items])


def mapping(value: Any) -> dict[str, Any]:
    """A JSON object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def records(value: Any) -> list[Record]:
    """The JSON objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """A string, or an empty one for anything else."""
    return value if isinstance(value, str) else ""


def series(lines: Sequence[Record], key: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of one metric, where it is a finite number."""
    found = [(float(line["step"]), value) for line in lines if (value := number(line.get(key))) is not None]
    columns = np.array(found, dtype=np.float64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


def thinned(steps: np.ndarray, values: np.ndarray, points: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """At most `points` points: means over neighbours, so that a long run stays a small picture."""
    if len(steps) <= points:
        return steps, values
    groups = np.array_split(np.arange(len(steps)), points)
    return np.array([steps[g].mean() for g in groups]), np.array([values[g].mean() for g in groups])
