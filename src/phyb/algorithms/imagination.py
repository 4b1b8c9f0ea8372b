"""Asking the belief about a problem's states and actions, in learning units, and what its answers show."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.algorithms.problem import Problem
from phyb.belief.backup import Belief, BeliefConfig, Value, believe, draw, member_backups
from phyb.belief.weights import ranks
from phyb.dynamics.pool import Prediction
from phyb.world.model import Imagined, imagine, successor_noise


def belief_step(
    key: PRNGKeyArray,
    config: BeliefConfig,
    value: Value,
    problem: Problem,
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows act"],
    *,
    rank_value: Value | None = None,
    predictions: Prediction | None = None,
) -> tuple[Imagined, Belief]:
    """Ask a fresh draw of models about (state, action) rows and weigh what they say.

    `value` maps standardised observations to values; `rank_value`, if given, ranks and weighs the members instead.
    `predictions` are what all members predict on these rows, where they are known already.
    """
    world = problem.world
    assert world is not None, "this algorithm needs a pool"
    key_draw, key_noise, key_weights = jax.random.split(key, 3)
    members = draw(key_draw, config, world.pool)
    noise = successor_noise(key_noise, config, config.ensemble_size, observations.shape[0], problem.observation_size)
    imagined = imagine(world, config, members, observations, actions, noise, predictions)

    def backups(value: Value) -> Array:
        bounded = lambda s: jnp.clip(value(problem.standardizer(s)), problem.value_low, problem.value_high)  # noqa: E731
        return member_backups(imagined, bounded, problem.discount, world.value_floor)

    promised = backups(value)
    ranked = promised if rank_value is None else backups(rank_value)
    return imagined, believe(key_weights, config, imagined, promised, ranked)


def belief_metrics(
    config: BeliefConfig, problem: Problem, imagined: Imagined, belief: Belief, chosen: Int[Array, " rows"]
) -> dict[str, Array]:
    """What the belief did in one update: its targets, caution, weights by rank, and where it imagined.

    `chosen` is the member each rollout followed. `uncertainty` is the log of the standard deviation of the predicted
    next states over the pessimistic subset (figure 2 of the paper).
    """
    rank = ranks(belief.backups)
    order = jnp.argsort(belief.backups, axis=0)
    chosen_rank = jnp.take_along_axis(rank, chosen[None], axis=0)[0]
    inside = (rank < config.subset_size)[..., None]
    means = jnp.mean(imagined.successors, axis=1)
    centre = jnp.sum(jnp.where(inside, means, 0.0), axis=0) / config.subset_size
    variance = jnp.sum(jnp.where(inside, (means - centre) ** 2, 0.0), axis=0) / config.subset_size
    return {
        "q_imagined": jnp.mean(belief.target) * problem.reward_scale,
        "uncertainty": jnp.mean(0.5 * jnp.log(jnp.sum(variance, axis=-1) + 1e-12)),
        "pessimism": jnp.mean(jnp.mean(belief.backups, axis=0) - belief.target) * problem.reward_scale,
        "weight_by_rank": jnp.mean(jnp.take_along_axis(belief.weights, order, axis=0), axis=1),
        "chosen_by_rank": jnp.mean(chosen_rank[None] == jnp.arange(rank.shape[0])[:, None], axis=1),
        "imagined_end": jnp.mean(1.0 - imagined.alive),
        "outside_data": jnp.mean(imagined.trust < 1.0),
    }
