"""A replay buffer of imagined rows.

Rows are in the units of `Dataset.rows`: observations as they are, actions in [-1, 1], rewards divided by their range.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from phyb.data.dataset import Rows

Content = TypeVar("Content")


class ReplayBuffer(NamedTuple, Generic[Content]):
    """The newest rows; a new one takes the place of the oldest once all places are filled."""

    rows: Content
    """`Rows`, or any tree of arrays with rows along the first axis."""
    place: Int[Array, ""]
    """Where the next row goes."""
    filled: Int[Array, ""]
    """Rows that were ever written, as far as there are places."""

    @classmethod
    def empty(cls, capacity: int, observations: int, actions: int) -> ReplayBuffer[Rows]:
        """A buffer for `capacity` rows."""
        wide = (observations, actions, None, observations, None)
        rows = Rows(*(jnp.zeros((capacity,) if width is None else (capacity, width)) for width in wide))
        return ReplayBuffer(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def with_column(self) -> ReplayBuffer[tuple[Content, Array]]:
        """The empty buffer for rows that come with one more number each."""
        return ReplayBuffer((self.rows, jnp.zeros(self.capacity)), self.place, self.filled)

    @property
    def capacity(self) -> int:
        """Places for rows."""
        return jax.tree.leaves(self.rows)[0].shape[0]

    def add(self, rows: Content, counts: Bool[Array, "*rows"]) -> ReplayBuffer[Content]:
        """The buffer with those rows that count, of which there are no more than places."""
        rows, counts = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[counts.ndim :]), (rows, counts))
        capacity, new = self.capacity, jnp.sum(counts, dtype=jnp.int32)
        places = (self.place + jnp.cumsum(counts, dtype=jnp.int32) - 1) % capacity
        places = jnp.where(counts, places, capacity)  # beyond the end, where nothing is written
        written = jax.tree.map(lambda old, row: old.at[places].set(row, mode="drop"), self.rows, rows)
        return ReplayBuffer(written, (self.place + new) % capacity, jnp.minimum(self.filled + new, capacity))

    def sample(self, key: PRNGKeyArray, count: int) -> Content:
        """`count` of its rows, drawn with replacement."""
        chosen = jax.random.randint(key, (count,), 0, self.filled)
        return jax.tree.map(lambda leaf: leaf[chosen], self.rows)
