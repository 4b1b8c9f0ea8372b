"""From recorded rows to the log of one kind, with what is known about its origin."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from phyb.collection.copies import Task
from phyb.data.log import FIELDS, Log
from phyb.training.folder import versions

Kind = Literal["random", "medium", "expert", "medium-expert", "medium-replay", "full-replay"]
KINDS: tuple[Kind, ...] = ("random", "medium", "expert", "medium-expert", "medium-replay", "full-replay")
Recorded = Float[np.ndarray, "steps copies width"]


def to_log(task: Task, recorded: Sequence[Recorded], provenance: Mapping[str, Any]) -> Log:
    """The recordings one after the other, inside each copy after copy: the rows of an episode follow each other.

    An episode that goes on where its recording stops is cut: its last row is truncated. The statistics of returns in
    the provenance leave such episodes out, since what they would have earned is not known.
    """
    rows = np.concatenate([part.swapaxes(0, 1).reshape(-1, task.width) for part in recorded])
    columns = task.columns(rows)
    terminated, truncated = columns["terminated"] > 0.5, columns["truncated"] > 0.5
    lasts = np.concatenate([np.full(part.shape[1], part.shape[0]) for part in recorded]).cumsum() - 1
    cut = lasts[~(terminated | truncated)[lasts]]
    truncated[cut] = True
    columns |= {"terminated": terminated, "truncated": truncated, "actions": task.scaled(columns["actions"])}
    log = Log(
        *(np.ascontiguousarray(columns[name]) for name in FIELDS),
        action_low=task.action_low,
        action_high=task.action_high,
        env_id=task.env_id,
    )
    returns = np.delete(log.episode_returns(), log.episode_of_row[cut])
    about = {"env_id": task.env_id, "episodes": len(returns), "cut_episodes": len(cut), "returns": _summary(returns)}
    return dataclasses.replace(log, provenance={**provenance, **about, "versions": package_versions()})


def package_versions() -> dict[str, str]:
    """What the numbers of a log depend on beside its settings."""
    found = versions()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found["mujoco"] = importlib.metadata.version("mujoco")
    return found


def _summary(returns: Float[np.ndarray, " episodes"]) -> dict[str, float] | None:
    if not len(returns):
        return None
    values = {"mean": returns.mean(), "std": returns.std(), "min": returns.min(), "max": returns.max()}
    return {name: float(value) for name, value in values.items()}
