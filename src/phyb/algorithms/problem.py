"""The problem an algorithm solves: the log on the device, in learning units, and the frozen world learned from it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.belief.backup import RewardRule, TerminationRule, World
from phyb.data.log import Log
from phyb.dynamics.pool import Pool, Prediction
from phyb.networks import Standardizer
from phyb.storage.mapped import column_range, on_device, write_rows

MOST_STARTS = 100_000
"""Start states kept of a log on disk: those of its first episodes."""


class Rows(NamedTuple):
    """Transitions on the device: actions in [-1, 1], rewards divided by the reward scale."""

    observations: Float[Array, "rows obs"]
    actions: Float[Array, "rows act"]
    rewards: Float[Array, " rows"]
    next_observations: Float[Array, "rows obs"]
    terminated: Float[Array, " rows"]


class Problem(eqx.Module):
    """Everything that stays fixed while a policy is optimised."""

    rows: Rows
    starts: Float[Array, "episodes obs"]
    returns: Float[Array, " rows"]
    """What was earned from each row on, discounted, in learning units."""
    best_first: Int[Array, " rows"]
    """Row numbers, those of the episodes of highest return first."""
    standardizer: Standardizer
    action_low: Float[Array, " act"]
    action_high: Float[Array, " act"]
    reward_scale: Float[Array, ""]
    return_range: Float[Array, ""]
    value_low: Float[Array, ""]
    value_high: Float[Array, ""]
    world: World | None
    remembered: Prediction | None
    """What every member predicts on every logged row: the pool is frozen, so that once is enough. None asks again."""
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

    def recall(self, chosen: Int[Array, " count"]) -> Prediction | None:
        """What all members predict on these rows, if it is remembered."""
        return None if self.remembered is None else jax.tree.map(lambda leaf: leaf[:, chosen], self.remembered)


def make_problem(
    log: Log,
    pool: Pool | None,
    *,
    discount: float,
    horizon: int,
    termination: TerminationRule | str = "learned",
    reward: RewardRule | None = None,
    rows_in: Path | None = None,
) -> Problem:
    """Put a log and a pool into learning units.

    Rewards are divided by their range and never shifted: a shift would pay for staying alive. Values are bounded by
    what the rewards allow: `H min(r, 0)` to `H max(r, 0)` with `H = 1 / (1 - gamma)`, or the horizon if that is less.

    Args:
        log: the transitions.
        pool: the models learned from it; None for model-free algorithms.
        discount: gamma.
        horizon: the most steps an episode can take.
        termination: a rule on (observation, action, next observation), or "learned" or "none".
        reward: a function of the same that gives what a step earns; None takes what the pool learned.
        rows_in: a folder for the rows of a log that is on disk; None keeps them in memory. The problem is the same, but
            for its start states if there are more than `MOST_STARTS`.
    """
    spread = float(np.ptp(log.rewards)) or max(abs(float(log.rewards[0])), 1.0)
    steps = min(horizon, 1.0 / (1.0 - discount)) if discount < 1 else float(horizon)
    low, high = (jnp.asarray(log.action_low, jnp.float32), jnp.asarray(log.action_high, jnp.float32))
    # Division keeps the order of numbers: these are the extremes of the divided rewards.
    value_low = jnp.asarray(steps * min(float(log.rewards.min() / spread), 0.0), jnp.float32)
    value_high = jnp.asarray(steps * max(float(log.rewards.max() / spread), 0.0), jnp.float32)
    scale = jnp.asarray(spread, jnp.float32)
    first_rows = np.concatenate([[0], np.flatnonzero(log.episode_ends[:-1]) + 1])
    world = None
    if pool is not None:
        here, there = column_range(log.observations), column_range(log.next_observations)
        least, most = np.minimum(here[0], there[0]), np.maximum(here[1], there[1])
        middle, width = jnp.asarray(0.5 * (least + most)), jnp.asarray(most - least)
        world = World(pool, low, high, scale, middle, width, value_low, termination, reward)  # pyright: ignore[reportArgumentType]
    rows = _learning_units(log, spread, rows_in)
    starts = first_rows if rows_in is None else first_rows[:MOST_STARTS]
    return Problem(
        rows,
        rows.observations[starts],
        jnp.asarray(discounted_returns(log, discount, horizon) / spread, jnp.float32),
        jnp.asarray(np.argsort(-log.episode_returns()[log.episode_of_row], kind="stable"), jnp.int32),
        Standardizer.fit(rows.observations),
        low,
        high,
        scale,
        jnp.asarray(float(np.ptp(log.episode_returns())) / spread or 1.0, jnp.float32),
        value_low,
        value_high,
        world,
        None,
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


def prediction_bytes(problem: Problem) -> int:
    """Memory that `remember` would take."""
    assert problem.world is not None, "there is no pool to remember"
    numbers = 2 * problem.observation_size + 3
    return 4 * problem.world.pool.size * problem.rows.rewards.shape[0] * numbers


def remember(problem: Problem, block: int = 4096) -> Problem:
    """The problem with all that the pool says about logged rows, asked in blocks of rows."""
    assert problem.world is not None, "there is no pool to remember"
    world, rows = problem.world, problem.rows
    members = jnp.arange(world.pool.size)

    @jax.jit
    def ask(observations: Array, actions: Array) -> Prediction:
        return world.pool.predict(members, observations, world.env_action(actions))

    count = rows.rewards.shape[0]
    told = [ask(rows.observations[i : i + block], rows.actions[i : i + block]) for i in range(0, count, block)]
    joined = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *told)
    return dataclasses.replace(problem, remembered=joined)


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
