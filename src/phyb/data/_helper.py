"""The process behind `_guard`: forks once per request, so that a crash of the HDF5 library takes only that child along.

Run as a script, with the parent's module search path as arguments and a socket to the parent as standard input. A
request is one line of JSON and the writing end of a pipe. The child answers through the pipe: per array one line of
JSON and its bytes, at last a line with everything else; or, if only they are wanted, the shapes of the arrays. The
helper then sends how the child ended.
"""

from __future__ import annotations

import sys
import types

if __name__ == "__main__":
    sys.path[:] = sys.argv[2:]
    # Bare packages: their own __init__ would import all of phyb, and jax with its threads, which no fork survives.
    for _name, _folder in (("phyb", sys.argv[1]), ("phyb.data", f"{sys.argv[1]}/data")):
        sys.modules[_name] = types.ModuleType(_name)
        sys.modules[_name].__path__ = [_folder]

import contextlib
import io
import json
import os
import resource
import signal
import socket
from typing import Any

import h5py
import numpy as np

from phyb.data._assemble import Raw
from phyb.data._checks import problem, unreadable
from phyb.data._hdf5 import in_pieces, judged, shapes_of
from phyb.errors import DataError

HEADER_SECONDS = 0.5
"""Computing time for the headers of a small file; those of an honest one take milliseconds."""
_BASE_BYTES = 128 * 2**20
# An honest file is read at least this fast; what takes longer is a loop in a damaged structure.
_FILE_BYTES_PER_SECOND = 2e6
_DATA_BYTES_PER_SECOND = 50e6


def serve(parent: socket.socket) -> None:
    """Answer requests until the parent closes its end."""
    while True:
        line, descriptors, *_ = socket.recv_fds(parent, 65_536, 1)
        while line and not line.endswith(b"\n"):
            more = parent.recv(65_536)
            line = line + more if more else b""
        if not line:
            return
        child = os.fork()
        if child == 0:
            parent.close()
            _answer(json.loads(line), descriptors[0])
        os.close(descriptors[0])
        _, status = os.waitpid(child, 0)
        parent.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _answer(request: dict[str, str], descriptor: int) -> None:
    """Read one file and end this process, whatever happens."""
    status = 1
    with contextlib.suppress(BaseException):
        with open(descriptor, "wb") as out:
            try:
                _stream(request["path"], request["source"], request["wanted"], out)
            except DataError as error:
                _send(out, {"problem": str(error)})
        status = 0
    os._exit(status)


def _stream(path: str, source: str, wanted: str, out: io.BufferedWriter) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        size = os.path.getsize(path)
        limit(HEADER_SECONDS + size / _FILE_BYTES_PER_SECOND, _BASE_BYTES)
        with judged(path, source, to_memory=wanted == "memory") as (raw, declared):
            if wanted == "shapes":
                _send(out, {"shapes": shapes_of(raw)})
                return
            seconds = HEADER_SECONDS + size / _FILE_BYTES_PER_SECOND + declared / _DATA_BYTES_PER_SECOND
            limit(seconds, _BASE_BYTES + 3 * declared)
            metadata = {name: value for name, value in raw.metadata.items() if isinstance(value, np.ndarray)}
            for part, values in (("arrays", raw.arrays), ("metadata", metadata)):
                for name in values:
                    _send_array(out, part, name, values[name])
        _send(out, _rest(raw))
    except (DataError, BrokenPipeError):
        raise
    except MemoryError:
        found = "reading it takes far more memory than the data it declares"
        raise problem(source, None, found, "The file is damaged or forged; copy or write it again") from None
    except Exception as error:
        raise unreadable(source, "HDF5", error) from error


def limit(seconds: float, memory: int) -> None:
    """From now on this much computing time (waiting for a disk is free) and this much memory beyond today's."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    with contextlib.suppress(FileNotFoundError):  # only Linux says, and enforces, what a process may map
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        wanted = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (wanted if hard < 0 else min(wanted, hard), hard))


def _send(out: io.BufferedWriter, content: dict[str, Any]) -> None:
    out.write(json.dumps(content).encode() + b"\n")


def _send_array(out: io.BufferedWriter, part: str, name: str, values: Any) -> None:
    pieces = in_pieces(values)
    piece = next(pieces)  # before the header: a problem can be told as long as no array has begun
    shape = values.shape if isinstance(values, h5py.Dataset) else piece.shape
    _send(out, {"part": part, "name": name, "dtype": piece.dtype.str, "shape": shape})
    while piece is not None:
        out.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
        piece = next(pieces, None)


def _rest(raw: Raw) -> dict[str, Any]:
    metadata = {name: value for name, value in raw.metadata.items() if not isinstance(value, np.ndarray)}
    return {"keys": dict(raw.keys), "metadata": metadata, "attributes": dict(raw.attributes)}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=0) as _parent:
        _parent.sendall(b"ready\n")
        serve(_parent)
