"""Logs larger than memory: their numbers in files that are mapped into memory, written once for each log file.

One folder holds one log: a file of plain numbers for each field, and a note, written last, with shapes, metadata and
the fingerprint of the numbers. Files that do not have this fingerprint any more are written again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from phyb.data.files import LogFiles, find_log_file, log_files, read_log
from phyb.data.join import join_logs
from phyb.data.log import FIELDS, Log
from phyb.errors import BusyError, DataError
from phyb.storage.files import read_json, write_json
from phyb.storage.lock import NAME as LOCK
from phyb.storage.lock import locked
from phyb.storage.mapped import ROWS_SUFFIX, write_rows

FORMAT_VERSION = 1
NOTE = "log.json"


def log_on_disk(
    path: LogFiles,
    folder: Path,
    action_bounds: tuple[ArrayLike, ArrayLike] | None = None,
    waiting: Callable[[str], None] | None = None,
) -> Log:
    """The log of a file, its numbers on disk below `folder`; found there if an earlier call left them.

    Args:
        path: a log file, `minari:ID`, a folder or several of them; each file and the log of all are kept.
        folder: where the numbers of logs are kept, each in a folder named by a hash of the log file.
        action_bounds: see `phyb.data.load_log`.
        waiting: called each second with the reason why nothing happens while another process writes the same log.
    """
    files = log_files(path)
    if len(files) > 1:
        parts = [log_on_disk(file, folder, action_bounds, waiting) for file in files]
        about = [[file, part.fingerprint()] for file, part in zip(files, parts, strict=True)]
        place = folder / hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]
        return _kept(place, lambda: join_logs(parts, files, place), waiting)
    with open(find_log_file(files[0]), "rb") as file:
        content = hashlib.file_digest(file, "sha256")
    if action_bounds is not None:
        content.update(repr([np.asarray(bound, np.float32).tolist() for bound in action_bounds]).encode())
    place = folder / content.hexdigest()[:32]
    return _kept(place, lambda: read_log(files[0], action_bounds, place), waiting)


def _kept(place: Path, make: Callable[[], Log], waiting: Callable[[str], None] | None) -> Log:
    """The log in a folder, made and put there unless it is there."""
    while True:
        try:
            with locked(place):
                with contextlib.suppress(DataError):  # not there, or damaged
                    return open_log(place)
                _clear(place)
                try:
                    return put_on_disk(make(), place)
                except BaseException:
                    _clear(place)  # a log that was refused, or half of one, must not fill the disk
                    raise
        except BusyError as error:
            if waiting is None:
                raise
            waiting(str(error))
            time.sleep(1.0)


def put_on_disk(log: Log, folder: Path) -> Log:
    """Write the numbers of a log to a folder, except those that already lie there, and give the log that reads them."""
    for name in FIELDS:
        array, path = getattr(log, name), folder / f"{name}{ROWS_SUFFIX}"
        if isinstance(array, np.memmap) and Path(str(array.filename)) == path.absolute():
            array.flush()
        else:
            write_rows(path, array.shape, array.dtype, lambda block, array=array: array[block])
    about = {
        "format": FORMAT_VERSION,
        "fields": {name: [getattr(log, name).dtype.str, getattr(log, name).shape] for name in FIELDS},
        "action_low": [log.action_low.dtype.str, log.action_low.tolist()],
        "action_high": [log.action_high.dtype.str, log.action_high.tolist()],
        "env_id": log.env_id,
        "provenance": json.dumps(dict(log.provenance)),
        "fingerprint": log.fingerprint(),
    }
    write_json(folder / NOTE, about)
    return open_log(folder)


def open_log(folder: Path) -> Log:
    """The log whose numbers lie in a folder; a `DataError` if they are not there, or not as they were written."""
    about = read_json(folder / NOTE)
    try:
        if about["format"] != FORMAT_VERSION:
            raise ValueError(f"format {about['format']}")
        arrays = {name: _map(folder / f"{name}{ROWS_SUFFIX}", *about["fields"][name]) for name in FIELDS}
        low, high = (np.asarray(numbers, dtype) for dtype, numbers in (about["action_low"], about["action_high"]))
        provenance = json.loads(about["provenance"])
        log = Log(**arrays, action_low=low, action_high=high, env_id=about["env_id"], provenance=provenance)
        if log.fingerprint() != about["fingerprint"]:
            raise ValueError("the numbers are not those that were written")
    except (OSError, KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        found = f"the rows of a log kept here cannot be used ({error})"
        raise DataError(f"{folder}: {found}. Delete the folder.") from error
    return log


def _map(path: Path, dtype: Any, shape: Any) -> np.memmap:
    kind = np.dtype(str(dtype))
    if kind.kind not in "bf":
        raise ValueError(f"numbers of type {kind}")
    return np.memmap(path, kind, "r", shape=tuple(int(extent) for extent in shape))


def _clear(folder: Path) -> None:
    """Remove whatever lies in a folder, its lock aside."""
    for item in folder.iterdir():
        if item.name != LOCK:
            shutil.rmtree(item) if item.is_dir() else item.unlink()
