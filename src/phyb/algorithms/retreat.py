"""Whether a policy has lost against the one before it, as the members of the pool see it: no simulator is asked."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from phyb.algorithms.problem import Problem
from phyb.belief.backup import BeliefConfig, imagine
from phyb.policy.actor import Actor

ROWS = 48
"""States from which policies are compared."""
GAIN, LOSS = 4.0, -2.0
"""Evidence from which on a gain or a loss is clear, in standard errors. By chance alone that of one kind varies by 1 or
more, and a run looks many times. A gain that is none would be deployed, a loss that is none costs little."""


def gains(
    key: PRNGKeyArray, new: Actor, old: Actor, problem: Problem, config: BeliefConfig
) -> Float[Array, "2 members"]:
    """What the new policy's mean action earns more than the old one's in each member, from the same states and chance.

    The first row is the discounted return, which is what is optimised. The second is that of whole episodes, since a
    fall may lie beyond the discount's horizon. Half of the states are starts of episodes, the others any of the log.
    """
    key_start, key_row, key_noise = jax.random.split(key, 3)
    first = jax.random.choice(key_start, problem.starts, (ROWS // 2,))
    states = jnp.concatenate([first, problem.sample(key_row, ROWS - len(first)).observations])
    earned = (member_returns(key_noise, actor, problem, config, states) for actor in (new, old))
    return next(earned) - next(earned)


def member_returns(
    key: PRNGKeyArray, actor: Actor, problem: Problem, config: BeliefConfig, states: Float[Array, "rows obs"]
) -> Float[Array, "2 members"]:
    """What an actor's mean action earns in every member alone, discounted and in whole episodes, in learning units.

    The same key is the same chance. Where trust is lost the path is worth the floor, which is that of discounted
    values, and ends.
    """
    world = problem.world
    assert world is not None, "this algorithm needs a pool"
    members = jnp.arange(world.pool.size)
    discounts = jnp.array([problem.discount, 1.0])[:, None, None]

    def step(carry: tuple[Array, Array, Array], chance: PRNGKeyArray) -> tuple[tuple[Array, Array, Array], None]:
        here, weight, total = carry
        actions = actor.mode(problem.standardizer(here))
        noise = jax.random.normal(chance, (1, 1, *states.shape))
        then = imagine(world, config, members, here, actions, noise)
        alive, trust = discounts * then.alive[:, 0], then.trust[:, 0]
        total = total + weight * (then.rewards + alive * (1.0 - trust) * world.value_floor)
        weight = weight * alive * trust
        # What has ended stays where it is: a model asked again and again beyond its data ends in numbers like NaN.
        return (jnp.where((weight[1] > 0)[..., None], then.successors[:, 0], here), weight, total), None

    here = jnp.broadcast_to(states, (len(members), *states.shape))
    start = (here, jnp.ones((2, *here.shape[:-1])), jnp.zeros((2, *here.shape[:-1])))
    (_, _, total), _ = jax.lax.scan(step, start, jax.random.split(key, problem.horizon))
    return jnp.mean(total, axis=-1)


def evidence(gains: Float[Array, "kinds members"]) -> Float[Array, " kinds"]:
    """How far members agree on a gain, or below 0 on a loss: `mean / standard error` over them as witnesses."""
    error = jnp.std(gains, axis=1, ddof=1) / jnp.sqrt(gains.shape[1])
    return jnp.mean(gains, axis=1) / (error + 1e-9)


def verdict(evidence: Float[Array, " kinds"]) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    """Whether a policy has clearly gained, and whether it has clearly lost.

    A clear loss of one kind is a loss, whatever the other says: a faster gait that falls beyond the discount's horizon
    gains the first kind and loses the second. Else a gain is what both kinds together make clear.
    """
    lost = jnp.min(evidence) < LOSS
    return ~lost & (jnp.sum(evidence) > GAIN), lost
