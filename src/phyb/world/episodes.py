"""Whole episodes inside the members: what each of them says that policies earn, less what they disagree about."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.networks import Standardizer
from phyb.world.model import WorldConfig, WorldModel
from phyb.world.rollout import Act, Recorder, member_step, penalize_disagreement, rollout, together, total


class Episodes(NamedTuple):
    """One episode from each start in each member."""

    returns: Float[Array, "drawn rows"]
    """The sum of rewards in learning units, less the penalty."""
    survival: Float[Array, "drawn rows"]
    """How likely the episode has not ended."""
    disagreement: Float[Array, "drawn rows"]
    """Mean disagreement of the members about a step of it; 0 without a penalty, since no other member is asked then."""


def member_episodes(
    key: PRNGKeyArray,
    world: WorldModel,
    config: WorldConfig,
    members: Int[Array, " drawn"],
    starts: Float[Array, "rows obs"],
    act: Act,
    standardizer: Standardizer,
    *,
    length: int,
    disagreement_penalty: float = 0.0,
) -> Episodes:
    """Roll policies out in each member alone, from the same starts and with common random numbers.

    A member is wrong without knowing where the log says nothing. So at every step another member is asked about the
    same state and action, and their disagreement costs: an episode earns `sum_t alive_t (r_t - penalty d_t)`, with d of
    `penalize_disagreement`. The same key is the same noise. `act` takes states `[drawn, rows, obs]`; rows may belong to
    different policies.
    """
    other_key, key = jax.random.split(key)
    step, disagreement = member_step(world, config, members), Recorder(jnp.zeros_like)
    if disagreement_penalty:
        size = world.pool.size
        others = (members + jax.random.randint(other_key, (), 1, max(size, 2))) % size
        other = member_step(world, config, others)
        step = penalize_disagreement(step, other, standardizer, disagreement_penalty)
        disagreement = total(lambda transition: transition.info)
    record = together(returns=total(), disagreement=disagreement)
    states = jnp.broadcast_to(starts, (len(members), *starts.shape))
    found = rollout(key, states, act, step, length=length, record=record)
    return Episodes(found.recorded["returns"], found.alive, found.recorded["disagreement"] / length)
