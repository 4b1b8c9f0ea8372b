"""Functions that users bring for their own tasks: found by name, fitted to any shape, tried on the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from phyb.errors import UsageError
from phyb.registry import import_object

RowFunction = Callable[[Any, Any, Any], Any]
"""(observations, actions, next_observations) to one value per row."""

_ROWS_AT_ONCE = 100_000


def load_function(word: str, option: str) -> RowFunction:
    """The function that package.module:function names; its module is imported.

    Raises:
        UsageError: the module cannot be imported or holds no such function.
    """
    function = import_object(word, option)
    if not callable(function):
        raise UsageError(f"{option} {word}: is {type(function).__name__}, not a function.")
    return function


def on_rows(function: RowFunction, label: str, kind: type[bool] | type[float]) -> RowFunction:
    """Let a function of plain rows take any leading shape, as imagination asks: members, samples, rows.

    Where the function does not give one value of this kind per row, the result raises UsageError.
    """

    def fitted(observations: Any, actions: Any, next_observations: Any) -> Any:
        shape = next_observations.shape[:-1]
        columns = (jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in (observations, actions, next_observations))
        rows = [x.reshape(-1, x.shape[-1]) for x in columns]
        found = jnp.asarray(function(*rows))
        fits = found.dtype == bool if kind is bool else jnp.issubdtype(found.dtype, jnp.floating)
        if not fits or found.shape != rows[0].shape[:1]:
            spoken = "boolean" if kind is bool else "number"
            raise UsageError(
                f"{label}: gave {found.dtype} of shape {found.shape}, expected one {spoken} per row: "
                f"{kind.__name__} of shape {rows[0].shape[:1]}."
            )
        return found.reshape(shape)

    return fitted


def on_log(
    function: RowFunction,
    label: str,
    observations: Float[np.ndarray, "rows obs"],
    actions: Float[np.ndarray, "rows act"],
    next_observations: Float[np.ndarray, "rows obs"],
) -> Shaped[np.ndarray, " rows"]:
    """The function's values on every logged row, compiled as training will use it.

    Raises:
        UsageError: the function fails on these rows; the message says how such a function is written.
    """
    compiled, found = jax.jit(function), []
    for first in range(0, len(observations), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        columns = [jnp.asarray(x[rows], jnp.float32) for x in (observations, actions, next_observations)]
        try:
            found.append(np.asarray(compiled(*columns)))
        except UsageError:
            raise
        except Exception as error:  # whatever the user's function raises
            said = (str(error).strip() or "no message").splitlines()[0].rstrip(".")
            raise UsageError(
                f"{label}: fails on logged rows of {observations.shape[1]} observations and {actions.shape[1]} "
                f"actions: {type(error).__name__}: {said}. Such a function takes arrays (rows, obs), (rows, act), "
                "(rows, obs) and is compiled: write it with operators or jax.numpy, without if."
            ) from error
    return np.concatenate(found)
