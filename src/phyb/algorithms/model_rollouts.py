"""Short imagined rollouts from logged states, and a memory of their rows, for algorithms that mix both with the log.

All rows are in the units of `problem.rows`: observations as they are, actions in [-1, 1], rewards divided by their
range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from phyb.data.dataset import Rows
from phyb.dynamics.pool import Pool
from phyb.world.model import WorldModel

Act = Callable[[PRNGKeyArray, Array], Array]
"""(key, observations) to actions in [-1, 1]."""
Step = Callable[[PRNGKeyArray, Array, Array, Array], tuple[Rows, Array]]
"""(key, observations, actions, alive) to one row per rollout, and which of them count."""


def elite_members(pool: Pool, count: int) -> Int[Array, " elites"]:
    """The `count` members that predict the hold-out rows best, best first; all of them if there are no more."""
    return jnp.argsort(pool.holdout_nll)[:count]


def outcomes(
    key: PRNGKeyArray,
    world: WorldModel,
    members: Int[Array, " asked"],
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows act"],
    count: int,
) -> Rows:
    """`count` outcomes of each row, along a new first axis. Each is drawn from one member, drawn uniformly itself."""
    member_key, noise_key, end_key = jax.random.split(key, 3)
    env_actions = world.env_action(actions)
    told = world.pool.predict(members, observations, env_actions)
    shape = (count, observations.shape[0])
    chosen, row = jax.random.randint(member_key, shape, 0, members.shape[0]), jnp.arange(shape[1])
    noise = jax.random.normal(noise_key, (*shape, observations.shape[1] + 1))
    successors = told.next_mean[chosen, row] + told.next_std[chosen, row] * noise[..., :-1]
    if world.reward is None:
        rewards = told.reward_mean[chosen, row] + told.reward_std[chosen, row] * noise[..., -1]
    else:
        rewards = world.reward(observations, env_actions, successors)
    if world.termination == "none":
        ends = jnp.zeros(shape)
    elif world.termination == "learned":
        ends = jax.random.uniform(end_key, shape) < told.done_probability[chosen, row]
    else:
        assert callable(world.termination)
        ends = world.termination(observations, env_actions, successors)
    return Rows(
        jnp.broadcast_to(observations, successors.shape),
        jnp.broadcast_to(actions, (*shape, actions.shape[1])),
        rewards / world.reward_scale,
        successors,
        ends.astype(successors.dtype),
    )


def roll_out(
    key: PRNGKeyArray, act: Act, step: Step, starts: Float[Array, "rollouts obs"], length: int
) -> tuple[Rows, Bool[Array, " rows"]]:
    """The rows of `length` steps from each start, and which of them count: those up to the end of their rollout."""

    def one(carry: tuple[Array, Array], key: PRNGKeyArray) -> tuple[tuple[Array, Array], tuple[Rows, Array]]:
        act_key, step_key = jax.random.split(key)
        observations, alive = carry
        rows, counts = step(step_key, observations, act(act_key, observations), alive)
        return (rows.next_observations, counts & (rows.terminated == 0)), (rows, counts)

    alive = jnp.ones(starts.shape[0], bool)
    _, found = jax.lax.scan(one, (starts, alive), jax.random.split(key, length))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)


class Memory(NamedTuple):
    """The newest imagined rows; a new one takes the place of the oldest once all places are filled."""

    rows: Rows
    place: Int[Array, ""]
    """Where the next row goes."""
    filled: Int[Array, ""]
    """Rows that were ever written, as far as there are places."""

    @classmethod
    def empty(cls, capacity: int, observations: int, actions: int) -> Memory:
        """A memory for `capacity` rows."""
        wide = (observations, actions, None, observations, None)
        rows = Rows(*(jnp.zeros((capacity,) if width is None else (capacity, width)) for width in wide))
        return cls(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def add(self, rows: Rows, counts: Bool[Array, " rows"]) -> Memory:
        """The memory with those rows that count, of which there are no more than places."""
        capacity, new = self.rows.rewards.shape[0], jnp.sum(counts, dtype=jnp.int32)
        places = (self.place + jnp.cumsum(counts, dtype=jnp.int32) - 1) % capacity
        places = jnp.where(counts, places, capacity)  # beyond the end, where nothing is written
        written = jax.tree.map(lambda old, row: old.at[places].set(row, mode="drop"), self.rows, rows)
        return Memory(written, (self.place + new) % capacity, jnp.minimum(self.filled + new, capacity))

    def sample(self, key: PRNGKeyArray, count: int) -> Rows:
        """`count` of its rows, drawn with replacement."""
        chosen = jax.random.randint(key, (count,), 0, self.filled)
        return jax.tree.map(lambda leaf: leaf[chosen], self.rows)
