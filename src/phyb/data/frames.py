"""A log from a data frame: anything with named columns. No frame library is imported here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from phyb.data._assemble import to_float32
from phyb.data._limits import problem
from phyb.data.arrays import content_of_arrays, refuse_choices
from phyb.data.columns import Columns
from phyb.data.formats import FileContent
from phyb.errors import MissingExtraError

_FLAGS = ("terminated", "truncated")


def content_of_frame(
    frame: Any,
    columns: Columns,
    *,
    action_bounds: tuple[ArrayLike, ArrayLike] | None = None,
    env_id: str | None = None,
    source: str = "the frame",
) -> FileContent:
    """The fields of a log from the columns of a frame; `Log.from_frame` says what each is.

    Raises:
        DataError: a column is missing or cannot be used; the message names column, row, and what was found.
    """
    table = table_of(frame, source)
    _refuse_absent(columns, table, source)
    assert columns.reward is not None

    def stack(names: Iterable[str]) -> np.ndarray:
        return np.stack([to_float32(numbers(table[name], name, source)) for name in names], axis=1)

    for name in columns.actions:
        if not columns.amounts:
            refuse_choices(numbers(table[name], name, source), name, source)
    given: dict[str, ArrayLike | None] = {
        "observations": stack(columns.observations),
        "actions": stack(columns.actions),
        "rewards": numbers(table[columns.reward], columns.reward, source),
    }
    if columns.next_observations:
        given["next_observations"] = stack(columns.next_observations)
    given |= {role: flags(table[name], name, source) for role in _FLAGS if (name := getattr(columns, role)) is not None}
    return content_of_arrays(
        given,
        episode=None if columns.episode is None else np.asarray(table[columns.episode]),
        time=None if columns.time is None else np.asarray(table[columns.time]),
        action_bounds=action_bounds,
        env_id=env_id,
        names={"observations": columns.observations, "actions": columns.actions},
        source=source,
    )


def table_of(frame: Any, source: str) -> dict[str, Any]:
    """The columns of a frame by name, each something that NumPy can read.

    A mapping of columns, pandas and Polars are read as they are; whatever else exports Arrow (the PyCapsule protocol:
    PyArrow, DuckDB and others) is read with PyArrow.
    """
    if isinstance(frame, Mapping):
        names, found = list(frame), frame
    elif hasattr(frame, "to_numpy") and hasattr(frame, "columns"):
        names, found = list(frame.columns), frame
    elif hasattr(frame, "__arrow_c_stream__"):
        found = arrow("reading this frame").table(frame)
        names = found.column_names
    else:
        advice = (
            "Give a pandas or Polars data frame, an Arrow table, or a dict of columns (a lazy frame: .collect() it)"
        )
        raise problem(source, None, f"is a {type(frame).__name__}, not a table", advice)
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise problem(source, str(twice), "is the name of two columns", "Rename or remove one of them")
    return {name: found[name] for name in names}


def arrow(purpose: str) -> Any:
    """PyArrow.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("frames", purpose) from error
    return pyarrow


def kind_of(column: Any) -> str:
    """What a column holds: "number", "flag", "text", "date", "nested", or "nothing" if all is missing."""
    values = np.asarray(column)
    if values.ndim != 1:
        return "nested"
    if values.dtype.kind != "O":
        return {"b": "flag", "i": "number", "u": "number", "f": "number", "M": "date", "m": "date"}.get(
            values.dtype.kind, "text"
        )
    first = next((value for value in values.tolist() if not _missing(value)), None)
    if first is None:
        return "nothing"
    if isinstance(first, bool):
        return "flag"
    if isinstance(first, str | bytes):  # a wrong cell makes text of a column of numbers; its row is found later
        return "number" if _is_written_number(first) else "text"
    return "number" if _number(first) is not None else "nested"


