"""Reads one HDF5 file in a process of its own: on a damaged file the HDF5 library may crash, loop or take all memory.

The process runs under limits of computing time and memory that grow with the file. It answers on standard output with
lines of JSON: the bytes that the fields will take; for each field its name, type and shape, followed by its numbers; at
last everything else; or at any time a problem. Nothing outside the file is opened.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import h5py
import h5py.h5l
import h5py.h5t
import numpy as np

from phyb.data._limits import bytes_of, check_declaration, check_explained, problem, unreadable
from phyb.data._minari import KEYS as EPISODE_KEYS
from phyb.data._minari import STORED, episodes_in
from phyb.data.formats import METADATA, find_keys
from phyb.errors import DataError

_HEADER_SECONDS = 0.5
_BASE_BYTES = 128 * 2**20
# An honest file is read at least this fast; what takes longer is a loop in a damaged structure.
_FILE_BYTES_PER_SECOND = 2e6
_DATA_BYTES_PER_SECOND = 50e6
_PIECE_BYTES = 16 * 2**20
_CHUNKS_AT_ONCE = 1024
_MAX_ATTRIBUTE_BYTES = 2**20
_MAX_FOREIGN_TEXT = 10_000
_SIMPLE_TYPES = (h5py.h5t.TypeStringID, h5py.h5t.TypeIntegerID, h5py.h5t.TypeFloatID, h5py.h5t.TypeEnumID)


class Field(NamedTuple):
    """One field of a log whose header has been checked; its numbers are still unread."""

    shape: tuple[int, ...]
    dtype: np.dtype
    pieces: Callable[[], Iterator[np.ndarray]]


def main(request: str) -> None:
    """Answer one request, a path, the name of the file in messages and whether rows are wanted, and end the process."""
    path, source, with_rows = json.loads(request)
    try:
        _answer(path, source, with_rows)
    except DataError as error:
        _send({"problem": str(error)})
    except MemoryError:
        found = "reading it takes far more memory than the data it declares"
        _send({"problem": str(problem(source, None, found, "The file is damaged or forged; copy or write it again"))})
    except Exception as error:
        _send({"problem": str(unreadable(source, "HDF5", error))})
    sys.stdout.flush()
    os._exit(0)  # closing a damaged file may crash, too


def _answer(path: str, source: str, with_rows: bool) -> None:
    seconds = _HEADER_SECONDS + os.path.getsize(path) / _FILE_BYTES_PER_SECOND
    _limit(seconds, _BASE_BYTES)
    file = h5py.File(path, "r", locking="best-effort")
    names = [str(name) for name in file]
    if episodes := episodes_in(names):
        keys, fields = EPISODE_KEYS, _episodes(file, episodes, source)
    else:
        keys = find_keys(names, source)
        fields = {field: _whole(_checked(file, key, field, source)) for field, key in keys.items()}
    metadata, others = _attributes(file, source)
    declared = sum(bytes_of(field.shape, field.dtype) for field in fields.values())
    _send({"declared": declared})
    if with_rows:
        _limit(seconds + declared / _DATA_BYTES_PER_SECOND, _BASE_BYTES + 3 * declared)
        for name, field in fields.items():
            _send_array(name, field)
    shapes = {name: field.shape for name, field in fields.items()}
    _send({"keys": keys, "shapes": shapes, "metadata": metadata, "attributes": others})


def _limit(seconds: float, memory: int) -> None:
    """From now on this much computing time (waiting for a disk is free) and this much memory beyond today's."""
    try:
        import resource
    except ImportError:  # Windows: no limits
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    with contextlib.suppress(FileNotFoundError):  # only Linux says, and enforces, what a process may map
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        wanted = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (wanted if hard < 0 else min(wanted, hard), hard))


def _send(content: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(content).encode() + b"\n")


def _send_array(name: str, field: Field) -> None:
    pieces = field.pieces()
    piece = next(pieces)  # before the line that declares the numbers: until then a problem can be sent
    _send({"name": name, "dtype": field.dtype.str, "shape": field.shape})
    try:
        while piece is not None:
            sys.stdout.buffer.write(np.ascontiguousarray(piece, field.dtype).reshape(-1).view(np.uint8).data)
            piece = next(pieces, None)
    except Exception:
        os._exit(1)


