"""The ground that a run knows: where its data lies, and what its models say about single rows."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from phyb.data.log import Log
from phyb.dynamics.pool import Pool
from phyb.dynamics.rows import split_rows
from phyb.errors import UsageError
from phyb.training.run import Run
from phyb.world.probe import ask

HOLDOUT_WITHOUT_POOL = 0.2
"""Share of the episodes that runs without models are compared with; the range of the data is that of the others."""
MOST_ROWS = 50_000
"""Rows looked at on either side; of longer logs whole episodes are drawn."""
FARTHEST = 5.0
"""Standardised numbers beyond it count as it."""

Topic = Literal["range", "disagreement", "errors", "behaviour"]


class Feature(NamedTuple):
    """A number that every row has, and the direction in which it may not differ."""

    topic: Topic
    name: str
    upwards: bool
    """Only a higher mean is a sign; else either direction is."""


class Measured(NamedTuple):
    """The features of rows, and the episode that each row belongs to."""

    features: list[Feature]
    values: Float[np.ndarray, "rows features"]
    episode: Int[np.ndarray, " rows"]


@dataclasses.dataclass(frozen=True, eq=False)
class Ground:
    """What of a log a run was trained on, what was held out, and the models if there are any."""

    log: Log
    training: Int[np.ndarray, " rows"]
    holdout: Int[np.ndarray, " rows"]
    low: Float[np.ndarray, " obs"]
    """Lowest observation of the rows that were trained on, column by column."""
    high: Float[np.ndarray, " obs"]
    pool: Pool | None

    @classmethod
    def of_run(cls, run: Run) -> Ground:
        """That of a finished run; its pool is found in the cache, or trained again."""
        config = run.settings.pool
        share = HOLDOUT_WITHOUT_POOL if config is None else config.holdout_fraction
        return cls.of(run.log, split_rows(run.log, share, run.seed), run.pool)

    @classmethod
    def of(cls, log: Log, split: tuple[np.ndarray, np.ndarray], pool: Pool | None) -> Ground:
        """That of a log, rows for training and for hold-out, and models."""
        seen = log.observations[split[0]]
        return cls(log, *split, seen.min(axis=0), seen.max(axis=0), pool)

    def outside(self, observations: Float[np.ndarray, "rows obs"]) -> Bool[np.ndarray, " rows"]:
        """Whether any number of a row lies outside the range of the training rows."""
        return np.any((observations < self.low) | (observations > self.high), axis=-1)

    def holdout_disagreement(self) -> Float[np.ndarray, " rows"]:
        """The models' disagreement on hold-out rows, sorted: what is usual on the log. At most `MOST_ROWS` rows."""
        assert self.pool is not None, "there are no models"
        rows = whole_episodes(self.log, self.holdout)
        return np.sort(disagreement(self.pool, self.log.observations[rows], self.log.actions[rows]))

    def measure(self, log: Log, rows: Int[np.ndarray, " rows"] | None = None) -> Measured:
        """The features of rows of a log, its own or another one; None takes whole episodes, up to `MOST_ROWS` rows.

        - range: whether the observation lies outside the range of the data;
        - disagreement: the log of the models' disagreement;
        - errors: for each predicted number the level F(y) - 1/2 of the outcome in the predicted distribution, which is
          uniform where the models are calibrated, and its absolute value;
        - behaviour: standardised observations, actions and rewards, and their squares.
        """
        rows = whole_episodes(log, np.arange(len(log))) if rows is None else rows
        observations, actions, rewards = log.observations[rows], log.actions[rows], log.rewards[rows]
        found = [(Feature("range", "outside the data", True), self.outside(observations))]
        if self.pool is not None:
            sizes = np.log(disagreement(self.pool, observations, actions) + 1e-12)
            found.append((Feature("disagreement", "disagreement of the models", True), sizes))
            names = [*self.log.names("observations"), "reward"]
            levels = self._levels(log, rows) - 0.5
            for column in np.flatnonzero(np.asarray(self.pool.outputs.scale) > 0):
                found.append((Feature("errors", f"prediction of {names[column]}", False), levels[:, column]))
                found.append((Feature("errors", f"error of {names[column]}", True), np.abs(levels[:, column])))
        mean, std = self._units
        columns = [*self.log.names("observations"), *self.log.names("actions"), "reward"]
        numbers = np.concatenate([observations, actions, rewards[:, None]], axis=1)
        standard = np.clip((numbers - mean) / np.where(std > 0, std, 1.0), -FARTHEST, FARTHEST)
        for column in np.flatnonzero(std > 0):
            found.append((Feature("behaviour", columns[column], False), standard[:, column]))
            found.append((Feature("behaviour", f"spread of {columns[column]}", False), standard[:, column] ** 2))
        features, values = zip(*found, strict=True)
        return Measured(list(features), np.stack(values, axis=1).astype(np.float64), log.episode_of_row[rows])

    @property
    def _units(self) -> tuple[np.ndarray, np.ndarray]:
        rows = whole_episodes(self.log, self.training)
        parts = (self.log.observations[rows], self.log.actions[rows], self.log.rewards[rows, None])
        numbers = np.concatenate(parts, axis=1).astype(np.float64)
        std = numbers.std(axis=0)
        return numbers.mean(axis=0), np.where(std > 1e-6 * np.maximum(1.0, np.abs(numbers).max(axis=0)), std, 0.0)

    def _levels(self, log: Log, rows: np.ndarray) -> Float[np.ndarray, "rows out"]:
        assert self.pool is not None
        outcomes = np.concatenate([log.next_observations[rows], log.rewards[rows, None]], axis=1)
        floor = 1e-6 * np.abs(outcomes).max(axis=0) + 1e-30
        given = (
            log.observations[rows],
            log.actions[rows],
            outcomes,
            np.zeros((len(rows), log.observation_size)),
            floor,
        )
        asked = (jnp.asarray(part, jnp.float32) for part in given)
        return np.asarray(ask(self.pool, *asked, termination="none").level, np.float64)


