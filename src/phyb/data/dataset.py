"""The dataset on the device: the rows of a log in learning units, and what follows from them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.data.log import Log
from phyb.networks import Standardizer
from phyb.storage.mapped import on_device, write_rows

MOST_STARTS = 100_000
"""Start states kept of a log on disk: those of its first episodes."""


class Rows(NamedTuple):
    """Transitions on the device: actions in [-1, 1], rewards divided by the reward scale."""

    observations: Float[Array, "rows obs"]
    actions: Float[Array, "rows act"]
    rewards: Float[Array, " rows"]
    next_observations: Float[Array, "rows obs"]
    terminated: Float[Array, " rows"]


class Dataset(eqx.Module):
    """The rows of a log on the device, and what follows from them; it stays fixed while a policy is optimised."""

    rows: Rows
    starts: Float[Array, "episodes obs"]
    returns: Float[Array, " rows"]
    """Discounted return of each row, in learning units."""
    best_first: Int[Array, " rows"]
    """Row numbers, those of the episodes of highest return first."""
    steps_before: Int[Array, " rows"]
    """How many rows of its episode come before each row."""
    standardizer: Standardizer
    action_low: Float[Array, " act"]
    action_high: Float[Array, " act"]
    reward_scale: Float[Array, ""]
    return_range: Float[Array, ""]
    value_low: Float[Array, ""]
    value_high: Float[Array, ""]
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    @property
    def observation_size(self) -> int:
        """Numbers in one observation."""
        return self.rows.observations.shape[1]

    @property
    def action_size(self) -> int:
        """Numbers in one action."""
        return self.rows.actions.shape[1]

    def draw(self, key: PRNGKeyArray, count: int) -> Int[Array, " count"]:
        """`count` row numbers, drawn with replacement."""
        return jax.random.randint(key, (count,), 0, self.rows.rewards.shape[0])

    def take(self, chosen: Int[Array, " count"]) -> Rows:
        """The logged transitions of these row numbers."""
        return Rows(*(leaf[chosen] for leaf in self.rows))

    def sample(self, key: PRNGKeyArray, count: int) -> Rows:
        """`count` logged transitions, drawn with replacement."""
        return self.take(self.draw(key, count))


def make_dataset(log: Log, *, discount: float, horizon: int, rows_in: Path | None = None) -> Dataset:
    """Put a log into learning units, on the device.

    Rewards are divided by their range and never shifted: a shift would pay for staying alive. Values are bounded by
    what the rewards allow: `H min(r, 0)` to `H max(r, 0)` with `H = 1 / (1 - gamma)`, or the horizon if that is less.

    Args:
        log: the transitions.
        discount: gamma.
        horizon: the most steps an episode can take.
        rows_in: a folder for the rows of a log that is on disk; None keeps them in memory. The dataset is the same, but
            for its start states if there are more than `MOST_STARTS`.
    """
    spread = float(np.ptp(log.rewards)) or max(abs(float(log.rewards[0])), 1.0)
    steps = min(horizon, 1.0 / (1.0 - discount)) if discount < 1 else float(horizon)
    first_rows = np.concatenate([[0], np.flatnonzero(log.episode_ends[:-1]) + 1])
    rows = _learning_units(log, spread, rows_in)
    starts = first_rows if rows_in is None else first_rows[:MOST_STARTS]
    return Dataset(
        rows,
        rows.observations[starts],
        jnp.asarray(discounted_returns(log, discount, horizon) / spread, jnp.float32),
        jnp.asarray(np.argsort(-log.episode_returns()[log.episode_of_row], kind="stable"), jnp.int32),
        jnp.asarray(log.steps_before()),
        Standardizer.fit(rows.observations),
        jnp.asarray(log.action_low, jnp.float32),
        jnp.asarray(log.action_high, jnp.float32),
        jnp.asarray(spread, jnp.float32),
        jnp.asarray(float(np.ptp(log.episode_returns())) / spread or 1.0, jnp.float32),
        # Division keeps the order of numbers: these are the extremes of the divided rewards.
        jnp.asarray(steps * min(float(log.rewards.min() / spread), 0.0), jnp.float32),
        jnp.asarray(steps * max(float(log.rewards.max() / spread), 0.0), jnp.float32),
        discount,
        horizon,
    )


def discounted_returns(log: Log, discount: float, horizon: int) -> Float[np.ndarray, " rows"]:
    """`G_t = r_t + gamma G_{t+1}` along each episode.

    A terminated episode ends with nothing more to come. One that was cut off is taken to go on with its mean reward up
    to the horizon.
    """
    found, first = np.empty(len(log)), 0
    for end in np.flatnonzero(log.episode_ends).tolist():
        rewards = log.rewards[first : end + 1].astype(np.float64)
        left = 0 if log.terminated[end] else max(horizon - len(rewards), 0)
        after = float(rewards.mean()) * (left if discount == 1 else (1.0 - discount**left) / (1.0 - discount))
        backwards = itertools.accumulate(rewards[::-1].tolist(), lambda g, r: r + discount * g, initial=after)
        found[first : end + 1] = list(backwards)[:0:-1]
        first = end + 1
    return found


def _learning_units(log: Log, spread: float, rows_in: Path | None) -> Rows:
    """The rows of a log for the device, in memory, or in files that it reads."""
    makers: dict[str, Callable[[slice], np.ndarray]] = {
        "observations": lambda rows: log.observations[rows],
        "actions": lambda rows: 2.0 * (log.actions[rows] - log.action_low) / (log.action_high - log.action_low) - 1.0,
        "rewards": lambda rows: log.rewards[rows] / spread,
        "next_observations": lambda rows: log.next_observations[rows],
        "terminated": lambda rows: log.terminated[rows],
    }

    def put(name: str, make: Callable[[slice], np.ndarray]) -> Array:
        array = getattr(log, name)
        if rows_in is None:
            return jnp.asarray(make(slice(None)), jnp.float32)
        if name.endswith("observations") and array.dtype == np.float32 and isinstance(array, np.memmap):
            return on_device(array)
        return on_device(write_rows(rows_in / name, array.shape, np.float32, make))

    return Rows(*(put(name, make) for name, make in makers.items()))
