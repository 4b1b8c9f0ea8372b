"""A policy followed inside the models for many steps: what it earns from every state on, and what its actions add.

One walk of H steps gives H states with their returns, and one derivative of its return, taken backwards through the
models, gives the slope of the return in every action on the way. Asking the models about candidate actions one by one
would cost as many walks as there are candidates, at each of these states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from phyb.belief.backup import BeliefConfig, Value, World, imagine

Act = Callable[[Float[Array, "drawn rows obs"], Float[Array, "drawn rows act"]], Float[Array, "drawn rows act"]]
"""From observations and a shift of the draws before the tanh to actions in [-1, 1]."""


class Paths(NamedTuple):
    """What the drawn members say of a policy, step by step; every member walks alone."""

    observations: Float[Array, "steps drawn rows obs"]
    """Where each step begins."""
    alive: Float[Array, "steps drawn rows"]
    """How likely the path has not ended before this step."""
    returns: Float[Array, "steps drawn rows"]
    """What is earned from each step on, in learning units."""
    slopes: Float[Array, "steps drawn rows act"]
    """What one unit of each action, before the tanh, adds to that return."""
    last: Float[Array, "drawn rows obs"]
    """Where the last step ended."""
    survival: Float[Array, "drawn rows"]
    """How likely the path goes on from there."""


class _Steps(NamedTuple):
    """One walk; every field has a leading axis over steps."""

    here: Float[Array, "drawn rows obs"]
    there: Float[Array, "drawn rows obs"]
    rewards: Float[Array, "drawn rows"]
    alive: Float[Array, "drawn rows"]
    trust: Float[Array, "drawn rows"]


def walk(
    world: World,
    config: BeliefConfig,
    members: Int[Array, " drawn"],
    starts: Float[Array, "rows obs"],
    act: Act,
    noise: Float[Array, "steps rows obs"],
    value: Value,
    *,
    discount: float,
    trace: float,
    action_size: int,
) -> Paths:
    """Follow a policy inside each drawn member and differentiate what it earns by every action on the way.

    The return is `G_t = r_t + gamma alive_t ((1 - trace) V(s_{t+1}) + trace G_{t+1})`, the last one `V` itself. An
    action at step t enters `G_0` through `(gamma trace)^t G_t` alone, so that one derivative of `G_0` gives

        slope_t = dG_t / d(action_t) = (gamma trace)^{-t} dG_0 / d(action_t),

    the policy's own answer to the changed states included. Lost trust is worth the floor, as in `member_backups`. The
    slope sees rewards, values and trust; an end by a rule has none, so that falls show in returns and values only.

    Args:
        world: the models and their units.
        config: what is believed; its noise decides whether members move by their means or by draws.
        members: the drawn members.
        starts: where all of them begin.
        act: the policy; its second argument is a shift of the actions, zero here.
        noise: the chance that all members meet.
        value: of observations, in learning units.
        discount: gamma.
        trace: lambda, above 0.
        action_size: numbers in one action.
    """
    steps, drawn, rows = len(noise), len(members), len(starts)

    def returns(shifts: Float[Array, "steps drawn rows act"]) -> tuple[Array, tuple[_Steps, Array]]:
        def step(here: Array, given: tuple[Array, Array]) -> tuple[Array, _Steps]:
            shift, chance = given
            then = imagine(world, config, members, here, act(here, shift), chance[None, None])
            alive, trust = then.alive[:, 0], then.trust[:, 0]
            # What has ended stays where it is: a model asked again and again beyond its data ends in numbers like NaN.
            there = jnp.where((alive * trust > 0)[..., None], then.successors[:, 0], jax.lax.stop_gradient(here))
            return there, _Steps(here, there, then.rewards, alive, trust)

        first = jnp.broadcast_to(starts, (drawn, *starts.shape))
        _, walked = jax.lax.scan(step, first, (shifts, noise))
        values = value(walked.there)

        def back(later: Array, at: tuple[_Steps, Array]) -> tuple[Array, Array]:
            one, behind = at
            known = one.trust * ((1.0 - trace) * behind + trace * later) + (1.0 - one.trust) * world.value_floor
            found = one.rewards + discount * one.alive * known
            return found, found

        first_return, found = jax.lax.scan(back, values[-1], (walked, values), reverse=True)
        return jnp.sum(first_return), (walked, found)

    slopes, (walked, found) = jax.grad(returns, has_aux=True)(jnp.zeros((steps, drawn, rows, action_size)))
    slopes = slopes / ((discount * trace) ** jnp.arange(steps))[:, None, None, None]
    lived = jnp.cumprod(walked.alive * (walked.trust > 0), axis=0)
    return Paths(
        walked.here,
        jnp.concatenate([jnp.ones((1, drawn, rows)), lived[:-1]]),
        found,
        slopes,
        walked.there[-1],
        lived[-1],
    )
