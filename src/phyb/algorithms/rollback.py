"""Rollback: go back to the incumbent policy where the models agree that the new one is worse. No simulator is asked.

Any algorithm can use it: keep an `Incumbent` in the state and call `rolled_back` before each evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from phyb.algorithms.problem import Problem
from phyb.networks import SlowAverage, select
from phyb.policy.actor import Actor
from phyb.world.model import WorldConfig
from phyb.world.rollout import member_episodes

ROWS = 48
"""States from which policies are compared."""
GAIN, LOSS = 3.0, -2.0
"""Evidence from which on a gain or a loss is clear, in standard errors. By noise alone it varies by 1 or more, and a
run compares many times. A gain that is none would be deployed, a loss that is none costs little."""
SHARED_ERROR = 0.02
"""Standard error of a gain, as a share of the return, that members have in common and that their agreement cannot show:
they learned from one log. Gains of a few per cent that all of them predict need not be there (docs/results.md)."""


class Incumbent(NamedTuple):
    """The policy to go back to, and how far steps away from it may go."""

    actor: Actor
    improved: Bool[Array, ""]
    """Whether it is a clear gain on the start."""
    trust_region_scale: Float[Array, ""]
    """Share of the target divergence that steps may still take; halved by every rollback."""

    @classmethod
    def start(cls, actor: Actor) -> Incumbent:
        """The start of a run, with steps at full size."""
        return cls(actor, jnp.zeros((), bool), jnp.ones((), jnp.float32))


def rolled_back(
    state: Any,
    problem: Problem,
    config: WorldConfig,
    disagreement_penalty: float,
    total_steps: int,
    fresh: Callable[[Actor], dict[str, Any]] = lambda actor: {},
) -> Any:
    """The state to go on with, after the models have compared the reference policy with the incumbent.

    A clear gain makes the policy the incumbent; a clear loss goes back, with steps half as large. In between training
    goes on and the incumbent stays, so that small losses cannot add up unseen. A run without any clear gain goes back
    to its start at the end.

    The state is a named tuple with `actor`, `reference`, `incumbent`, `key` and `step`; `fresh` gives what else starts
    anew with the incumbent's actor, such as its optimiser, by the names of the state.
    """
    key, key_compare = jax.random.split(state.key)
    policy, incumbent = state.reference.average, state.incumbent
    found = evidence(*gains(key_compare, policy, incumbent.actor, problem, config, disagreement_penalty))
    gained, lost = found > GAIN, found < LOSS
    back = ~gained & (lost | ((state.step >= total_steps) & ~incumbent.improved))
    ahead = incumbent._replace(actor=policy, improved=jnp.ones((), bool))
    smaller = incumbent._replace(trust_region_scale=0.5 * incumbent.trust_region_scale)
    incumbent = select(gained, ahead, select(back, smaller, incumbent))
    actor = incumbent.actor
    restored = state._replace(actor=actor, reference=SlowAverage.start(actor), **fresh(actor))
    return select(back, restored, state)._replace(incumbent=incumbent, key=key)


def gains(
    key: PRNGKeyArray, new: Actor, old: Actor, problem: Problem, config: WorldConfig, disagreement_penalty: float
) -> tuple[Float[Array, " members"], Float[Array, " members"]]:
    """What the new policy's mean action earns more than the old one's in each member, and what the old one earns.

    Both are rolled out from the same states with common random numbers. Half of the states are starts of episodes, the
    others any of the log.
    """
    key_start, key_row, key_rollout = jax.random.split(key, 3)
    first = jax.random.choice(key_start, problem.starts, (ROWS // 2,))
    states = jnp.concatenate([first, problem.sample(key_row, ROWS - len(first)).observations])
    ours, theirs = (
        member_returns(key_rollout, actor, problem, config, states, disagreement_penalty) for actor in (new, old)
    )
    return ours - theirs, theirs


def member_returns(
    key: PRNGKeyArray,
    actor: Actor,
    problem: Problem,
    config: WorldConfig,
    states: Float[Array, "rows obs"],
    disagreement_penalty: float = 0.0,
) -> Float[Array, " members"]:
    """What an actor's mean action earns in whole episodes of every member alone, in learning units.

    The same key is the same noise.
    """
    world, unit = problem.learned_world(), problem.standardizer
    episodes = member_episodes(
        key,
        world,
        config,
        jnp.arange(world.pool.size),
        states,
        lambda _, observations: actor.mode(unit(observations)),
        unit,
        length=problem.horizon,
        disagreement_penalty=disagreement_penalty,
    )
    return jnp.mean(episodes.returns, axis=-1)


def evidence(gains: Float[Array, " members"], returns: Float[Array, " members"]) -> Float[Array, ""]:
    """How far members agree on a gain over these returns, or below 0 on a loss, in standard errors.

    `mean / sqrt(variance / members + (SHARED_ERROR mean |returns|)^2)`: they are witnesses, but not independent ones.
    """
    own = jnp.var(gains, ddof=1) / gains.shape[0]
    shared = SHARED_ERROR * jnp.mean(jnp.abs(returns))
    return jnp.mean(gains) / (jnp.sqrt(own + shared**2) + 1e-9)
