"""HDF5 in the layout of D4RL or Minari. Files are read in a process of their own, see `_hdf5_child`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np

from phyb.data._assemble import to_float32
from phyb.data._limits import check_memory, problem
from phyb.data._minari import KEYS as EPISODE_KEYS
from phyb.data._minari import describe_data_set, find_data_set
from phyb.data.formats import FILE_KEYS, FileContent, LogFormat, LogHeader, header_of, metadata_of
from phyb.data.log import Log
from phyb.errors import DataError
from phyb.storage.mapped import ROWS_SUFFIX, blocks, new_array

# With a bare phyb.data the child imports only what it needs, in half the time.
_CHILD = """
import sys, types
sys.path[:] = sys.argv[3:]
package = sys.modules["phyb.data"] = types.ModuleType("phyb.data")
package.__path__ = [sys.argv[2]]
from phyb.data._hdf5_child import main
main(sys.argv[1])
"""


class HDF5(LogFormat):
    """One data set per field, or one group per episode, and attributes."""

    title = "HDF5"

    def read(self, path: Path, source: str, rows_in: Path | None = None) -> FileContent:
        """With `rows_in`, numbers go to files in that folder, a block at a time; flags stay in memory."""
        arrays, found = _ask(path, source, True, rows_in)
        return FileContent(arrays, found["keys"], _metadata(path, found), found["attributes"])

    def header(self, path: Path, source: str) -> LogHeader:
        _, found = _ask(path, source, False)
        return header_of(found["shapes"], _metadata(path, found))

    def write(self, log: Log, path: Path) -> None:
        with h5py.File(path, "w") as file:
            for field, (key, *_) in FILE_KEYS.items():
                file.create_dataset(key, data=getattr(log, field), compression="gzip", shuffle=True)
            for name, value in metadata_of(log).items():
                file.attrs[name] = value


class Minari(HDF5):
    """A data set in the local cache of Minari, by its id."""

    def find(self, source: str) -> Path:
        return find_data_set(source)

    def write(self, log: Log, path: Path) -> None:
        LogFormat.write(self, log, path)


def _metadata(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    return describe_data_set(path) if found["keys"] == EPISODE_KEYS else found["metadata"]


def _ask(
    path: Path, source: str, with_rows: bool, rows_in: Path | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Start the child, and give the arrays it sends and what it says at last."""
    request = json.dumps([os.path.abspath(path), source, with_rows])
    command = [sys.executable, "-P", "-c", _CHILD, request, os.path.dirname(__file__), *map(str, sys.path)]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # a crash of the C library writes there
        start_new_session=True,  # Ctrl-C is the parent's affair
    ) as child:
        assert child.stdout is not None
        try:
            found = _receive(child.stdout, source, with_rows and rows_in is None, rows_in)
        except BaseException:
            child.kill()
            raise
    if found is None:
        raise problem(source, None, _cause(child.returncode), "The file is damaged or forged; copy or write it again")
    return found


def _receive(
    answer: IO[bytes], source: str, to_memory: bool, rows_in: Path | None
) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """All that the child sends; None if it dies on the way."""
    arrays: dict[str, np.ndarray] = {}
    while (line := answer.readline()).endswith(b"\n"):
        found = json.loads(line)
        if "problem" in found:
            raise DataError(found["problem"])
        if "keys" in found:
            return arrays, found
        if "declared" in found:
            if to_memory:
                check_memory(source, found["declared"])
            continue
        name, shape, dtype = found["name"], tuple(found["shape"]), np.dtype(found["dtype"])
        if rows_in is None or name in ("terminated", "truncated"):
            array = np.empty(shape, dtype)
        else:
            array = new_array(rows_in / f"{name}{ROWS_SUFFIX}", shape, np.float32)
        for block in blocks(array):
            size = array[block].size * dtype.itemsize
            numbers = answer.read(size)
            if len(numbers) < size:
                return None
            part = np.frombuffer(numbers, dtype).reshape(array[block].shape)
            array[block] = part if array.dtype == dtype else to_float32(part)
        arrays[name] = array
    return None


def _cause(code: int) -> str:
    """Why a child died, from its exit code: negative for a signal."""
    if code >= 0:
        return f"the process that read it ended early (exit code {code})"
    if -code == signal.SIGPROF:
        return "reading it takes far more computing time than the data it declares"
    return f"the HDF5 library crashed on it ({signal.strsignal(-code)})"
