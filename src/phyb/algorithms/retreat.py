"""Whether a policy has lost against the one before it, as the members of the pool see it: no simulator is asked."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms.problem import Problem
from phyb.belief.backup import Ahead, BeliefConfig, look_ahead
from phyb.policy.actor import Actor

ROWS, STEPS = 48, 400
"""States from which policies are compared, and most steps of the discounted comparison."""
GAIN, LOSS = 4.0, -2.0
"""Evidence from which on a gain or a loss is clear, in standard errors. By chance alone it varies by 1.4, the root
of two, or more, and a run looks many times. A gain that is none would be deployed, a loss that is none costs little."""


def gains(
    key: PRNGKeyArray, new: Actor, old: Actor, problem: Problem, config: BeliefConfig
) -> Float[Array, "2 members"]:
    """What the new policy's mean action earns more than the old one's in each member, from the same states and chance.

    The first row is the discounted return, which is what is optimised. The second is that of whole episodes, since a
    fall may lie beyond the discount's horizon.
    """

    def gain(discount: float, steps: int) -> Array:
        earned = (member_returns(key, actor, problem, config, discount, steps) for actor in (new, old))
        return next(earned) - next(earned)

    return jnp.stack([gain(problem.discount, min(problem.horizon, STEPS)), gain(1.0, problem.horizon)])


def member_returns(
    key: PRNGKeyArray, actor: Actor, problem: Problem, config: BeliefConfig, discount: float, steps: int
) -> Float[Array, " members"]:
    """What an actor's mean action earns in every member alone, from states of the log, in learning units.

    Half of the states are starts of episodes. The same key is the same chance.
    """
    assert problem.world is not None, "this algorithm needs a pool"
    key_start, key_row, key_noise = jax.random.split(key, 3)
    first = jax.random.choice(key_start, problem.starts, (ROWS // 2,))
    states = jnp.concatenate([first, problem.sample(key_row, ROWS - len(first)).observations])
    members = jnp.arange(problem.world.pool.size)
    ahead = Ahead(
        lambda observations, noise: actor.mode(problem.standardizer(observations)),
        jnp.zeros((steps, ROWS, problem.action_size)),
        jax.random.normal(key_noise, (steps, ROWS, problem.observation_size)),
    )
    here = jnp.broadcast_to(states, (len(members), 1, *states.shape))
    nothing = lambda observations: jnp.zeros(observations.shape[:-1])  # noqa: E731
    return jnp.mean(look_ahead(problem.world, config, members, here, ahead, nothing, discount), axis=(1, 2))


def evidence(gains: Float[Array, "kinds members"]) -> Float[Array, ""]:
    """How far members agree on a gain, or below 0 on a loss: `sum_kinds mean / standard error` over them as witnesses.

    A gain of one kind can make up for a loss of another if they agree on it more.
    """
    error = jnp.std(gains, axis=1, ddof=1) / jnp.sqrt(gains.shape[1])
    return jnp.sum(jnp.mean(gains, axis=1) / (error + 1e-9))
