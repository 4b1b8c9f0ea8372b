"""Neighbouring states of a log: how far apart they are, and how each row ranks among those of nearly the same state.

Distances are summed column by column, so that equal states are at distance 0 and close ones keep their digits. A block
of rows is compared with the whole log at a time: memory does not grow with the square of the log.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

_BLOCK = 2**22
"""Distances held at a time."""


def squared_distances(row: Float[Array, " obs"], columns: Float[Array, "obs all"]) -> Float[Array, " all"]:
    """`|s - s_j|^2` from one state to all, which are given by their columns."""

    def add(column: Array, total: Array) -> Array:
        return total + (row[column] - columns[column]) ** 2

    return jax.lax.fori_loop(0, len(row), add, jnp.zeros(columns.shape[1]))


def typical_gap(observations: Float[Array, "all obs"], most: int = 2048) -> Float[Array, ""]:
    """Mean distance from a state to the nearest other one, over `most` rows evenly spread over the log.

    Copies of a state do not count as others. The mean is 0 if there is but one state.
    """
    count, columns = len(observations), observations.T
    chosen = jnp.linspace(0.0, count - 1.0, min(count, most)).astype(jnp.int32)

    def nearest(row: Array) -> Array:
        square = squared_distances(observations[row], columns)
        return jnp.sqrt(jnp.min(square, where=square > 0, initial=jnp.inf))

    found = jax.lax.map(nearest, chosen, batch_size=max(1, min(len(chosen), _BLOCK // count)))
    return jnp.mean(jnp.where(jnp.isfinite(found), found, 0.0))


def cluster_shares(
    observations: Float[Array, "all obs"],
    scores: Float[Array, " all"],
    chosen: Int[Array, " rows"],
    radius: Float[Array, ""],
    most: int,
) -> Float[Array, " rows"]:
    """`exp(score_i - log sum_j exp score_j)` of the chosen rows i, over the rows j of the cluster of i.

    The cluster is the row itself and the nearest others, `most` in all, those beyond the radius left out. Of rows that
    are equally near, copies of a state among them, the first in the log count.
    """
    most, columns = min(most, len(observations)), observations.T

    def share(row: Array) -> Array:
        square = squared_distances(observations[row], columns).at[row].set(-1.0)
        nearness, others = jax.lax.top_k(-square, most)
        within = nearness >= -(radius**2)
        return jnp.exp(scores[row] - jax.nn.logsumexp(scores[others], where=within))

    return jax.lax.map(share, chosen, batch_size=max(1, min(len(chosen), _BLOCK // len(observations))))
