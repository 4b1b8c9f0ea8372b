"""Arrays that may be larger than memory: files mapped into it, gone through in blocks."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import DTypeLike

from phyb.storage.files import storage_errors

if TYPE_CHECKING:
    import jax

BLOCK_BYTES = 16 * 2**20
"""What is computed on the way takes a few times this much memory."""

ROWS_SUFFIX = ".rows"
"""Termination of such files: plain numbers without a header, whose type and shape are kept elsewhere."""


def blocks(array: np.ndarray) -> Iterator[slice]:
    """Slices that cover the rows of an array in order, each of about `BLOCK_BYTES`."""
    step = max(1, BLOCK_BYTES // max(1, array.itemsize * math.prod(array.shape[1:])))
    for first in range(0, len(array), step):
        yield slice(first, min(first + step, len(array)))


def rows_where(array: np.ndarray, test: Callable[[slice], Any]) -> tuple[int, int]:
    """The first row for which `test(block)`, one boolean per row, says True (-1 if none), and how many there are."""
    first, count = -1, 0
    for block in blocks(array):
        held = test(block)
        if first < 0 and held.any():
            first = block.start + int(np.argmax(held))
        count += int(np.count_nonzero(held))
    return first, count


def column_range(array: Float[np.ndarray, "rows dim"]) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
    """The lowest and the highest number of each column."""
    found = [(array[block].min(axis=0), array[block].max(axis=0)) for block in blocks(array)]
    lows, highs = (np.asarray(part) for part in zip(*found, strict=True))
    return lows.min(axis=0), highs.max(axis=0)


def column_std(array: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, " dim"]:
    """The standard deviation of each column, in float64 and in two passes, as `np.std` has it."""
    mean = sum(array[block].sum(axis=0, dtype=np.float64) for block in blocks(array)) / len(array)
    square = sum(np.square(array[block] - mean).sum(axis=0) for block in blocks(array))
    return np.sqrt(square / len(array))


def new_array(path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> np.memmap:
    """An array of zeros in a new file, to be written to.

    The disk space is taken at once where the system can: a mapped file that finds the disk full kills the process.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    with storage_errors(path):
        path.parent.mkdir(exist_ok=True)
        with open(path, "wb") as file:
            if size and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(max(size, 1))
        return np.memmap(path, dtype, "r+", shape=shape)


def write_rows(path: Path, shape: tuple[int, ...], dtype: DTypeLike, make: Callable[[slice], np.ndarray]) -> np.memmap:
    """A new file whose rows are `make(block)`, block by block; what is given back can only be read."""
    array = new_array(path, shape, dtype)
    for block in blocks(array):
        array[block] = make(block)
    array.flush()
    return np.memmap(path, dtype, "r", shape=shape)


def on_device(array: np.ndarray) -> jax.Array:
    """The array for compiled code to read. On a CPU a mapped file stays where it is: only the rows asked for are read.

    An accelerator has memory of its own, into which the array is copied.
    """
    import jax  # the process that reads HDF5 gets by without it

    return jax.device_put(np.asarray(array), may_alias=True)
