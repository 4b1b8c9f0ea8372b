"""From the arrays found in a file to a checked log: names, number types, successors, action bounds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from phyb.data._checks import check_actions, check_arrays, check_connected, rows_outside
from phyb.data._limits import problem
from phyb.data.formats import FILE_KEYS, FORMAT_VERSION, FileContent, provenance_of
from phyb.data.log import Log
from phyb.storage.mapped import blocks, rows_where, write_rows


def assemble(content: FileContent, source: str, action_bounds: tuple[ArrayLike, ArrayLike] | None) -> Log:
    """Turn what a file holds into a checked log; every liberty taken is recorded in its provenance."""
    provenance = _provenance(content, source)
    assumed: dict[str, str] = {}
    arrays = {}
    for field in FILE_KEYS:
        if field in content.arrays:
            array = content.arrays[field]
            array = array[:, 0] if array.ndim == 2 and field in ("rewards", "terminated", "truncated") else array
            is_flag = field in ("terminated", "truncated")
            arrays[field] = _flags(array, content.keys.get(field, field), source) if is_flag else to_float32(array)
    if "truncated" not in arrays:
        arrays["truncated"] = np.zeros(len(arrays["rewards"]), bool)
        assumed["timeouts"] = "absent from the file, taken as False on every row"
    check_arrays(arrays, source, content.keys)

    actions = arrays["actions"]
    low, high = _bounds(content, actions, action_bounds, assumed, source)
    check_actions(actions, low, high, source)
    _, moved = rows_where(actions, lambda block: ((actions[block] < low) | (actions[block] > high)).any(axis=1))
    if moved:
        provenance["clipped_actions"] = moved
        for block in blocks(actions):
            actions[block] = np.clip(actions[block], low, high)

    if "next_observations" not in arrays:
        arrays, provenance["dropped_rows"] = rebuild_successors(arrays, source)
    _extend(provenance, "assumed", assumed)
    env_id = content.metadata.get("env_id")
    log = Log(**arrays, action_low=low, action_high=high, env_id=env_id, provenance=provenance)
    check_connected(log.observations, log.next_observations, log.episode_ends, source)
    return log


def rebuild_successors(arrays: Mapping[str, np.ndarray], source: str) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Take each row's successor from the row after it, inside episodes only.

    The last row of an episode has no successor in such a file: the next row is the first state of another
    episode. It is dropped, whether the episode terminated, timed out or is the unfinished last one, and the
    row before it becomes the end of the episode, as truncated: its successor is real.

    Returns the arrays with `next_observations`, and how many rows were dropped for which reason.
    """
    terminated, truncated = arrays["terminated"], arrays["truncated"]
    ends = terminated | truncated
    ends[-1] = True
    kept = np.flatnonzero(~ends)
    if len(kept) == 0:
        advice = "Add next_observations: no row has its successor in the file"
        raise problem(source, "next_observations", "is missing, and every episode is one row long", advice)
    dropped = {
        "terminated": int(terminated.sum()),
        "truncated": int((truncated & ~terminated).sum()),
        "unfinished": int(not (terminated[-1] or truncated[-1])),
    }
    successors = _rows(arrays["observations"], kept + 1, "next_observations")
    rebuilt = {field: _rows(array, kept, field) for field, array in arrays.items()}
    return rebuilt | {"next_observations": successors, "truncated": ends[kept + 1]}, dropped


def _rows(array: np.ndarray, rows: np.ndarray, field: str) -> np.ndarray:
    """Some rows of an array, in another one; for an array on disk in a new file beside its own, or in its place."""
    if not isinstance(array, np.memmap):
        return array[rows]
    path = Path(str(array.filename))
    if path.stem != field:
        return write_rows(
            path.with_stem(field), (len(rows), *array.shape[1:]), array.dtype, lambda block: array[rows[block]]
        )
    for block in blocks(array[: len(rows)]):
        array[block] = array[rows[block]]  # no row moves up past one that is still to be read
    return array[: len(rows)]


def to_float32(array: ArrayLike) -> Float[np.ndarray, "*shape"]:
    """Cast to float32; numbers too large for it become infinite, for the check of finiteness to find."""
    if isinstance(array, np.memmap) and array.dtype == np.float32:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)


def _flags(array: np.ndarray, key: str, source: str) -> Bool[np.ndarray, " rows"]:
    if array.dtype != bool:
        odd = (array != 0) & (array != 1)
        if odd.any():
            row = int(np.argmax(odd))
            raise problem(source, key, f"found {array[row]:g}", "A flag is True or False, or 1 or 0", row)
    return array.astype(bool)


def _bounds(
    content: FileContent,
    actions: Float[np.ndarray, "rows act"],
    given: tuple[ArrayLike, ArrayLike] | None,
    assumed: dict[str, str],
    source: str,
) -> tuple[np.ndarray, np.ndarray]:
    size = actions.shape[1]
    low, high = content.metadata.get("action_low"), content.metadata.get("action_high")
    if given is not None:
        low, high = given
    elif low is None and high is None:
        low, high = np.full(size, -1, np.float32), np.full(size, 1, np.float32)
        assumed["action_bounds"] = "absent from the file, taken as [-1, 1] because every action lies inside"
        row, outside = rows_outside(actions, low, high)
        if outside:
            found = f"{actions[row].tolist()} is outside [-1, 1], and the file gives no bounds"
            advice = "Store the action range as file attributes action_low and action_high, one number per column"
            raise problem(source, "actions", found, advice, row)
    elif low is None or high is None:
        missing, there = ("action_low", "action_high") if low is None else ("action_high", "action_low")
        raise problem(source, missing, f"is missing, though {there} is given", "Store both bounds, or none")
    return _spread(low, size, "action_low", source), _spread(high, size, "action_high", source)


def _spread(bound: Any, size: int, name: str, source: str) -> np.ndarray:
    array = np.asarray(bound)
    if array.dtype.kind not in "iuf":
        raise problem(source, name, f"has type {array.dtype}", "Give one number per action column")
    return to_float32(np.full(size, array.item()) if array.size == 1 else array)


def _provenance(content: FileContent, source: str) -> dict[str, Any]:
    version = content.metadata.get("phyb_format", FORMAT_VERSION)
    if not isinstance(version, int | np.integer) or version > FORMAT_VERSION:
        found = f"is {version}; this version of phyb reads up to {FORMAT_VERSION}"
        raise problem(source, "phyb_format", found, "Install a newer phyb")
    provenance = provenance_of(content.metadata)
    _extend(provenance, "attributes", content.attributes)
    return provenance


def _extend(provenance: dict[str, Any], name: str, facts: Mapping[str, Any]) -> None:
    """Add facts to a group of the provenance. A file may hold anything there; what is no group gives way."""
    if facts:
        found = provenance.get(name)
        provenance[name] = {**(found if isinstance(found, dict) else {}), **facts}
