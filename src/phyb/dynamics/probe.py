"""Compiled questions to a pool: what it says about logged rows, and where rollouts along them end up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from phyb.dynamics.pool import Pool

Termination = Callable[[Array, Array, Array], Array] | Literal["learned", "none"] | None
"""A rule on (observation, action, next observation), the learned head, or nothing that ends an episode."""

ROWS_AT_ONCE = 512
"""The hidden layers of a large pool on all rows at once would take gigabytes."""


class Opinion(NamedTuple):
    """What the mixture of members says about each row, and how it meets the outcome."""

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
    """Each member's probability that the row ends its episode; a rule judges one sampled successor."""


@eqx.filter_jit
def ask(
    pool: Pool,
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows act"],
    outcomes: Float[Array, "rows out"],
    noise: Float[Array, "rows obs"],
    least_std: Float[Array, " out"],
    termination: Termination,
) -> Opinion:
    """One-step predictions for rows whose outcome (next observation and reward) is known."""
    members = jnp.arange(pool.size)

    def ask_block(block: tuple[Array, Array, Array, Array]) -> Opinion:
        here, action, outcome, block_noise = block
        said = pool.predict(members, here, action)
        means = _with_reward(said.next_mean, said.reward_mean)
        stds = _with_reward(said.next_std, said.reward_std)
        spread = jnp.std(means, axis=0)
        levels = jax.scipy.stats.norm.cdf((outcome - means) / jnp.maximum(stds, least_std))
        end = said.done_probability
        if callable(termination):
            many_here, many_actions = (jnp.broadcast_to(x, (pool.size, *x.shape)) for x in (here, action))
            successors = said.next_mean + said.next_std * block_noise
            end = termination(many_here, many_actions, successors).astype(jnp.float32)
        return Opinion(
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

    said = jax.lax.map(ask_block, (cut(observations), cut(actions), cut(outcomes), cut(noise)))
    return jax.tree.map(lambda part: part.reshape(blocks * ROWS_AT_ONCE, -1)[:rows], said)


class Paths(NamedTuple):
    """States and rewards along rollouts, the reward in the last column."""

    sampled: Float[Array, "steps members each out"]
    """Through one member, with its noise."""
    mean: Float[Array, "steps members each out"]
    """Through the mean of all members, without noise."""


@eqx.filter_jit
def roll_out(
    pool: Pool,
    starts: Float[Array, "members each obs"],
    actions: Float[Array, "steps members each act"],
    noise: Float[Array, "steps members each out"],
) -> Paths:
    """Two open-loop rollouts from every start; the sampled one follows the member of the start's group."""
    members = jnp.arange(pool.size)
    one_member = jax.vmap(lambda member, rows, acts: pool.predict(member[None], rows, acts))

    def step(states: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple[tuple[Array, Array], Paths]:
        sampled, mean = states
        action, step_noise = inputs
        own = one_member(members, sampled, action)
        sampled = own.next_mean[:, 0] + own.next_std[:, 0] * step_noise[..., :-1]
        reward = own.reward_mean[:, 0] + own.reward_std[:, 0] * step_noise[..., -1]
        every = pool.predict(members, mean.reshape(-1, mean.shape[-1]), action.reshape(-1, action.shape[-1]))
        mean = jnp.mean(every.next_mean, axis=0).reshape(mean.shape)
        mean_reward = jnp.mean(every.reward_mean, axis=0).reshape(reward.shape)
        return (sampled, mean), Paths(_with_reward(sampled, reward), _with_reward(mean, mean_reward))

    return jax.lax.scan(step, (starts, starts), (actions, noise))[1]


def _with_reward(states: Float[Array, "*rows obs"], rewards: Float[Array, "*rows"]) -> Float[Array, "*rows out"]:
    return jnp.concatenate([states, rewards[..., None]], axis=-1)
