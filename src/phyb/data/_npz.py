"""NPZ archives of plain arrays. Nothing is unpickled, and headers are checked before data is unpacked."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from phyb.data._limits import bytes_of, check_declaration, check_explained, check_memory, problem
from phyb.data.formats import FILE_KEYS, METADATA, FileContent, LogFormat, LogHeader, find_keys, header_of, metadata_of
from phyb.data.log import Log

_MAX_METADATA_BYTES = 64 * 2**20
_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class NPZ(LogFormat):
    """One member per field, and one per piece of metadata."""

    title = "an NPZ archive"

    def read(self, path: Path, source: str, rows_in: Path | None = None) -> FileContent:
        """Read the fields and metadata, as stored; everything comes into memory."""
        with zipfile.ZipFile(path) as archive:
            members, keys, _, declared = _fields(archive, source)
            check_memory(source, declared)
            arrays = {field: _array(archive, members[key]) for field, key in keys.items()}
            return FileContent(arrays, keys, _metadata(archive, members, source))

    def header(self, path: Path, source: str) -> LogHeader:
        with zipfile.ZipFile(path) as archive:
            members, _, shapes, _ = _fields(archive, source)
            return header_of(shapes, _metadata(archive, members, source))

    def write(self, log: Log, path: Path) -> None:
        arrays = {key: getattr(log, field) for field, (key, *_) in FILE_KEYS.items()}
        with open(path, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays, **metadata_of(log))


def _fields(
    archive: zipfile.ZipFile, source: str
) -> tuple[dict[str, zipfile.ZipInfo], dict[str, str], dict[str, tuple[int, ...]], int]:
    """Check the headers of all fields: gives members, name and shape of each field, and the bytes they will take."""
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    keys, shapes, declared = find_keys(list(members), source), {}, 0
    for field, key in keys.items():
        shapes[field], dtype = _header(archive, members[key], source, key)
        declared += check_declaration(source, field, key, shapes[field], dtype, members[key].compress_size)
    return members, keys, shapes, declared


def _metadata(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], source: str) -> dict[str, Any]:
    metadata = {}
    for name in METADATA:
        if name in members:
            shape, dtype = _header(archive, members[name], source, name)
            if dtype.kind not in "iufU" or bytes_of(shape, dtype) > _MAX_METADATA_BYTES:
                found = f"has type {dtype} and {bytes_of(shape, dtype):,} bytes"
                raise problem(source, name, found, "Store a few numbers or a text, or leave it out")
            metadata[name] = _plain(_array(archive, members[name]), name, source)
    return metadata


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, source: str, key: str) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type that an archive member claims to have, once they agree with its size."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise problem(source, key, "uses an unusual compression", "Write it with np.savez_compressed")
    stored = min(info.compress_size, os.path.getsize(str(archive.filename)))
    check_explained(source, key, info.file_size, stored)
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in _READERS:
            raise problem(source, key, f"has NPY version {version}", "Store an array of plain numbers")
        shape, _, dtype = _READERS[version](member)
        follow = info.file_size - member.tell()
    if not dtype.hasobject and bytes_of(shape, dtype) != follow:
        found = f"claims {bytes_of(shape, dtype):,} bytes of data, but {follow:,} follow"
        raise problem(source, key, found, "The file is damaged; write it again")
    return shape, dtype


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as member:
        array = np.lib.format.read_array(member, allow_pickle=False)  # pyright: ignore[reportArgumentType]
        member.read(1)  # the archive's checksum is compared only once a member has been read to its end
        return array


def _plain(array: np.ndarray, name: str, source: str) -> Any:
    if name in ("env_id", "provenance"):
        if array.dtype.kind != "U" or array.size != 1:
            raise problem(source, name, f"is {array!r:.80}, not text", "Store text, or leave it out")
        return str(array.reshape(-1)[0])
    return array.reshape(-1)[0].item() if array.size == 1 and name == "phyb_format" else array
