"""HDF5 read in a process of its own: on a damaged file its C library may crash, loop or take all memory.

The first read starts a small helper that stays; each file is then read by a fork of it, under limits of computing time
and memory that grow with the file. A child that dies becomes a `DataError`.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from phyb.data._assemble import Raw, to_float32
from phyb.data._checks import problem
from phyb.data._hdf5 import judged, read_hdf5, shapes_of
from phyb.errors import DataError
from phyb.storage.mapped import ROWS_SUFFIX, blocks, new_array

_ADVICE = "The file is damaged or forged; copy or write it again"
# The helper forks, which is safe only in a process of one thread.
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_CAN_FORK = hasattr(os, "fork") and hasattr(socket, "send_fds")


def read_hdf5_guarded(path: str | os.PathLike[str], source: str, rows_in: Path | None = None) -> Raw:
    """What `read_hdf5` returns, without its risks; read directly where processes cannot fork.

    With `rows_in`, numbers become float32 and go to files in that folder, a block at a time; flags stay in memory.
    """
    if not _guarded():
        return read_hdf5(path, source)
    found = _READER.read(os.path.abspath(path), source, "memory" if rows_in is None else "disk", rows_in)
    assert isinstance(found, Raw)
    return found


def hdf5_shapes(path: str | os.PathLike[str], source: str) -> dict[str, tuple[int, ...]]:
    """The shapes of the fields of an HDF5 file, by its headers; empty for a file of one group per episode."""
    if not _guarded():
        with judged(path, source, to_memory=False) as (raw, _):
            return shapes_of(raw)
    found = _READER.read(os.path.abspath(path), source, "shapes")
    assert isinstance(found, dict)
    return {name: tuple(shape) for name, shape in found.items()}


def _guarded() -> bool:
    return bool(_CAN_FORK and sys.executable and not getattr(sys, "frozen", False))


class _Helper:
    """The helper process and the socket to it."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        script = Path(__file__).with_name("_helper.py")
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(script), str(script.parent.parent), *sys.path],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # a crash of the C library writes there
                env={**os.environ, **_ONE_THREAD},
                start_new_session=True,  # Ctrl-C is the parent's affair
            )
        self.replies = self.socket.makefile("rb")
        self.ready = self.replies.readline() == b"ready\n"

    def alive(self) -> bool:
        return self.ready and self.process.poll() is None

    def close(self) -> None:
        """End the process: it leaves when its socket closes; one that is busy is stopped."""
        self.replies.close()
        self.socket.close()
        try:
            self.process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def abandon(self) -> None:
        """Leave the process to the parent that started it."""
        self.process.returncode = 0  # else Popen warns that it still runs
        self.replies.close()
        self.socket.close()


class _Reader:
    """One helper at most, for one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helper: _Helper | None = None

    def read(self, path: str, source: str, wanted: str = "memory", rows_in: Path | None = None) -> Raw | dict[str, Any]:
        with self._lock:
            try:
                return self._ask(self._running(source), path, source, wanted, rows_in)
            except DataError:
                raise
            except BaseException:  # the answer may be half read, by Ctrl-C for instance: the next request starts anew
                self._stop()
                raise

    def close(self) -> None:
        with self._lock:
            self._stop()

    def after_fork(self) -> None:
        """In a fork of this process the helper still belongs to the parent."""
        self._lock = threading.Lock()
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.abandon()

    def _running(self, source: str) -> _Helper:
        if self._helper is not None and not self._helper.alive():
            self._stop()
        if self._helper is None:
            self._helper = _Helper()
            if not self._helper.ready:
                self._stop()
                found = f"the process that reads HDF5 did not start ({sys.executable})"
                raise problem(source, None, found, "Check that this Python can import h5py, and that memory is free")
        return self._helper

    def _stop(self) -> None:
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.close()

    def _ask(self, helper: _Helper, path: str, source: str, wanted: str, rows_in: Path | None) -> Raw | dict[str, Any]:
        reading, writing = os.pipe()
        _widen(writing)
        with open(reading, "rb") as answer:
            try:
                request = json.dumps({"path": path, "source": source, "wanted": wanted}).encode() + b"\n"
                socket.send_fds(helper.socket, [request], [writing], getattr(socket, "MSG_NOSIGNAL", 0))
            except BrokenPipeError:
                pass  # the helper died a moment ago; there is no answer then
            finally:
                os.close(writing)
            raw = _receive(answer, rows_in)
        status = helper.replies.readline()
        if isinstance(raw, Raw | dict):
            return raw
        raise problem(source, None, _cause(status), _ADVICE) if raw is None else DataError(raw)


def _widen(pipe: int) -> None:
    """Let a pipe hold a mebibyte, where the system can: fewer switches between the processes."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 2**20)


def _receive(answer: io.BufferedReader, rows_in: Path | None) -> Raw | dict[str, Any] | str | None:
    """The child's answer: what the file holds, or its shapes; why it is refused; None if the child died on it."""
    found: dict[str, dict[str, Any]] = {"arrays": {}, "metadata": {}}
    while (line := answer.readline()).endswith(b"\n"):
        content = json.loads(line)
        if "problem" in content:
            return content["problem"]
        if "shapes" in content:
            return content["shapes"]
        if "keys" in content:
            return Raw(found["arrays"], content["keys"], found["metadata"] | content["metadata"], content["attributes"])
        name, shape, dtype = content["name"], tuple(content["shape"]), np.dtype(content["dtype"])
        if rows_in is not None and content["part"] == "arrays" and name not in ("terminated", "truncated"):
            array = new_array(rows_in / f"{name}{ROWS_SUFFIX}", shape, np.float32)
            parts = (array[block] for block in blocks(array))
        else:
            array = np.empty(shape, dtype)
            parts = (array,)
        for part in parts:
            if not _fill(answer, part, dtype):
                return None
        found[content["part"]][name] = array
    return None


def _fill(answer: io.BufferedReader, array: np.ndarray, dtype: np.dtype) -> bool:
    """Read numbers of a type into an array, which may have another; False if they end early."""
    stored = array if array.dtype == dtype else np.empty(array.shape, dtype)
    if answer.readinto(stored.reshape(-1).view(np.uint8).data) < stored.nbytes:
        return False
    if stored is not array:
        array[...] = to_float32(stored)
    return True


def _cause(status: bytes) -> str:
    """Why a child died, from the exit code that the helper reports: negative for a signal."""
    code = int(status or 1)
    if code >= 0:
        return "the process that read it ended early"
    if -code in (signal.SIGPROF, signal.SIGXCPU):
        return "reading it takes far more computing time than the data it declares"
    with contextlib.suppress(ValueError):
        return f"the HDF5 library crashed on it ({signal.Signals(-code).name})"
    return f"the HDF5 library crashed on it (signal {-code})"


_READER = _Reader()
atexit.register(_READER.close)
if _CAN_FORK:
    os.register_at_fork(after_in_child=_READER.after_fork)