def _whole(dataset: h5py.Dataset) -> Field:
    """A field that is one data set, read some of its chunks at a time; a small one comes whole."""

    def pieces() -> Iterator[np.ndarray]:
        if bytes_of(dataset.shape, dataset.dtype) <= _PIECE_BYTES:
            yield dataset[...]
            return
        chunk = dataset.chunks[0] if dataset.chunks else _CHUNKS_AT_ONCE
        row = bytes_of(dataset.shape[1:], dataset.dtype)
        # The library takes kilobytes for each chunk that a piece touches.
        step = chunk * max(1, min(_CHUNKS_AT_ONCE, _PIECE_BYTES // (chunk * row)))
        for first in range(0, dataset.shape[0], step):
            yield dataset[first : first + step]

    return Field(dataset.shape, dataset.dtype, pieces)


def _episodes(file: h5py.File, episodes: list[str], source: str) -> dict[str, Field]:
    """The fields of a Minari data set, one group per episode."""
    parts: dict[str, list[h5py.Dataset]] = {key: [] for key in STORED}
    for episode in episodes:
        for key, field in STORED.items():
            parts[key].append(_checked(file, f"{episode}/{key}", field, source))
        lengths = {key: found[-1].shape[0] - (key == "observations") for key, found in parts.items()}
        if len(set(lengths.values())) > 1:
            rows = ", ".join(f"{key} {length}" for key, length in lengths.items())
            advice = "Observations need one row more than the rest; write the data set again"
            raise problem(source, episode, f"has parts of different length (steps: {rows})", advice)
    total = sum(part.shape[0] for part in parts["rewards"])

    def joined(read: Callable[..., np.ndarray], key: str, *others: str) -> Field:
        widths = {part.shape[1:] for part in parts[key]}
        if len(widths) > 1:
            raise problem(source, key, "has another width in some episodes", "Store the same columns in each")
        dtype = np.result_type(*(part.dtype for part in parts[key]))
        return Field((total, *widths.pop()), dtype, lambda: map(read, *(parts[name] for name in (key, *others))))

    def whole(part: h5py.Dataset) -> np.ndarray:
        return part[...]

    def cut(truncations: h5py.Dataset, terminations: h5py.Dataset) -> np.ndarray:
        """The last row of an episode ends it, also where the recording was just stopped."""
        flags = truncations[...].astype(bool)
        flags[-1:] |= ~terminations[-1:].astype(bool)
        return flags

    return {
        "observations": joined(lambda part: part[:-1], "observations"),
        "next_observations": joined(lambda part: part[1:], "observations"),
        "actions": joined(whole, "actions"),
        "rewards": joined(whole, "rewards"),
        "terminated": joined(whole, "terminations"),
        "truncated": joined(cut, "truncations", "terminations"),
    }


def _checked(file: h5py.File, key: str, field: str, source: str) -> h5py.Dataset:
    """Open one data set and check its header."""
    # Links are checked before they are followed: an external one would open any file its author names.
    parts = key.split("/")
    for name in ("/".join(parts[: depth + 1]) for depth in range(len(parts))):
        if name not in file:
            raise problem(source, name, "is missing", "Write the file again")
        if file.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD:
            raise problem(source, name, "is a link to data elsewhere", "Store the data itself under this name")
    dataset = file[key]
    if not isinstance(dataset, h5py.Dataset):
        raise problem(source, key, "is a group, not a data set", "Store one array under this name")
    if dataset.is_virtual or dataset.external:
        raise problem(source, key, "keeps its data in another file", "Store the data in this file")
    stored = dataset.id.get_storage_size()
    check_declaration(source, field, key, dataset.shape, dataset.dtype, stored)
    if dataset.chunks:
        # A chunk is unpacked whole, however little of it the data set uses.
        check_explained(source, key, bytes_of(dataset.chunks, dataset.dtype), stored)
    return dataset


def _attributes(file: h5py.File, source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The attributes that have a meaning here, and short ones that others have put there."""
    metadata, others = {}, {}
    for name in file.attrs:
        header = file.attrs.get_id(name)
        # Other types, nested ones above all, are where a damaged file can crash the HDF5 library.
        simple = isinstance(header.get_type(), _SIMPLE_TYPES)
        short = bytes_of(header.shape or (), header.dtype) <= _MAX_ATTRIBUTE_BYTES
        value = _plain(file.attrs[name]) if simple and short else None
        if name in METADATA:
            if value is None:
                raise problem(source, name, "is not a short text or array of numbers", "Write it again")
            if name in ("env_id", "provenance") and not isinstance(value, str):
                raise problem(source, name, f"is {value!r:.80}, not text", "Store text, or leave it out")
            metadata[name] = value
        elif isinstance(value, int | float) or (isinstance(value, str) and len(value) <= _MAX_FOREIGN_TEXT):
            others[name] = value
    return metadata, others


def _plain(value: Any) -> Any:
    """An attribute as a Python number, a text or a list of numbers; None for anything else."""
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "SUO":
        value = value.reshape(-1)[0]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist() if value.dtype.kind in "iufb" else None
    return value if isinstance(value, str) else None
