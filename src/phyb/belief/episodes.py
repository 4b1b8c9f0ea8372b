"""Whole episodes inside the models: what each member says that policies earn, less what the members disagree about."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.belief.backup import BeliefConfig
from phyb.networks import Standardizer
from phyb.world.model import WorldModel, imagine

Act = Callable[[Float[Array, "drawn rows obs"], PRNGKeyArray], Float[Array, "drawn rows act"]]
"""From observations, and the chance of this step, to actions in [-1, 1]."""


class Episodes(NamedTuple):
    """What the members say of one path from each start; every member walks alone."""

    returns: Float[Array, "drawn rows"]
    """The sum of rewards in learning units, less the cost of disagreement."""
    survival: Float[Array, "drawn rows"]
    """How likely the path has not ended."""
    disagreement: Float[Array, "drawn rows"]
    """Mean disagreement of the members about a step of it; 0 if it costs nothing, since nobody asks then."""


def walk(
    key: PRNGKeyArray,
    world: WorldModel,
    config: BeliefConfig,
    members: Int[Array, " drawn"],
    starts: Float[Array, "rows obs"],
    act: Act,
    standardizer: Standardizer,
    *,
    steps: int,
    disagreement_penalty: float,
) -> Episodes:
    """Follow policies inside each member for whole episodes, from the same starts and with the same chance in all.

    A member that walks where the log says nothing is wrong without knowing. So at every step another member is asked
    about the same state and action, and their disagreement

        d(s, a) = |z(s'_i) - z(s'_j)| / sqrt(dimensions),    z standardises observations,

    is paid for: a path earns `sum_t alive_t (r_t - cost d_t)`. Where trust is lost it is worth the floor, and ends.

    Args:
        key: the chance that all members meet.
        world: the models and their units.
        config: what is believed; its noise decides whether members move by their means or by draws.
        members: who walks.
        starts: where all of them begin.
        act: the policies; rows may belong to different ones.
        standardizer: of observations, the unit of disagreement.
        steps: the most steps of an episode.
        disagreement_penalty: what a disagreement of one standard deviation costs, in learning units.
    """
    key_other, key_chance = jax.random.split(key)
    size = world.pool.size
    others = (members + jax.random.randint(key_other, (), 1, max(size, 2))) % size

    def step(
        carry: tuple[Array, Array, Array, Array], chance: PRNGKeyArray
    ) -> tuple[tuple[Array, Array, Array, Array], None]:
        here, weight, total, disagreed = carry
        key_act, key_move = jax.random.split(chance)
        actions = act(here, key_act)
        noise = jax.random.normal(key_move, (1, 1, *starts.shape))
        then = imagine(world, config, members, here, actions, noise)
        there, alive, trust = then.successors[:, 0], then.alive[:, 0], then.trust[:, 0]
        earned = then.rewards + alive * (1.0 - trust) * world.value_floor
        if disagreement_penalty:
            elsewhere = imagine(world, config, others, here, actions, noise).successors[:, 0]
            disagreement = jnp.sqrt(jnp.mean((standardizer(there) - standardizer(elsewhere)) ** 2, axis=-1))
            earned, disagreed = earned - disagreement_penalty * disagreement, disagreed + weight * disagreement
        total, weight = total + weight * earned, weight * alive * trust
        # What has ended stays where it is: a model asked again and again beyond its data ends in numbers like NaN.
        return (jnp.where((weight > 0)[..., None], there, here), weight, total, disagreed), None

    none = jnp.zeros((len(members), len(starts)))
    first = (jnp.broadcast_to(starts, (len(members), *starts.shape)), none + 1.0, none, none)
    (_, survival, total, disagreed), _ = jax.lax.scan(step, first, jax.random.split(key_chance, steps))
    return Episodes(total, survival, disagreed / steps)
