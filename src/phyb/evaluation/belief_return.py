"""Return under the belief: what the policy would earn if the world were what the belief says it is."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms.imagination import belief_step
from phyb.algorithms.problem import Problem
from phyb.belief.backup import BeliefConfig, Value, follow
from phyb.policy.policy import Policy


class Episodes(NamedTuple):
    """What imagined episodes earn, in the units of the log."""

    total: Float[np.ndarray, " episodes"]
    """The plain sum of rewards."""
    discounted: Float[np.ndarray, " episodes"]
    """The discounted sum, which is what critics of the same policy should expect of its start."""


def belief_returns(
    key: PRNGKeyArray,
    policy: Policy,
    value: Value,
    problem: Problem,
    config: BeliefConfig,
    starts: Float[np.ndarray, "episodes obs"],
) -> Episodes:
    """Returns of one imagined episode from each start.

    At every step a fresh ensemble is drawn, its members are ranked by the value and one is followed with the belief's
    weights, just as in training, but for the chance branch of the released code.
    """
    plain = dataclasses.replace(config, kth_min_probability=0.0)
    found = _rollout(key, policy, value, problem, plain, jnp.asarray(starts, jnp.float32))
    return Episodes(*(np.asarray(each) for each in found))


@eqx.filter_jit
def _rollout(
    key: PRNGKeyArray,
    policy: Policy,
    value: Value,
    problem: Problem,
    config: BeliefConfig,
    starts: Array,
) -> tuple[Array, Array]:
    def step(carry: tuple[Array, ...], key: PRNGKeyArray) -> tuple[tuple[Array, ...], None]:
        observations, alive, total, discounted, factor = carry
        key_belief, key_follow = jax.random.split(key)
        actions = policy.normalized(observations)
        imagined, belief = belief_step(key_belief, config, value, problem, observations, actions)
        successor, reward, stays, _ = follow(key_follow, config, imagined, belief.weights)
        successor, earned = jnp.where((alive > 0)[:, None], successor, observations), alive * reward
        return (successor, alive * stays, total + earned, discounted + factor * earned, factor * problem.discount), None

    none = jnp.zeros(len(starts))
    first = (starts, none + 1.0, none, none, jnp.ones(()))
    (_, _, total, discounted, _), _ = jax.lax.scan(step, first, jax.random.split(key, problem.horizon))
    return total * problem.reward_scale, discounted * problem.reward_scale
