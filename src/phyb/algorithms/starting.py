"""The policy that improvement starts from: a clone of the log, or of its better part."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from jaxtyping import Array, Int, PRNGKeyArray

from phyb.algorithms.problem import Problem
from phyb.fields import OpenFraction, Share, Whole, not_if
from phyb.policy.actor import LARGEST_ACTION, Actor
from phyb.policy.cloning import clone


@dataclasses.dataclass(frozen=True)
class CloneConfig:
    """Settings of the behaviour cloning that comes first."""

    clone_steps: Whole = 2000
    """Steps of behaviour cloning before anything else. 0 starts from a random policy."""
    clone_best: Share = 1.0
    """Share of the log's rows to clone, those of the episodes of highest return. Lower it where the log comes from
    several agents of different skill, whose actions one Gaussian can only average; 1 clones all of them."""
    clone_censored: Annotated[bool, not_if("clone_steps", 0)] = False
    """What cloning takes from logged actions beyond `largest_action`. Off: that they are `largest_action`; on: only
    that the draw lay beyond it. On fits the controllers of most logs, which draw from a Gaussian and clip; the clone's
    mean may then lie beyond the bounds, as theirs did."""
    largest_action: OpenFraction = LARGEST_ACTION
    """Logged actions beyond this share of their bounds count as this share. Lower it, to 0.95 or so, where the log's
    actions often lie at the bounds: before the tanh those are far away, and a Gaussian fitted to them is all noise."""


def rows_to_clone(problem: Problem, config: CloneConfig) -> Int[Array, " some"] | None:
    """Numbers of the rows that are cloned, those of the best episodes; None for all rows."""
    share, rows = config.clone_best, problem.best_first
    return None if share == 1.0 else rows[: max(1, round(share * rows.shape[0]))]


def clone_log(key: PRNGKeyArray, actor: Actor, problem: Problem, config: CloneConfig, batch_size: int) -> Actor:
    """The actor after behaviour cloning by these settings."""
    if not config.clone_steps:
        return actor
    return clone(
        key,
        actor,
        problem.rows.observations,
        problem.rows.actions,
        steps=config.clone_steps,
        learning_rate=1e-3,
        batch_size=batch_size,
        standardizer=problem.standardizer,
        largest_action=config.largest_action,
        censored=config.clone_censored,
        only=rows_to_clone(problem, config),
    )
