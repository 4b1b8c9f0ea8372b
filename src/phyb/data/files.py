"""Logs in and out of files: HDF5 in D4RL layout and NPZ, chosen by suffix. Nothing is ever unpickled."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from phyb.data._assemble import assemble, to_float32
from phyb.data._checks import problem, unreadable
from phyb.data._guard import hdf5_shapes, read_hdf5_guarded
from phyb.data._hdf5 import write_hdf5
from phyb.data._minari import KEYS as EPISODE_KEYS
from phyb.data._minari import PREFIX as MINARI
from phyb.data._minari import describe_data_set, find_data_set
from phyb.data._npz import read_npz, write_npz
from phyb.data.log import FIELDS, Log
from phyb.data.validate import check
from phyb.errors import PhybError
from phyb.storage.files import atomic_path

READERS = {".hdf5": read_hdf5_guarded, ".h5": read_hdf5_guarded, ".npz": read_npz}
WRITERS = {".hdf5": write_hdf5, ".h5": write_hdf5, ".npz": write_npz}


def load_log(
    path: str | os.PathLike[str],
    *,
    action_bounds: tuple[ArrayLike, ArrayLike] | None = None,
    rows_in: str | os.PathLike[str] | None = None,
) -> Log:
    """Read a log and check it.

    A file without `next_observations` gets them from the following row, inside episodes only; the last row of
    each episode is then dropped, and `provenance["dropped_rows"]` counts them. What the file leaves open and
    the reader assumes is in `provenance["assumed"]`.

    Arguments:
        path: a file ending in .hdf5, .h5 or .npz, or `minari:ID` for a data set in the local cache of Minari.
        action_bounds: lowest and highest action, for instance of the environment's action space; they win
            over those in the file. With neither, actions must lie in [-1, 1].
        rows_in: a folder for the numbers of a log that is larger than memory: they are written there, once, and read
            from there when they are needed; the next call finds them. None keeps them in memory.

    Raises:
        DataError: the file is missing, damaged, or not a usable log; the message names file, field and row.
        StorageError: the numbers cannot be written to `rows_in`.
    """
    if rows_in is not None:
        from phyb.data.disk import log_on_disk  # which calls this function

        return log_on_disk(path, Path(rows_in), action_bounds)
    return read_log(path, action_bounds, None)


def read_log(
    path: str | os.PathLike[str], action_bounds: tuple[ArrayLike, ArrayLike] | None, rows_in: Path | None
) -> Log:
    """Read a log and check it; numbers of an HDF5 file go to files in `rows_in` on the way, if that is given."""
    source, path = str(path), find_log_file(path)
    try:
        if rows_in is not None and path.suffix.lower() != ".npz":
            raw = read_hdf5_guarded(path, source, rows_in)
        else:
            raw = READERS[path.suffix.lower()](path, source)
        if raw.keys == EPISODE_KEYS:
            raw = dataclasses.replace(raw, metadata=describe_data_set(path))
    except PhybError:
        raise
    except Exception as error:
        # On a damaged file the libraries below raise almost anything, from OSError to struct.error.
        raise unreadable(source, "an NPZ archive" if path.suffix.lower() == ".npz" else "HDF5", error) from error
    return assemble(raw, source, action_bounds)


def log_shape(path: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    """Rows, observation size and action size by the header of an HDF5 file; None where only reading it all would tell.

    Raises:
        DataError: the file is missing, or not a log.
    """
    source, path = str(path), find_log_file(path)
    if path.suffix.lower() == ".npz":
        return None
    shapes = hdf5_shapes(path, source)
    if not shapes:
        return None
    return shapes["observations"][0], shapes["observations"][1], shapes["actions"][1]


def find_log_file(path: str | os.PathLike[str]) -> Path:
    """The file behind a path or a name of the form `minari:ID`.

    Raises:
        DataError: there is none, it is empty, or it has another suffix than logs have.
    """
    source = str(path)
    path = find_data_set(source) if source.startswith(MINARI) else Path(path)
    _suffix(path)
    try:
        if not path.exists():
            raise problem(source, None, "there is no such file", "Check the path")
        if not path.is_file():
            raise problem(source, None, "is not a file", "Give the path of a log file")
        if path.stat().st_size == 0:
            raise problem(source, None, "the file is empty (0 bytes)", "Record or copy it again")
    except (OSError, ValueError) as error:
        raise unreadable(source, "a log", error) from error
    return path


def save_log(log: Log, path: str | os.PathLike[str]) -> None:
    """Check a log and write it; the file appears whole or not at all. Missing folders are made.

    Arguments:
        log: the log; its numbers are stored as float32, its provenance as JSON.
        path: a file ending in .hdf5, .h5 or .npz; an existing one is replaced.

    Raises:
        DataError: the log breaks a rule of the validator, or the file cannot be written.
    """
    path, target = Path(path), str(path)
    writer = WRITERS[_suffix(path)]
    stored = _as_stored(log, target)
    try:
        with atomic_path(path) as unfinished:
            writer(stored, unfinished)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        advice = "Check folder, rights and free space, and that provenance holds only JSON values"
        raise problem(target, None, f"cannot be written ({type(error).__name__}: {error})", advice) from error


def _as_stored(log: Log, target: str) -> Log:
    """The log in float32, checked before and after: a large float64 turns infinite on the way."""
    check(log, target)
    names = (*FIELDS, "action_low", "action_high")
    wider = [name for name in names if getattr(log, name).dtype not in (np.float32, bool)]
    if wider:
        log = dataclasses.replace(log, **{name: to_float32(getattr(log, name)) for name in wider})
        check(log, target)
    return log


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in READERS:
        found = f"has suffix '{path.suffix}', expected one of {', '.join(READERS)}"
        raise problem(str(path), None, found, "Convert the log, or rename the file if only its name is wrong")
    return suffix
