"""Fixed points to machine precision: Newton's method where it helps, the operator itself where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from phyb.errors import PhybError

Operator = Callable[[Array], Array]
SOLVED = 1e-12
"""Largest residual, relative to the size of the values, at which values count as a fixed point."""
MOST_STEPS, PLAIN_STEPS = 400, 40


class NoFixedPointError(PhybError):
    """An operator has no fixed point that the solver reaches."""


class FixedPoint(NamedTuple):
    """A fixed point of an operator and its residual.

    The values are guaranteed: not a number unless `|operator(V) - V| <= 1e-12 (1 + |V|)`. Where the operator is a
    gamma-contraction they are then within `1e-12 (1 + |V|) / (1 - gamma)` of its fixed point.
    """

    values: Float[Array, " states"]
    residual: Float[Array, ""]


class _Iterate(NamedTuple):
    """Values, the operator and its derivative there, and the residual."""

    values: Array
    after: Array
    slope: Array
    residual: Array


def fixed_point(operator: Operator, start: Float[Array, " states"], *, tolerance: float = 1e-13) -> FixedPoint:
    """Solve `V = operator(V)` from `start`; values are not a number where that fails, see `FixedPoint`.

    Each step tries a Newton step and keeps it only if its residual is below that of the plain iterate: the operator has
    kinks where ranks swap, and Newton may diverge there. Where plain iterates cycle, half steps converge. `tolerance`,
    relative to the size of the values, is where the search ends.
    """
    identity = jnp.eye(start.shape[0], dtype=start.dtype)

    def twice(values: Array) -> tuple[Array, Array]:
        after = operator(values)
        return after, after

    def evaluate(values: Array) -> _Iterate:
        slope, after = jax.jacfwd(twice, has_aux=True)(values)
        return _Iterate(values, after, slope, jnp.max(jnp.abs(after - values)) / (1.0 + jnp.max(jnp.abs(values))))

    def goes_on(state: tuple[_Iterate, Array]) -> Array:
        return ~(state[0].residual <= tolerance) & (state[1] < MOST_STEPS)

    def step(state: tuple[_Iterate, Array]) -> tuple[_Iterate, Array]:
        (values, after, slope, _), count = state
        newton = values + _solve(identity - slope, after - values)
        plain = jnp.where(count <= PLAIN_STEPS, after, 0.5 * (values + after))
        # Both evaluations in one call: the operator, which is most of the program, is compiled once.
        iterates = jax.vmap(evaluate)(jnp.stack([newton, plain]))
        better = iterates.residual[0] < iterates.residual[1]
        return jax.tree.map(lambda leaf: jnp.where(better, leaf[0], leaf[1]), iterates), count + 1

    nowhere = _Iterate(start, start, jnp.zeros_like(identity), jnp.full((), jnp.inf, start.dtype))
    found, _ = jax.lax.while_loop(goes_on, step, (nowhere, jnp.zeros((), jnp.int32)))
    return FixedPoint(jnp.where(found.residual <= SOLVED, found.values, jnp.nan), found.residual)


def _solve(matrix: Array, right_side: Array) -> Array:
    """Gauss-Jordan elimination without pivoting; written out it compiles several times faster than a library call.

    A Newton step that comes out inaccurate is not taken, so a missing pivot costs time, never correctness.
    """
    size = matrix.shape[0]
    if size > 8:
        return jnp.linalg.solve(matrix, right_side)
    rows = jnp.concatenate([matrix, right_side[:, None]], axis=1)
    for column in range(size):
        pivot = rows[column] / rows[column, column]
        # A choice by mask, because setting one row becomes a slow scatter once this is mapped over MDPs.
        rows = jnp.where(jnp.arange(size)[:, None] == column, pivot, rows - rows[:, column, None] * pivot)
    return rows[:, -1]
