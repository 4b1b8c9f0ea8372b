"""Rollouts that remember: the last states and actions of each, for models that predict from further back than now."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from phyb.data.dataset import Dataset, Rows
from phyb.dynamics.any_step import look_back
from phyb.networks import take
from phyb.world.model import WorldConfig, WorldModel
from phyb.world.rollout import draw_outcomes


class History(NamedTuple):
    """Where rollouts stand, and how they came there; the newest of each is the last."""

    observations: Float[Array, "rows window obs"]
    actions: Float[Array, "rows window act"]
    """In [-1, 1]; the last one is still to be chosen."""
    length: Int[Array, " rows"]
    """States that are known; places before them have no meaning."""

    @classmethod
    def before(cls, dataset: Dataset, chosen: Int[Array, " rows"], window: int) -> History:
        """These logged states and those that led to them in their episodes."""
        at = jnp.maximum(chosen[:, None] + jnp.arange(1 - window, 1), 0)
        length = jnp.minimum(dataset.steps_before[chosen] + 1, window)
        return cls(dataset.rows.observations[at], dataset.rows.actions[at], length)

    def after(self, actions: Float[Array, "rows act"], successors: Float[Array, "rows obs"]) -> History:
        """One step later; the oldest step is forgotten."""
        observations = jnp.concatenate([self.observations[:, 1:], successors[:, None]], axis=1)
        taken = jnp.roll(self.actions.at[:, -1].set(actions), -1, axis=1)
        return History(observations, taken, jnp.minimum(self.length + 1, observations.shape[1]))


class LookingBack(NamedTuple):
    """One step of rollouts that remember."""

    row: Rows
    after: History
    survival: Float[Array, " rows"]
    spread: Float[Array, " rows"]
    """How far predictions from different states lie apart."""


def spread(means: Float[Array, "lengths rows obs"], known: Bool[Array, "lengths rows"]) -> Float[Array, " rows"]:
    """`sqrt( 1/d sum_j var_k mu_{k,j} )` over those of K predictions that are known."""
    return jnp.sqrt(jnp.mean(jnp.var(means, axis=0, where=known[..., None]), axis=-1))


def look_back_step(
    key: PRNGKeyArray,
    world: WorldModel,
    member: Int[Array, ""],
    history: History,
    actions: Float[Array, "rows act"],
    *,
    dropout: bool = False,
) -> LookingBack:
    """One step of all rollouts, in a member of the kind any-step.

    The member predicts the next state from every state that is known, 1 to K steps back. Each rollout follows one of
    these predictions, drawn uniformly, with its noise. It is cut off where it leaves the data by far.

    Args:
        key: random key.
        world: the pool and its units.
        member: the member that is followed.
        history: where the rollouts stand.
        actions: in [-1, 1].
        dropout: leave units of the network out, as in training.
    """
    length_key, noise_key, end_key, dropout_key = jax.random.split(key, 4)
    taken = world.env_action(history.actions.at[:, -1].set(actions))
    told = look_back(world.pool, member, history.observations, taken, dropout_key if dropout else None)
    lengths, count = told.reward_mean.shape
    followed = take(told, (jax.random.randint(length_key, (count,), 0, history.length), jnp.arange(count)))
    row = draw_outcomes(noise_key, end_key, world, followed, history.observations[:, -1], actions)
    inside = world.trust(row.next_observations, WorldConfig()) > 0
    return LookingBack(
        row,
        history.after(actions, row.next_observations),
        (1.0 - row.terminated) * inside,
        spread(told.next_mean, jnp.arange(lengths)[:, None] < history.length),
    )