def numbers(column: Any, name: str, source: str) -> np.ndarray:
    """A column as numbers that fit float32, in the type they have.

    Raises:
        DataError: one of them is missing or no number; the message names the row.
    """
    values = np.asarray(column)
    if values.ndim != 1:
        raise _nested(source, name, values[0] if len(values) else values)
    if values.dtype.kind in "mM":
        advice = "Turn it into a number, such as seconds since the start of the episode; as `time` dates are fine"
        raise problem(source, name, f"holds dates; found {values[0]}", advice, 0)
    if values.dtype.kind not in "biuf":
        values = np.array([_parsed(value, name, row, source) for row, value in enumerate(values.tolist())], float)
    bad = ~np.isfinite(to_float32(values))
    if bad.any():
        row, count = int(np.argmax(bad)), int(bad.sum())
        if np.isnan(values[row]):
            raise _absent(source, name, row, count)
        advice = "Repair it; numbers must be finite and fit float32"
        raise problem(source, name, f"found {values[row]:g} ({count:,} such rows)", advice, row)
    return values


def flags(column: Any, name: str, source: str) -> np.ndarray:
    """A column as True and False."""
    values = numbers(column, name, source)
    odd = (values != 0) & (values != 1)
    if odd.any():
        row = int(np.argmax(odd))
        raise problem(source, name, f"found {values[row]:g}", "A flag is True or False, or 1 or 0", row)
    return values.astype(bool)


def _parsed(value: Any, name: str, row: int, source: str) -> float:
    if _missing(value):
        return math.nan
    number = _number(value)
    if number is not None:
        return number
    if isinstance(value, str | bytes) and _is_written_number(value):
        return float(value)
    if isinstance(value, str | bytes):
        advice = (
            "Only numbers can be used. If this cell is a mistake, repair it; if the column holds categories, make one "
            "column of 0 and 1 of each, or leave the column out"
        )
        raise problem(source, name, f"found {value!r:.40}", advice, row)
    raise _nested(source, name, value, row)


def _number(value: Any) -> float | None:
    if isinstance(value, str | bytes) or np.ndim(value):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _is_written_number(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _missing(value: Any) -> bool:
    return value is None or str(value) in ("<NA>", "NaT") or (isinstance(value, float) and math.isnan(value))


def _absent(source: str, name: str, row: int, count: int) -> Exception:
    advice = (
        "Nothing is filled in here. Fill the gaps with a rule of your own (the last known value, plus a column that "
        "says so), or remove these rows and give what follows another episode"
    )
    return problem(source, name, f"is missing ({count:,} such rows)", advice, row)


def _nested(source: str, name: str, value: Any, row: int = 0) -> Exception:
    shape = f" of shape {np.shape(value)}" if isinstance(value, np.ndarray) else ""
    advice = (
        "One column holds one number per row: spread a vector over columns. Images are not supported; encode them "
        "into some numbers first"
    )
    return problem(source, name, f"holds a {type(value).__name__}{shape} in each row", advice, row)


def _refuse_absent(columns: Columns, table: Mapping[str, Any], source: str) -> None:
    """Refuse roles without a column, columns that are not there, and columns of different lengths."""
    for role in ("observations", "actions", "reward"):
        if not getattr(columns, role):
            advice = f"Name at least one; the columns are {_listing(table)}"
            raise problem(source, None, f"no column is given for {role}", advice)
    for name in columns.used():
        if name not in table:
            raise problem(source, str(name), "there is no such column", f"The columns are {_listing(table)}")
    wrong = len(columns.next_observations) not in (0, len(columns.observations))
    if wrong:
        found = f"has {len(columns.next_observations)} columns, observations has {len(columns.observations)}"
        raise problem(source, "next_observations", found, "Name the same columns in the same order")
    first, *others = columns.used()
    for name in others:
        if len(table[name]) != len(table[first]):
            found = f"has {len(table[name]):,} rows, {first} has {len(table[first]):,}"
            raise problem(source, str(name), found, "Every column needs one entry per step")


def _listing(table: Mapping[str, Any]) -> str:
    return ", ".join(map(str, list(table)[:20])) or "none"
