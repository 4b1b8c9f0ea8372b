"""Compiled questions to a pool: what it says about logged rows, and where rollouts along them end up."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.data.dataset import Rows
from phyb.dynamics.pool import Pool
from phyb.world.model import Termination, end_probability
from phyb.world.rollout import Recorder, Transition, rollout

ROWS_AT_ONCE = 512
"""The hidden layers of a large pool on all rows at once would take gigabytes."""


class RowPredictions(NamedTuple):
    """What the mixture of members predicts for each row, and how it meets the outcome."""

    mean: Float[Array, "rows out"]
    std: Float[Array, "rows out"]
    """Standard deviation of the mixture: the members' own noise and their disagreement."""
    spread: Float[Array, "rows out"]
    """Standard deviation of the members' means: their disagreement alone."""
    member_squared_error: Float[Array, "rows out"]
    """Mean over members."""
    level: Float[Array, "rows out"]
    """F(outcome), the predicted probability of an outcome at or below the one observed."""
    end: Float[Array, "rows members"]
    """Each member's probability that the row ends its episode; a rule is asked about one sampled successor."""


@eqx.filter_jit
def ask(
    pool: Pool,
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows act"],
    outcomes: Float[Array, "rows out"],
    noise: Float[Array, "rows obs"],
    least_std: Float[Array, " out"],
    termination: Termination,
) -> RowPredictions:
    """One-step predictions for rows whose outcome (next observation and reward) is known."""
    members = jnp.arange(pool.size)

    def ask_block(block: tuple[Array, Array, Array, Array]) -> RowPredictions:
        here, action, outcome, block_noise = block
        predicted = pool.predict(members, here, action)
        means = _with_reward(predicted.next_mean, predicted.reward_mean)
        stds = _with_reward(predicted.next_std, predicted.reward_std)
        spread = jnp.std(means, axis=0)
        levels = jax.scipy.stats.norm.cdf((outcome - means) / jnp.maximum(stds, least_std))
        successors = predicted.next_mean + predicted.next_std * block_noise
        many_here, many_actions = (jnp.broadcast_to(x, (pool.size, *x.shape)) for x in (here, action))
        end = end_probability(termination, predicted, many_here, many_actions, successors)
        return RowPredictions(
            mean=jnp.mean(means, axis=0),
            std=jnp.sqrt(jnp.mean(stds**2, axis=0) + spread**2),
            spread=spread,
            member_squared_error=jnp.mean((outcome - means) ** 2, axis=0),
            level=jnp.mean(levels, axis=0),
            end=end.T,
        )

    rows = observations.shape[0]
    blocks = -(-rows // ROWS_AT_ONCE)

    def cut(array: Array) -> Array:
        padded = jnp.pad(array, ((0, blocks * ROWS_AT_ONCE - rows), (0, 0)))
        return padded.reshape(blocks, ROWS_AT_ONCE, -1)

    predicted = jax.lax.map(ask_block, (cut(observations), cut(actions), cut(outcomes), cut(noise)))
    return jax.tree.map(lambda part: part.reshape(blocks * ROWS_AT_ONCE, -1)[:rows], predicted)


class Paths(NamedTuple):
    """States and rewards along rollouts, the reward in the last column."""

    sampled: Float[Array, "steps members each out"]
    """Through one member, with its noise."""
    mean: Float[Array, "steps members each out"]
    """Through the mean of all members, without noise."""


@eqx.filter_jit
def roll_out(
    key: PRNGKeyArray,
    pool: Pool,
    starts: Float[Array, "members each obs"],
    actions: Float[Array, "steps members each act"],
) -> Paths:
    """Two open-loop rollouts from every start; the sampled one follows the member of the start's group."""
    members = jnp.arange(pool.size)

    def sampled(key: PRNGKeyArray, states: Array, actions: Array, alive: Array) -> Transition:
        own = pool.predict(members, states, actions)
        noise = jax.random.normal(key, (*alive.shape, states.shape[-1] + 1))
        after = own.next_mean + own.next_std * noise[..., :-1]
        rewards = own.reward_mean + own.reward_std * noise[..., -1]
        return Transition(Rows(states, actions, rewards, after, jnp.zeros_like(alive)), alive, jnp.ones_like(alive))

    def mean(key: PRNGKeyArray, states: Array, actions: Array, alive: Array) -> Transition:
        every = pool.predict(members, *(x.reshape(-1, x.shape[-1]) for x in (states, actions)))
        after = jnp.mean(every.next_mean, axis=0).reshape(states.shape)
        rewards = jnp.mean(every.reward_mean, axis=0).reshape(alive.shape)
        return Transition(Rows(states, actions, rewards, after, jnp.zeros_like(alive)), alive, jnp.ones_like(alive))

    record = Recorder(keep=lambda moved: _with_reward(moved.row.next_observations, moved.row.rewards))
    return Paths(
        *(rollout(key, starts, actions, step, length=len(actions), record=record).kept for step in (sampled, mean))
    )


def _with_reward(states: Float[Array, "*rows obs"], rewards: Float[Array, "*rows"]) -> Float[Array, "*rows out"]:
    return jnp.concatenate([states, rewards[..., None]], axis=-1)
