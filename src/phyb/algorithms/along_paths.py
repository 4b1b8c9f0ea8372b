"""PhyB's update with judge slope: the reference walks inside the models, and V and actor learn along the way.

1. let the reference policy walk from logged states and rollouts inside N drawn models, and differentiate what it earns
   by every action on the way;
2. weigh each model's path by its return: the k that promise least, softly;
3. draw states along the paths by these weights: V learns their returns, candidate actions are worth what the slope says
   of them, and the actor follows the mirror step as ever;
4. rollouts go on where one of the paths ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms.learner import Metrics
from phyb.algorithms.problem import Problem
from phyb.belief.backup import draw, weigh
from phyb.belief.paths import Paths, walk
from phyb.belief.weights import ranks
from phyb.networks import gradient_step, move_towards
from phyb.policy.actor import propose, squash
from phyb.policy.critics import Critics, ValueNetwork

if TYPE_CHECKING:
    from phyb.algorithms.phyb import PhyB, PhyBState

STEEPEST = 20.0
"""Slopes longer than so many times the median are cut to that: near a contact a derivative can be anything."""


def update_along_paths(algorithm: PhyB, state: PhyBState, problem: Problem) -> tuple[PhyBState, Metrics]:
    """One update with judge slope: the reference walks inside the models, V and actor learn along the way.

    The worth of a candidate is `slope . (candidate - mean of the reference)`, of first order. The belief weighs whole
    paths by their returns: the slope of the entropy-regularised minimum `min_alpha sum_i alpha_i (x_i + lambda log
    alpha_i)` is `sum_i alpha_i slope_i`, since its weights are at their optimum. Other rules take their weights, and
    the scaled one its scale, as given.
    """
    cfg, world = algorithm.config, problem.world
    assert world is not None, "this algorithm needs a pool"
    keys = jax.random.split(state.key, 8)
    starts = jnp.concatenate([problem.sample(keys[1], cfg.real_batch_size).observations, state.rollouts])
    members = draw(keys[2], cfg.belief, world.pool)
    reference, shape = state.reference.average, (cfg.lookahead, len(starts))

    def act(observations: Array, shift: Array) -> Array:
        return squash(reference(problem.standardizer(observations)).mean + shift)

    paths = walk(
        world,
        cfg.belief,
        members,
        starts,
        act,
        jax.random.normal(keys[3], (*shape, problem.observation_size)),
        lambda rows: jnp.clip(state.slow_value(problem.standardizer(rows)), problem.value_low, problem.value_high),
        discount=problem.discount,
        trace=cfg.trace,
        action_size=problem.action_size,
    )
    weights = weigh(keys[4], cfg.belief, paths.returns[0])
    picked = jax.random.categorical(keys[5], jnp.log((paths.alive * weights).reshape(-1)), shape=(cfg.path_rows,))

    def pick(field: Array) -> Array:
        return field.reshape(-1, *field.shape[3:])[picked]

    observations, slopes = problem.standardizer(pick(paths.observations)), bounded(pick(paths.slopes))
    targets = jnp.clip(pick(paths.returns), problem.value_low, problem.value_high)
    pi, mu = state.actor(observations), reference(observations)
    counts = (cfg.actor_candidates + cfg.logged_candidates, cfg.reference_candidates, 0)
    candidates = propose(keys[6], pi, mu, counts)
    worth = jnp.einsum("rca,ra->rc", candidates.draws - mu.mean[:, None], slopes)
    step, step_size = algorithm.improve(state, candidates, worth)

    def value_loss(networks: tuple[Critics, ValueNetwork]) -> Array:
        return jnp.mean((networks[1](observations) - targets) ** 2)

    error, gradient = jax.value_and_grad(value_loss)((state.critics, state.value))
    (_, value), critic_optimizer = gradient_step(
        algorithm.critic_optimizer, gradient, state.critic_optimizer, (state.critics, state.value)
    )
    rollouts, age, chosen = advance(algorithm, keys[7], state, problem, paths, weights)
    after = algorithm.fit_actor(state, observations, candidates, step, 1.0 / cfg.path_rows)._replace(
        value=value,
        slow_value=move_towards(state.slow_value, value, cfg.target_rate),
        critic_optimizer=critic_optimizer,
        step_size=step_size,
        rollouts=rollouts,
        rollout_age=age,
        key=keys[0],
        step=state.step + 1,
    )
    chosen_rank = jnp.take_along_axis(ranks(paths.returns[0]), chosen[None], axis=0)[0]
    order = jnp.argsort(paths.returns[0], axis=0)
    believed = jnp.sum(weights * paths.returns[0], axis=0)
    metrics = {
        "q_imagined": jnp.mean(believed) * problem.reward_scale,
        "pessimism": jnp.mean(jnp.mean(paths.returns[0], axis=0) - believed) * problem.reward_scale,
        "weight_by_rank": jnp.mean(jnp.take_along_axis(weights, order, axis=0), axis=1),
        "chosen_by_rank": jnp.mean(chosen_rank[None] == jnp.arange(len(members))[:, None], axis=1),
        "imagined_end": 1.0 - jnp.mean(paths.survival),
        "divergence": jnp.mean(step.divergence),
        "step_size": step_size,
        "value_loss": error,
        "slope": jnp.mean(jnp.linalg.norm(slopes, axis=-1)) * problem.reward_scale,
        "rollout_age": jnp.mean(age.astype(jnp.float32)),
        "boldness": state.boldness,
        "actor_std": jnp.mean(jnp.exp(after.actor(observations).log_std)),
    }
    return after, metrics


def advance(
    algorithm: PhyB, key: PRNGKeyArray, state: PhyBState, problem: Problem, paths: Paths, weights: Array
) -> tuple[Array, Array, Array]:
    """Rollouts go on where the path of one member ended, drawn by its weight, or at the start of an episode."""
    key_member, key_end, key_start = jax.random.split(key, 3)
    chosen = jax.random.categorical(key_member, jnp.log(weights), axis=0)
    row = jnp.arange(chosen.shape[0])[algorithm.config.real_batch_size :]
    member, age = chosen[row], state.rollout_age + algorithm.config.lookahead
    stays = jax.random.uniform(key_end, member.shape) < paths.survival[member, row]
    goes_on = stays & (age < algorithm.config.rollout_length)
    fresh = jax.random.choice(key_start, problem.starts, member.shape)
    return jnp.where(goes_on[:, None], paths.last[member, row], fresh), jnp.where(goes_on, age, 0), chosen


def bounded(slopes: Float[Array, "rows act"]) -> Float[Array, "rows act"]:
    """Slopes no longer than `STEEPEST` medians; one that is not a finite number says nothing and is 0."""
    slopes = jnp.where(jnp.isfinite(slopes).all(axis=-1, keepdims=True), slopes, 0.0)
    length = jnp.linalg.norm(slopes, axis=-1, keepdims=True)
    return slopes * jnp.minimum(1.0, STEEPEST * jnp.median(length) / jnp.maximum(length, 1e-30))
