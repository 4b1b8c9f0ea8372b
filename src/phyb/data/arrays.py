"""A log from plain arrays: where episodes begin and end, which state each row led to, and what had to be assumed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from phyb.data._assemble import to_float32
from phyb.data._checks import check_actions, check_arrays
from phyb.data._limits import problem
from phyb.data.formats import FileContent

MOST_CHOICES = 32
"""Whole-numbered actions with at most so many values are taken for choices between things, not for amounts."""
_SHOWN = 10
"""Row numbers that a note names."""


def content_of_arrays(
    given: Mapping[str, ArrayLike | None],
    *,
    episode: ArrayLike | None = None,
    time: ArrayLike | None = None,
    action_bounds: tuple[ArrayLike, ArrayLike] | None = None,
    env_id: str | None = None,
    names: Mapping[str, Sequence[str]] | None = None,
    source: str = "the arrays",
) -> FileContent:
    """The fields of a log, complete, from those that are given; `Log.from_arrays` says what the arguments mean.

    Row numbers in messages and notes are those of the arrays given, whatever order the rows end up in.

    Raises:
        DataError: an array cannot be used; the message names field and row.
    """
    arrays = {field: _plain(array, field, source) for field, array in given.items() if array is not None}
    check_arrays(arrays, source)
    low, high, assumed = _bounds(arrays["actions"], action_bounds)
    check_actions(arrays["actions"], low, high, source)
    order, ends = _episodes(arrays, episode, time, source)
    arrays = {field: array[order] for field, array in arrays.items()}
    terminated = arrays.setdefault("terminated", np.zeros(len(order), bool))
    marked = arrays.get("truncated", np.zeros(len(order), bool))
    both = int((terminated & marked).sum())
    arrays["truncated"] = marked | (ends & ~terminated)
    assumed |= _notes(given, episode, time, both, int((arrays["truncated"] & ~marked).sum()))
    provenance: dict[str, Any] = {"assumed": assumed}
    if "next_observations" not in arrays:
        arrays, dropped = _with_successors(arrays, ends, source)
        if len(dropped):
            provenance["dropped_rows"] = {"truncated": len(dropped)}
            provenance["dropped_row_numbers"] = order[dropped][:_SHOWN].tolist()
        ended = int(arrays["terminated"].sum())
        if ended:
            assumed["next_observations"] = (
                f"not given for {ended:,} terminal rows, taken as the row's own observation: nothing counts after "
                "them, but models of the dynamics see no change there"
            )
    if names:
        provenance["names"] = {field: [str(word) for word in words] for field, words in names.items()}
    metadata = {"action_low": low, "action_high": high, "provenance": json.dumps(provenance)}
    return FileContent(arrays, metadata=metadata if env_id is None else {**metadata, "env_id": env_id})


def refuse_choices(values: np.ndarray, name: str, source: str) -> None:
    """Refuse whole-numbered actions of a few values: their order may mean nothing.

    Raises:
        DataError: the values look like choices.
    """
    if values.dtype.kind not in "biu":
        return
    found = np.unique(values)
    if len(found) <= MOST_CHOICES:
        some = ", ".join(map(str, found[:6])) + ", ..." * (len(found) > 6)
        raise problem(
            source,
            name,
            f"holds {len(found)} different whole numbers ({some}): discrete actions, it seems",
            "Policies choose continuous actions. If the numbers measure an amount, such as a dose, make them float "
            "(astype(float), or amounts = true in a map of columns); a policy will then choose numbers in between too",
        )


def _plain(given: ArrayLike, field: str, source: str) -> np.ndarray:
    """Numbers as float32, flags as bool."""
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise problem(source, field, f"is not an array ({error})", "Give every row as many numbers") from error
    if array.dtype.kind not in "biuf":
        advice = "Store plain numbers; text, dates and images have to become numbers first"
        raise problem(source, field, f"has type {array.dtype}", advice)
    if field in ("terminated", "truncated"):
        odd = (array != 0) & (array != 1)
        if odd.any():
            row = int(np.argmax(odd.reshape(len(array), -1).any(axis=1)))
            found = f"found {np.atleast_1d(array[row])[0]:g}"
            raise problem(source, field, found, "A flag is True or False, or 1 or 0", row)
        return array.astype(bool)
    if field == "actions":
        for column in array.T if array.ndim == 2 else ():
            refuse_choices(column, field, source)
    return to_float32(array)


def _bounds(
    actions: Float[np.ndarray, "rows act"], given: tuple[ArrayLike, ArrayLike] | None
) -> tuple[np.ndarray, np.ndarray, dict[str, str]]:
    if given is None:
        note = "not given, taken as the lowest and the highest value of each column; a policy stays inside"
        return actions.min(axis=0), actions.max(axis=0), {"action_bounds": note}
    low, high = (
        to_float32(np.full(actions.shape[1], np.asarray(bound).item()) if np.size(bound) == 1 else bound)
        for bound in given
    )
    return low, high, {}


def _episodes(
    arrays: Mapping[str, np.ndarray], episode: ArrayLike | None, time: ArrayLike | None, source: str
) -> tuple[Int[np.ndarray, " rows"], Bool[np.ndarray, " rows"]]:
    """The order in which the rows follow each other, and on which rows in this order an episode ends."""
    rows = len(arrays["rewards"])
    order, flags = np.arange(rows), [arrays[name] for name in ("terminated", "truncated") if name in arrays]
    last = np.arange(rows) == rows - 1
    if episode is None and time is None:
        if not flags and "next_observations" not in arrays:
            advice = (
                "Give episode (which one each row belongs to), or terminated and truncated; or a time that starts anew"
            )
            raise problem(source, None, "nothing says where episodes end", advice)
        return order, np.any([*flags, last], axis=0)
    codes = None if episode is None else _codes(episode, rows, source)
    moments = None if time is None else _moments(time, rows, source)
    if codes is None:
        assert moments is not None
        begins = moments[1:] <= moments[:-1]
    else:
        if moments is not None:
            order = np.lexsort((moments, codes))
            _refuse_twins(codes[order], moments[order], order, source)
        else:
            _refuse_returning(codes, np.asarray(episode), source)
        begins = codes[order][1:] != codes[order][:-1]
    ends = np.append(begins, True)
    for name in ("terminated", "truncated"):
        inside = arrays[name][order] & ~ends if name in arrays else np.zeros(rows, bool)
        if inside.any():
            row = int(order[np.argmax(inside)])
            advice = (
                f"Mark only the last row of an episode ({int(inside.sum()):,} rows are marked before it). If the flags "
                "alone say where episodes end, leave out episode and time"
            )
            raise problem(source, name, "is True, but the episode goes on", advice, row)
    return order, ends


def _codes(episode: ArrayLike, rows: int, source: str) -> Int[np.ndarray, " rows"]:
    """The number of each row's episode, counted in the order in which episodes appear."""
    ids = _column(episode, "episode", rows, source)
    seen: dict[Any, int] = {}
    codes = np.empty(rows, np.int64)
    for row, name in enumerate(ids.tolist()):
        if name is None or name != name or str(name) in ("<NA>", "NaT"):
            raise problem(source, "episode", "is missing", "Say which episode the row belongs to, or remove it", row)
        codes[row] = seen.setdefault(name, len(seen))
    return codes


