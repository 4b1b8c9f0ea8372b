"""Return under the belief: what the policy would earn if the world were what the belief says it is."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms.problem import Problem
from phyb.belief.backup import BeliefConfig, belief_step
from phyb.networks import Value
from phyb.policy.policy import Policy
from phyb.world.rollout import discounted_return, rollout, together, total


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
    weights, just as in training, but without `kth_min_probability` of the released code.
    """
    plain = dataclasses.replace(config, kth_min_probability=0.0)
    found = _rollout(key, policy, value, problem, plain, jnp.asarray(starts, jnp.float32))
    return Episodes(*(np.asarray(each) for each in found))


@eqx.filter_jit
def _rollout(
    key: PRNGKeyArray, policy: Policy, value: Value, problem: Problem, config: BeliefConfig, starts: Array
) -> tuple[Array, Array]:
    step = belief_step(problem.learned_world(), config, problem.bounded(value), problem.discount)
    record = together(total=total(), discounted=discounted_return(problem.discount))
    found = rollout(key, starts, lambda _, here: policy.normalized(here), step, length=problem.horizon, record=record)
    plain, (discounted, _) = found.recorded["total"], found.recorded["discounted"]
    return plain * problem.reward_scale, discounted * problem.reward_scale
