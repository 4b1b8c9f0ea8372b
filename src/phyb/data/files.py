"""Logs in and out of files, in the formats of `phyb.data.formats`. Nothing is ever unpickled."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from phyb.data._assemble import assemble, to_float32
from phyb.data._limits import problem, unreadable
from phyb.data.formats import FORMATS, LogFormat, LogHeader, format_of, names_log
from phyb.data.join import join_headers, join_logs
from phyb.data.log import FIELDS, Log
from phyb.data.validate import check
from phyb.errors import PhybError
from phyb.storage.files import atomic_path

LogFiles = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A file, a folder of files, or several of them."""


def load_log(
    path: LogFiles,
    *,
    action_bounds: tuple[ArrayLike, ArrayLike] | None = None,
    rows_in: str | os.PathLike[str] | None = None,
) -> Log:
    """Read a log and check it.

    A file without `next_observations` gets them from the following row, inside episodes only; the last row of
    each episode is then dropped, and `provenance["dropped_rows"]` counts them. What the file leaves open and
    the reader assumes is in `provenance["assumed"]`.

    Arguments:
        path: a file ending in .hdf5, .h5, .npz, .csv or .parquet, or `minari:ID` for a data set in the local cache of
            Minari. Several of them, or a folder, are read as one log, in the order given or by name; episodes stay
            whole.
        action_bounds: lowest and highest action, for instance of the environment's action space; they win
            over those in the file. With neither, actions must lie in [-1, 1].
        rows_in: a folder for the numbers of a log that is larger than memory: they are written there, once, and read
            from there when they are needed; the next call finds them. None keeps them in memory.

    Raises:
        DataError: a file is missing, damaged, or not a usable log; the message names file, field and row. Or files do
            not belong together; the message names both.
        StorageError: the numbers cannot be written to `rows_in`.
    """
    if rows_in is not None:
        from phyb.data.disk import log_on_disk  # which calls this function

        return log_on_disk(path, Path(rows_in), action_bounds)
    files = log_files(path)
    return join_logs([read_log(file, action_bounds, None) for file in files], files)


def log_files(data: LogFiles) -> list[str]:
    """The single files that make a log; of a folder, all that end as logs do, by name. None may be given twice."""
    files: list[str] = []
    for word in [data] if isinstance(data, str | os.PathLike) else data:
        if not os.path.isdir(word):
            files.append(str(word))
            continue
        inside = sorted(str(path) for path in Path(word).iterdir() if names_log(path.name) and path.is_file())
        if not inside:
            suffixes = ", ".join(name for name in FORMATS.names() if name.startswith("."))
            raise problem(str(word), None, "is a folder without logs", f"A log is a file ending in {suffixes}")
        files += inside
    if not files:
        raise problem("the log", None, "no file is given", "Name at least one")
    twice = next((file for place, file in enumerate(files) if file in files[:place]), None)
    if twice is not None:
        raise problem(twice, None, "is given twice", "Its rows would count double; name it once")
    return files


def read_log(
    path: str | os.PathLike[str], action_bounds: tuple[ArrayLike, ArrayLike] | None, rows_in: Path | None
) -> Log:
    """Read a log and check it; with `rows_in`, numbers of a large format go to files there on the way."""
    with reading(path) as (stored, file):
        content = stored.read(file, str(path), rows_in)
    return assemble(content, str(path), action_bounds)


def log_header(path: LogFiles) -> LogHeader | None:
    """What files say about their log: sizes, env_id, data set. No row is read; the name of a file plays no part.

    Files without `next_observations` have fewer rows once they are read: the last of each episode is dropped. None
    if the format of a file cannot say.
    """
    files = log_files(path)
    return join_headers([_header(file) for file in files], files)


def _header(source: str) -> LogHeader | None:
    with reading(source) as (stored, file):
        return stored.header(file, source)


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[tuple[LogFormat, Path]]:
    """The format of a log and its file; whatever a library says about a damaged one becomes a `DataError`."""
    stored, file = format_of(str(path)), find_log_file(path)
    try:
        yield stored, file
    except PhybError:
        raise
    except Exception as error:
        # On a damaged file the libraries below raise almost anything, from OSError to struct.error.
        raise unreadable(str(path), stored.title, error) from error


def find_log_file(path: str | os.PathLike[str]) -> Path:
    """The file behind a path or a name of the form `minari:ID`; a `DataError` if it is none or empty."""
    source = str(path)
    file = format_of(source).find(source)
    try:
        if not file.exists():
            raise problem(source, None, "there is no such file", "Check the path")
        if not file.is_file():
            raise problem(source, None, "is not a file", "Give the path of a log file")
        if file.stat().st_size == 0:
            raise problem(source, None, "the file is empty (0 bytes)", "Record or copy it again")
    except (OSError, ValueError) as error:
        raise unreadable(source, "a log", error) from error
    return file


def save_log(log: Log, path: str | os.PathLike[str]) -> None:
    """Check a log and write it; the file appears whole or not at all. Missing folders are made.

    Arguments:
        log: the log; its numbers are stored as float32, its provenance as JSON.
        path: a file ending in .hdf5, .h5 or .npz; an existing one is replaced.

    Raises:
        DataError: the log breaks a rule of the validator, or the file cannot be written.
    """
    target = str(path)
    writer = format_of(target)
    check(log, target)
    names = (*FIELDS, "action_low", "action_high")
    wider = [name for name in names if getattr(log, name).dtype not in (np.float32, bool)]
    if wider:
        log = dataclasses.replace(log, **{name: to_float32(getattr(log, name)) for name in wider})
        check(log, target)  # a large float64 turns infinite on the way
    try:
        with atomic_path(path) as unfinished:
            writer.write(log, unfinished)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        advice = "Check folder, rights and free space, and that provenance holds only JSON values"
        raise problem(target, None, f"cannot be written ({type(error).__name__}: {error})", advice) from error