def _moments(time: ArrayLike, rows: int, source: str) -> np.ndarray:
    moments = _column(time, "time", rows, source)
    if moments.dtype.kind not in "biufmM":
        advice = "Give numbers, or dates of a date type"
        raise problem(source, "time", f"has type {moments.dtype}; found {moments[0]!r:.40}", advice, 0)
    missing = np.isnat(moments) if moments.dtype.kind in "mM" else ~np.isfinite(moments)
    if missing.any():
        row = int(np.argmax(missing))
        raise problem(source, "time", f"found {moments[row]}", "Fill it in, or remove the row", row)
    return moments


def _column(given: ArrayLike, name: str, rows: int, source: str) -> np.ndarray:
    array = np.asarray(given)
    if array.shape != (rows,):
        raise problem(source, name, f"has shape {array.shape}, expected ({rows},)", "Give one value per row")
    return array


def _refuse_twins(codes: np.ndarray, moments: np.ndarray, order: np.ndarray, source: str) -> None:
    twins = (codes[1:] == codes[:-1]) & (moments[1:] == moments[:-1])
    if twins.any():
        first, second = order[int(np.argmax(twins)) :][:2].tolist()
        found = f"is the same as in row {first} of the same episode"
        raise problem(source, "time", found, "Remove one of the rows, or give different episodes different ids", second)


def _refuse_returning(codes: np.ndarray, ids: np.ndarray, source: str) -> None:
    begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    again = np.diff(codes[begins]) < 0  # codes count up as episodes appear: a step back is one that was there before
    if again.any():
        row = int(begins[1:][np.argmax(again)])
        raise problem(
            source,
            "episode",
            f"{ids[row]} comes back after rows of other episodes",
            "If rows of several episodes alternate, give time, by which they are put in order; if this is another "
            "episode, give it another id",
            row,
        )


def _with_successors(
    arrays: Mapping[str, np.ndarray], ends: Bool[np.ndarray, " rows"], source: str
) -> tuple[dict[str, np.ndarray], Int[np.ndarray, " dropped"]]:
    """Take each row's successor from the row after it; drop the ends of episodes that did not terminate.

    The row before a dropped one is where the recording stops now; its successor is known.
    """
    terminated, truncated = arrays["terminated"], arrays["truncated"].copy()
    kept = ~ends | terminated
    if not kept.any():
        advice = "Give next_observations: no row has its successor in the row after it"
        raise problem(source, None, "every episode is one row long, and none terminates", advice)
    successors = np.roll(arrays["observations"], -1, axis=0)
    successors[terminated] = arrays["observations"][terminated]
    before = np.flatnonzero(~kept) - 1
    before = before[before >= 0]
    truncated[before[~ends[before]]] = True
    arrays = {**arrays, "truncated": truncated, "next_observations": successors}
    return {field: array[kept] for field, array in arrays.items()}, np.flatnonzero(~kept)


def _notes(
    given: Mapping[str, ArrayLike | None], episode: ArrayLike | None, time: ArrayLike | None, both: int, cut: int
) -> dict[str, str]:
    """What is assumed about the ends of episodes."""
    notes = {}
    if given.get("terminated") is None:
        notes["terminated"] = "not given, taken as False on every row: every end of an episode counts as a time-out"
    if given.get("truncated") is None and cut and (episode is not None or time is not None):
        notes["truncated"] = f"not given; {cut:,} episodes that do not terminate end in a time-out"
    elif given.get("truncated") is None and given.get("terminated") is not None and episode is None and time is None:
        notes["truncated"] = "not given: every marked end counts as terminated, and nothing is earned after it"
    if both:
        notes["ends"] = f"{both:,} rows are marked as both terminated and truncated; they count as terminated"
    return notes
