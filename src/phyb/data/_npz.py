"""NPZ archives of plain arrays. Nothing is unpickled, and headers are checked before data is unpacked."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from phyb.data._limits import bytes_of, check_declaration, check_explained, check_memory, problem
from phyb.data.formats import FILE_KEYS, METADATA, FileContent, LogFormat, LogHeader, find_keys, header_of, metadata_of
from phyb.data.log import Log

_MAX_METADATA_BYTES = 64 * 2**20


class NPZ(LogFormat):
    """One member per field, and one per piece of metadata."""

    title = "an NPZ archive"

    def read(self, path: Path, source: str, rows_in: Path | None = None) -> FileContent:
        """Read the fields and metadata, as stored; everything comes into memory."""
        with zipfile.ZipFile(path) as archive:
            members, keys, _, declared = _fields(archive, path, source)
            check_memory(source, declared)
            arrays = {field: _array(archive, members[key]) for field, key in keys.items()}
            return FileContent(arrays, keys, _metadata(archive, members, path, source))

    def header(self, path: Path, source: str) -> LogHeader:
        with zipfile.ZipFile(path) as archive:
            members, _, shapes, _ = _fields(archive, path, source)
            return header_of(shapes, _metadata(archive, members, path, source))

    def write(self, log: Log, path: Path) -> None:
        arrays = {key: getattr(log, field) for field, (key, *_) in FILE_KEYS.items()}
        with open(path, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays, **metadata_of(log))


def _fields(
    archive: zipfile.ZipFile, path: Path, source: str
) -> tuple[dict[str, zipfile.ZipInfo], dict[str, str], dict[str, tuple[int, ...]], int]:
    """Check the headers of all fields: gives members, name and shape of each field, and the bytes they will take."""
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    keys, shapes, declared = find_keys(list(members), source), {}, 0
    for field, key in keys.items():
        shapes[field], dtype, length = _header(archive, members[key], source, key, os.path.getsize(path))
        declared += check_declaration(source, field, key, shapes[field], dtype, members[key].compress_size)
        _check_length(source, key, bytes_of(shapes[field], dtype), length)
    return members, keys, shapes, declared


def _metadata(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], path: Path, source: str) -> dict[str, Any]:
    metadata = {}
    for name in METADATA:
        if name in members:
            shape, dtype, length = _header(archive, members[name], source, name, os.path.getsize(path))
            if dtype.kind not in "iufU":
                raise problem(source, name, f"has type {dtype}", "Store numbers or text, or leave it out")
            _check_length(source, name, bytes_of(shape, dtype), length)
            if length > _MAX_METADATA_BYTES:
                raise problem(source, name, f"holds {length:,} bytes", "Metadata is small; write it again")
            metadata[name] = _plain(_array(archive, members[name]), name, source)
    return metadata


def _header(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, source: str, key: str, size: int
) -> tuple[tuple[int, ...], np.dtype, int]:
    """Shape, type and data bytes an archive member claims to have."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise problem(source, key, "uses an unusual compression", "Write it with np.savez_compressed")
    check_explained(source, key, info.file_size, min(info.compress_size, size))
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in readers:
            raise problem(source, key, f"has NPY version {version}", "Store an array of plain numbers")
        shape, _, dtype = readers[version](member)
        return shape, dtype, info.file_size - member.tell()


def _check_length(source: str, key: str, declared: int, length: int) -> None:
    if declared != length:
        found = f"claims {declared:,} bytes of data, but {length:,} follow"
        raise problem(source, key, found, "The file is damaged; write it again")


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as member:
        stream: IO[bytes] = member
        array = np.lib.format.read_array(stream, allow_pickle=False)
        # The archive's checksum is compared only once a member has been read to its end.
        member.read(1)
        return array


def _plain(array: np.ndarray, name: str, source: str) -> Any:
    if name in ("env_id", "provenance"):
        if array.dtype.kind != "U" or array.size != 1:
            raise problem(source, name, f"is {array!r:.80}, not text", "Store text, or leave it out")
        return str(array.reshape(-1)[0])
    return array.reshape(-1)[0].item() if array.size == 1 and name == "phyb_format" else array
