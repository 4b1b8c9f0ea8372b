"""What an algorithm is given: the dataset on the device and, for model-based ones, the learned environment."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from phyb.data.dataset import Dataset, make_dataset
from phyb.data.log import Log
from phyb.dynamics.pool import Pool, Prediction
from phyb.networks import Value
from phyb.storage.mapped import column_range
from phyb.world.model import RewardRule, Termination, WorldModel


class Problem(Dataset):
    """Everything that stays fixed while a policy is optimised."""

    world: WorldModel | None
    """None for model-free algorithms."""
    cached_predictions: Prediction | None
    """What every member predicts on every logged row: the pool is frozen, so that once is enough. None asks again."""

    def predictions_on(self, chosen: Int[Array, " count"]) -> Prediction | None:
        """The cached predictions of all members on these rows, if there are any."""
        return jax.tree.map(lambda leaf: leaf[:, chosen], self.cached_predictions)

    def learned_world(self) -> WorldModel:
        """The learned environment, which is there if the algorithm asked for a pool."""
        assert self.world is not None, "this algorithm needs a pool"
        return self.world

    def bounded(self, value: Value) -> Value:
        """From a value of standardised observations to one of raw ones, within what the rewards allow."""
        return lambda observations: jnp.clip(value(self.standardizer(observations)), self.value_low, self.value_high)


def make_problem(
    log: Log,
    pool: Pool | None,
    *,
    discount: float,
    horizon: int,
    termination: Termination = "learned",
    reward: RewardRule | None = None,
    rows_in: Path | None = None,
) -> Problem:
    """Put a log and a pool into learning units.

    Args:
        log: the transitions.
        pool: the models learned from it; None for model-free algorithms.
        discount: gamma.
        horizon: the most steps an episode can take.
        termination: a rule on (observation, action, next observation), or "learned" or "none". A log without a
            terminated row teaches no ends.
        reward: a function of the same that gives the reward of a step; None takes what the pool learned.
        rows_in: a folder for the rows of a log that is on disk, see `make_dataset`.
    """
    dataset = make_dataset(log, discount=discount, horizon=horizon, rows_in=rows_in)
    world = None
    if termination == "learned" and not log.terminated.any():
        termination = "none"  # no model of the pool has learned an end
    if pool is not None:
        here, there = column_range(log.observations), column_range(log.next_observations)
        low, high = np.minimum(here[0], there[0]), np.maximum(here[1], there[1])
        world = WorldModel(
            pool,
            dataset.action_low,
            dataset.action_high,
            dataset.reward_scale,
            jnp.asarray(0.5 * (low + high)),
            jnp.asarray(high - low),
            dataset.value_low,
            termination,
            reward,
        )
    fields = {field.name: getattr(dataset, field.name) for field in dataclasses.fields(dataset)}
    return Problem(**fields, world=world, cached_predictions=None)


def prediction_bytes(problem: Problem) -> int:
    """Memory that `cache_predictions` would take."""
    numbers = 2 * problem.observation_size + 3
    return 4 * problem.learned_world().pool.size * problem.rows.rewards.shape[0] * numbers


def cache_predictions(problem: Problem, block: int = 4096) -> Problem:
    """The problem with all that the pool predicts on logged rows, asked in blocks of rows."""
    world, rows = problem.learned_world(), problem.rows
    members = jnp.arange(world.pool.size)

    @jax.jit
    def predict(observations: Array, actions: Array) -> Prediction:
        return world.predict(members, observations, actions)

    count = rows.rewards.shape[0]
    parts = [predict(rows.observations[i : i + block], rows.actions[i : i + block]) for i in range(0, count, block)]
    joined = jax.tree.map(lambda *blocks: jnp.concatenate(blocks, axis=1), *parts)
    return dataclasses.replace(problem, cached_predictions=joined)
