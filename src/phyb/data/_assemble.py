"""From the arrays found in a file to a checked log: names, number types, successors, action bounds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from phyb.data._checks import check_actions, check_arrays, check_connected, problem, rows_outside
from phyb.data.log import Log
from phyb.storage.mapped import blocks, rows_where, write_rows

FORMAT_VERSION = 1
FILE_KEYS = {
    "observations": ("observations",),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "next_observations": ("next_observations",),
    "terminated": ("terminals", "terminated"),
    "truncated": ("timeouts", "truncated"),
}
"""Each field of the schema with the names it may have in a file; the first is the one we write."""
METADATA = ("env_id", "action_low", "action_high", "provenance", "phyb_format")
_OPTIONAL = ("next_observations", "truncated")


@dataclasses.dataclass(frozen=True)
class Raw:
    """What a file holds: by field the stored arrays and their names there; metadata; other attributes."""

    arrays: Mapping[str, np.ndarray]
    keys: Mapping[str, str]
    metadata: Mapping[str, Any]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def find_keys(present: list[str], source: str) -> dict[str, str]:
    """Which key of the file holds which field. Raises when a field is missing or given twice."""
    found: dict[str, str] = {}
    for field, names in FILE_KEYS.items():
        keys = [name for name in names if name in present]
        if len(keys) > 1:
            raise problem(source, keys[0], f"is given twice, also as {keys[1]}", "Keep one of the two")
        if keys:
            found[field] = keys[0]
        elif field not in _OPTIONAL:
            listing = ", ".join(sorted(present)[:20]) or "nothing"
            raise problem(source, names[0], f"is missing; the file holds {listing}", "Add it; see docs/data.md")
    if "next_observations" not in found and "truncated" not in found:
        advice = "Without both, episode ends are unknown: add timeouts (all False if there were none)"
        raise problem(source, "timeouts", "is missing, and so is next_observations", advice)
    return found


def assemble(raw: Raw, source: str, action_bounds: tuple[ArrayLike, ArrayLike] | None) -> Log:
    """Turn what a file holds into a checked log; every liberty taken is recorded in its provenance."""
    provenance = _provenance(raw, source)
    assumed: dict[str, str] = {}
    arrays = {}
    for field in FILE_KEYS:
        if field in raw.arrays:
            array = raw.arrays[field]
            array = array[:, 0] if array.ndim == 2 and field in ("rewards", "terminated", "truncated") else array
            is_flag = field in ("terminated", "truncated")
            arrays[field] = _flags(array, raw.keys[field], source) if is_flag else to_float32(array)
    if "truncated" not in arrays:
        arrays["truncated"] = np.zeros(len(arrays["rewards"]), bool)
        assumed["timeouts"] = "absent from the file, taken as False on every row"
    check_arrays(arrays, source, raw.keys)

    actions = arrays["actions"]
    low, high = _bounds(raw, actions, action_bounds, assumed, source)
    check_actions(actions, low, high, source)
    _, moved = rows_where(actions, lambda block: ((actions[block] < low) | (actions[block] > high)).any(axis=1))
    if moved:
        provenance["clipped_actions"] = moved
        for block in blocks(actions):
            actions[block] = np.clip(actions[block], low, high)

    if "next_observations" not in arrays:
        arrays, provenance["dropped_rows"] = rebuild_successors(arrays, source)
    if assumed:
        provenance["assumed"] = {**_group(provenance, "assumed"), **assumed}
    env_id = raw.metadata.get("env_id")
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
    raw: Raw,
    actions: Float[np.ndarray, "rows act"],
    given: tuple[ArrayLike, ArrayLike] | None,
    assumed: dict[str, str],
    source: str,
) -> tuple[np.ndarray, np.ndarray]:
    size = actions.shape[1]
    low, high = raw.metadata.get("action_low"), raw.metadata.get("action_high")
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


def _provenance(raw: Raw, source: str) -> dict[str, Any]:
    version = raw.metadata.get("phyb_format", FORMAT_VERSION)
    if not isinstance(version, int | np.integer) or version > FORMAT_VERSION:
        found = f"is {version}; this version of phyb reads up to {FORMAT_VERSION}"
        raise problem(source, "phyb_format", found, "Install a newer phyb")
    text = raw.metadata.get("provenance")
    provenance: dict[str, Any] = {}
    if text is not None:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = text
        provenance = dict(content) if isinstance(content, dict) else {"note": content}
    if raw.attributes:
        provenance["attributes"] = {**_group(provenance, "attributes"), **raw.attributes}
    return provenance


def _group(provenance: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object in the provenance of a file, which may hold anything; what is no object gives way."""
    found = provenance.get(name)
    return found if isinstance(found, dict) else {}
