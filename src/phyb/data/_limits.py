"""Limits on what a file may ask for: headers are checked before memory is set aside for what they declare."""

from __future__ import annotations

import os

import numpy as np

from phyb.errors import DataError

RANKS = {
    "observations": 2,
    "actions": 2,
    "rewards": 1,
    "next_observations": 2,
    "terminated": 1,
    "truncated": 1,
}
# Deflate, the only compression both formats share, cannot shrink data more than 1032-fold; the rest is slack.
_MAX_COMPRESSION = 1100
# HDF5 stores nothing for a data set that was never written (often all-False flags), so small ones pass.
_SMALL_BYTES = 16 * 2**20


def problem(source: str, field: str | None, found: str, advice: str, row: int | None = None) -> DataError:
    """The error for one fault: which file, field and row, what was found there, and what to do about it."""
    place = "".join([source, f": {field}" if field else "", f", row {row}" if row is not None else ""])
    return DataError(f"{place}: {found}. {advice}")


def unreadable(source: str, kind: str, error: Exception) -> DataError:
    """The error for a file that a library could not make sense of."""
    found = f"cannot be read as {kind} ({type(error).__name__}: {error})"
    return problem(source, None, found, "It may be truncated, damaged or of another format; copy or write it again")


def check_declaration(
    source: str, field: str, key: str, shape: tuple[int, ...] | None, dtype: np.dtype, stored: int
) -> int:
    """Check an array by what its header claims, before memory is set aside for it.

    `field` is its name in the schema, `key` its name in the file, `stored` the bytes it takes up in the file.
    Returns the bytes it will take up in memory.
    """
    if dtype.hasobject or dtype.kind not in "biuf":
        found = "holds Python objects" if dtype.hasobject else f"has type {dtype}"
        raise problem(source, key, found, "Store plain numbers: float32, or bool for the flags")
    rank = RANKS[field]
    is_column = rank == 1 and shape is not None and len(shape) == 2 and shape[1] == 1
    if shape is None or (len(shape) != rank and not is_column):
        wanted = "(rows,)" if rank == 1 else "(rows, size)"
        found = f"has shape {shape if shape is not None else '(none)'}, expected {wanted}"
        raise problem(source, key, found, "Reshape it; one row is one step, also when a row holds a single number")
    if 0 in shape[1:]:  # no bytes would explain any number of rows
        raise problem(source, key, "has no columns", "A step needs at least one number here")
    declared = bytes_of(shape, dtype)
    check_explained(source, key, declared, stored)
    return declared


def check_explained(source: str, key: str, declared: int, stored: int) -> None:
    """Refuse a header that claims more data than the bytes behind it can unfold to."""
    if declared > max(_SMALL_BYTES, _MAX_COMPRESSION * stored):
        found = f"claims {declared:,} bytes of data, but the file stores only {stored:,} bytes for it"
        raise problem(source, key, found, "The file is damaged, forged or was never filled; write it again")


def check_memory(source: str, declared: int) -> None:
    """Refuse a log that cannot fit into this machine's memory."""
    if not hasattr(os, "sysconf"):
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if declared > memory:
        found = f"needs {declared / 2**30:,.1f} GiB of memory, this machine has {memory / 2**30:,.1f} GiB"
        raise problem(source, None, found, "Keep the rows on disk with --rows-in disk (rows_in in Python)")


def bytes_of(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """The bytes an array takes up, in integers that cannot overflow."""
    size = dtype.itemsize
    for extent in shape:
        size *= int(extent)
    return size
