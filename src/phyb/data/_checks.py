"""What a log must be before anything may learn from it; every broken rule is a `DataError` with a remedy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float

from phyb.data._limits import RANKS, check_declaration, problem
from phyb.storage.mapped import column_std, rows_where

ACTION_TOLERANCE = 1e-5
"""How far an action may lie outside its bounds, as a share of their width: rounding, not a mistake."""


def check_arrays(arrays: Mapping[str, np.ndarray], source: str, keys: Mapping[str, str] | None = None) -> None:
    """Check type, rank, length, width and finiteness of the fields; `next_observations` may be absent.

    `keys` gives the names to use in messages where they differ from those of the schema.
    """
    keys = keys or {}
    for field, array in arrays.items():
        name = keys.get(field, field)
        if not isinstance(array, np.ndarray):
            advice = "Make it a NumPy array with np.asarray"
            raise problem(source, name, f"is a {type(array).__name__}, not an array", advice)
        check_declaration(source, field, name, array.shape, array.dtype, array.nbytes)
        if array.ndim != RANKS[field]:
            raise problem(source, name, f"has shape {array.shape}, expected (rows,)", "Flatten it")
        if field in ("terminated", "truncated") and array.dtype != bool:
            raise problem(source, name, f"has type {array.dtype}, expected bool", "Convert it with .astype(bool)")
    observations = arrays["observations"]
    rows, width = observations.shape
    for field, array in arrays.items():
        name = keys.get(field, field)
        if len(array) != rows:
            found = f"has {len(array):,} rows, observations has {rows:,}"
            raise problem(source, name, found, "Every field needs one entry per step; cut or complete it")
    if rows == 0:
        raise problem(source, "observations", "has no rows", "The log is empty; record some transitions")
    successors = arrays.get("next_observations", observations)
    if successors.shape[1] != width:
        found = f"has {successors.shape[1]} columns, observations has {width}"
        raise problem(source, "next_observations", found, "Both describe the same state; store the same columns")
    for field in ("observations", "actions", "rewards", "next_observations"):
        if field in arrays:
            _check_finite(arrays[field], field, source)


def check_actions(actions: Float[np.ndarray, "rows act"], low: np.ndarray, high: np.ndarray, source: str) -> None:
    """Check that the bounds are usable and that every action lies inside them, rounding aside."""
    size = actions.shape[1]
    for name, bound in (("action_low", low), ("action_high", high)):
        if not isinstance(bound, np.ndarray) or bound.shape != (size,) or bound.dtype.kind not in "iuf":
            found = f"has shape {np.shape(bound)}, expected ({size},) numbers"
            raise problem(source, name, found, "Give one bound per action column")
        if not np.isfinite(bound).all():
            raise problem(source, name, f"is {bound.tolist()}", "Give finite bounds; the policy needs a range")
    if not (low < high).all():
        column = int(np.argmin(low < high))
        found = f"is {low[column]:g} in column {column}, not below action_high {high[column]:g}"
        raise problem(source, "action_low", found, "Give a range, or drop an action column that never varies")
    row, count = rows_outside(actions, low, high)
    if count:
        column = int(np.argmax(outside_bounds(actions[row], low, high)))
        found = (
            f"{actions[row, column]:g} in column {column} is outside [{low[column]:g}, {high[column]:g}]"
            f" ({count:,} of {len(actions):,} rows are outside)"
        )
        advice = "Clip or rescale the actions, or correct action_low and action_high in the file"
        raise problem(source, "actions", found, advice, row)


def rows_outside(actions: Float[np.ndarray, "rows act"], low: np.ndarray, high: np.ndarray) -> tuple[int, int]:
    """The first row with an action outside its bounds by more than rounding, and how many there are."""
    return rows_where(actions, lambda block: outside_bounds(actions[block], low, high).any(axis=1))


def outside_bounds(
    actions: Float[np.ndarray, "*rows act"], low: np.ndarray, high: np.ndarray
) -> Bool[np.ndarray, "*rows act"]:
    """True where an action lies outside its bounds by more than rounding."""
    low, high = low.astype(np.float64), high.astype(np.float64)
    slack = ACTION_TOLERANCE * (high - low)
    return (actions < low - slack) | (actions > high + slack)


def check_connected(
    observations: Float[np.ndarray, "rows obs"],
    next_observations: Float[np.ndarray, "rows obs"],
    episode_ends: Bool[np.ndarray, " rows"],
    source: str,
) -> None:
    """Check that inside an episode each row leads to the state of the row after it, float noise aside."""
    if len(observations) < 2:
        return
    reached, recorded, inside = next_observations[:-1], observations[1:], ~episode_ends[:-1]
    spread = 1e-3 * column_std(observations).astype(np.float32)

    def apart(rows: slice | int) -> Bool[np.ndarray, "*rows obs"]:
        with np.errstate(over="ignore"):
            return np.abs(reached[rows] - recorded[rows]) > 1e-5 * np.abs(recorded[rows]) + spread

    row, count = rows_where(recorded, lambda block: apart(block).any(axis=1) & inside[block])
    if count == 0:
        return
    column = int(np.argmax(apart(row)))
    found = (
        f"leads to {reached[row, column]:g} in column {column}, but row {row + 1} of the same episode starts "
        f"at {recorded[row, column]:g} ({count:,} of {int(inside.sum()):,} steps inside episodes break)"
    )
    if 2 * count > int(inside.sum()):
        advice = (
            "Rows look shuffled, or these are not the successors of observations. Restore the order; if rows"
            " are independent transitions, set timeouts (truncated) to True on every row"
        )
    else:
        advice = "If an episode was cut here, set timeouts (truncated) to True on this row"
    raise problem(source, "next_observations", found, advice, row)


def _check_finite(array: np.ndarray, field: str, source: str) -> None:
    row, count = rows_where(array, lambda block: ~np.isfinite(array[block]).reshape(len(array[block]), -1).all(axis=1))
    if count == 0:
        return
    values = np.atleast_1d(array[row])
    column = int(np.argmin(np.isfinite(values)))
    where = f" in column {column}" if array.ndim == 2 else ""
    found = f"found {values[column]}{where} ({count:,} rows have such values)"
    raise problem(source, field, found, "Repair or remove these rows; numbers must be finite and fit float32", row)