def whole_episodes(log: Log, rows: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " some"]:
    """Those rows, or of more than `MOST_ROWS` those of episodes drawn at random."""
    if len(rows) <= MOST_ROWS:
        return rows
    episode = log.episode_of_row[rows]
    present, sizes = np.unique(episode, return_counts=True)
    order = np.random.default_rng(0).permutation(len(present))
    kept = order[: max(1, int(np.searchsorted(np.cumsum(sizes[order]), MOST_ROWS)))]
    return rows[np.isin(episode, present[kept])][:MOST_ROWS]


def disagreement(
    pool: Pool, observations: Float[np.ndarray, "rows obs"], actions: Float[np.ndarray, "rows act"]
) -> Float[np.ndarray, " rows"]:
    """How far the members' predictions lie apart on each row,

        sqrt(mean_j std_i(mean_ij / scale_j)^2),

    over members i and the predicted numbers j that change in the log, in units of their standard deviation there.
    """
    count = len(observations)
    size = 1 << max(0, count - 1).bit_length() if count < _BLOCK else _BLOCK  # few shapes, few compilations
    parts = []
    for first in range(0, count, size):
        block = (np.asarray(rows[first : first + size], np.float32) for rows in (observations, actions))
        padded = (np.pad(rows, ((0, size - len(rows)), (0, 0))) for rows in block)
        parts.append(np.asarray(_spread(pool, *map(jnp.asarray, padded)))[: count - first])
    return np.concatenate(parts)


_BLOCK = 512


@eqx.filter_jit
def _spread(pool: Pool, observations: Array, actions: Array) -> Array:
    means = pool.heads(jnp.arange(pool.size), observations, actions).mean
    moves = pool.outputs.scale > 0
    squares = jnp.where(moves, jnp.var(means, axis=0), 0.0)
    return jnp.sqrt(jnp.sum(squares, axis=-1) / jnp.maximum(jnp.sum(moves), 1))


def check_sizes(ground: Ground, log: Log, source: str) -> None:
    """Refuse a log of another task than the run's.

    Raises:
        UsageError: observations or actions have another size.
    """
    for what in ("observation_size", "action_size"):
        ours, theirs = getattr(ground.log, what), getattr(log, what)
        if ours != theirs:
            word = what.removesuffix("_size")
            raise UsageError(f"{source}: its {word}s have {theirs} numbers, those of the run's log {ours}.")
