"""Return under the belief: what the policy would earn if the world were what the belief says it is."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms.imagination import belief_step
from phyb.algorithms.problem import Problem
from phyb.belief.backup import BeliefConfig, Value, follow
from phyb.policy.policy import Policy


def belief_returns(
    key: PRNGKeyArray,
    policy: Policy,
    value: Value,
    problem: Problem,
    config: BeliefConfig,
    starts: Float[np.ndarray, "episodes obs"],
) -> Float[np.ndarray, " episodes"]:
    """Undiscounted returns, in the units of the log, of one imagined episode from each start.

    At every step a fresh ensemble is drawn, its members are ranked by the value and one is followed with the belief's
    weights, just as in training, but for the chance branch of the released code.
    """
    plain = dataclasses.replace(config, kth_min_probability=0.0)
    return np.asarray(_rollout(key, policy, value, problem, plain, jnp.asarray(starts, jnp.float32)))


@eqx.filter_jit
def _rollout(
    key: PRNGKeyArray,
    policy: Policy,
    value: Value,
    problem: Problem,
    config: BeliefConfig,
    starts: Array,
) -> Array:
    def step(carry: tuple[Array, Array, Array], key: PRNGKeyArray) -> tuple[tuple[Array, Array, Array], None]:
        observations, alive, total = carry
        key_belief, key_follow = jax.random.split(key)
        actions = policy.normalized(observations)
        imagined, belief = belief_step(key_belief, config, value, problem, observations, actions)
        successor, reward, stays, _ = follow(key_follow, config, imagined, belief.weights)
        successor = jnp.where((alive > 0)[:, None], successor, observations)
        return (successor, alive * stays, total + alive * reward), None

    first = (starts, jnp.ones(len(starts)), jnp.zeros(len(starts)))
    (_, _, total), _ = jax.lax.scan(step, first, jax.random.split(key, problem.horizon))
    return total * problem.reward_scale
