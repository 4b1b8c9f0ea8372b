"""Fixed points to machine precision: Newton's method where it helps, the operator itself where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from phyb.errors import PhybError

Operator = Callable[[Array], Array]
SOLVED = 1e-12
"""Largest residual, relative to the size of the values, at which values count as a fixed point."""
MOST_STEPS, PLAIN_STEPS = 400, 40


class NoFixedPointError(PhybError):
    """An operator has no fixed point that the solver reaches."""


class FixedPoint(NamedTuple):
    """Where an operator stands still, how still, and after how many steps.

    The values are guaranteed: not a number unless `|operator(V) - V| <= 1e-12 (1 + |V|)`. Where the operator is a
    gamma-contraction they are then within `1e-12 (1 + |V|) / (1 - gamma)` of its fixed point.
    """

    values: Float[Array, " states"]
    residual: Float[Array, ""]
    steps: Int[Array, ""]


class _Look(NamedTuple):
    """Values, where the operator takes them, its derivative there, and how far they moved."""

    values: Array
    after: Array
    slope: Array
    residual: Array


def fixed_point(operator: Operator, start: Float[Array, " states"], *, tolerance: float = 1e-13) -> FixedPoint:
    """Solve `V = operator(V)` from `start`; values are not a number where that fails, see `FixedPoint`.

    Each step tries Newton's point and keeps it only if it stands stiller than the plain iterate: ranks that swap make
    the operator kinked, and there Newton may wander. Where plain iterates run in a circle, half steps lead inside.
    `tolerance`, relative to the size of the values, is where the search ends.
    """
    identity = jnp.eye(start.shape[0], dtype=start.dtype)

    def twice(values: Array) -> tuple[Array, Array]:
        after = operator(values)
        return after, after

    def look(values: Array) -> _Look:
        slope, after = jax.jacfwd(twice, has_aux=True)(values)
        return _Look(values, after, slope, jnp.max(jnp.abs(after - values)) / (1.0 + jnp.max(jnp.abs(values))))

    def goes_on(state: tuple[_Look, Array]) -> Array:
        return ~(state[0].residual <= tolerance) & (state[1] < MOST_STEPS)

    def step(state: tuple[_Look, Array]) -> tuple[_Look, Array]:
        (values, after, slope, _), count = state
        newton = values + _solve(identity - slope, after - values)
        plain = jnp.where(count <= PLAIN_STEPS, after, 0.5 * (values + after))
        # Both looks in one call: the operator, which is most of the program, is compiled once.
        looks = jax.vmap(look)(jnp.stack([newton, plain]))
        better = looks.residual[0] < looks.residual[1]
        return jax.tree.map(lambda leaf: jnp.where(better, leaf[0], leaf[1]), looks), count + 1

    nowhere = _Look(start, start, jnp.zeros_like(identity), jnp.full((), jnp.inf, start.dtype))
    found, count = jax.lax.while_loop(goes_on, step, (nowhere, jnp.zeros((), jnp.int32)))
    return FixedPoint(jnp.where(found.residual <= SOLVED, found.values, jnp.nan), found.residual, count)


def iterate(operator: Operator, start: Float[Array, " states"], steps: int) -> Float[Array, " states"]:
    """The operator applied `steps` times, nothing else: where repeated application itself leads."""
    return jax.lax.fori_loop(0, steps, lambda _, values: operator(values), start)


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
        # A choice by mask, because setting one row becomes a slow scatter once this is mapped over worlds.
        rows = jnp.where(jnp.arange(size)[:, None] == column, pivot, rows - rows[:, column, None] * pivot)
    return rows[:, -1]
