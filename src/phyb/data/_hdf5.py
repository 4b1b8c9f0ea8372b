"""HDF5 in D4RL layout. Nothing outside the file is opened, and headers are judged before data is read."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import h5py.h5l
import h5py.h5t
import numpy as np

from phyb.data._assemble import FILE_KEYS, FORMAT_VERSION, METADATA, Raw, find_keys
from phyb.data._checks import bytes_of, check_declaration, check_explained, check_memory, problem
from phyb.data._minari import KEYS as EPISODE_KEYS
from phyb.data._minari import episodes_in, judge_episodes
from phyb.data.log import Log
from phyb.storage.mapped import BLOCK_BYTES

_MAX_ATTRIBUTE_BYTES = 16 * 2**20
_MAX_FOREIGN_TEXT = 10_000
_CHUNKS_AT_ONCE = 1024
_SIMPLE_TYPES = (h5py.h5t.TypeStringID, h5py.h5t.TypeIntegerID, h5py.h5t.TypeFloatID, h5py.h5t.TypeEnumID)


def read_hdf5(path: str | os.PathLike[str], source: str) -> Raw:
    """Read the fields and attributes of an HDF5 file, as stored."""
    with judged(path, source) as (raw, _):
        return dataclasses.replace(raw, arrays={field: dataset[...] for field, dataset in raw.arrays.items()})


def shapes_of(raw: Raw) -> dict[str, tuple[int, ...]]:
    """The shape of each field that is stored as one data set."""
    return {field: data.shape for field, data in raw.arrays.items() if isinstance(data, h5py.Dataset)}


def in_pieces(dataset: Any) -> Iterator[np.ndarray]:
    """A data set, some of its chunks at a time; what is small, or not stored as one data set, comes whole."""
    if not isinstance(dataset, h5py.Dataset) or bytes_of(dataset.shape, dataset.dtype) <= BLOCK_BYTES:
        yield dataset[...]
        return
    chunk = dataset.chunks[0] if dataset.chunks else _CHUNKS_AT_ONCE
    row = bytes_of(dataset.shape[1:], dataset.dtype)
    # The library takes kilobytes for each chunk that a piece touches.
    step = chunk * max(1, min(_CHUNKS_AT_ONCE, BLOCK_BYTES // (chunk * row)))
    for first in range(0, dataset.shape[0], step):
        yield dataset[first : first + step]


@contextlib.contextmanager
def judged(path: str | os.PathLike[str], source: str, *, to_memory: bool = True) -> Iterator[tuple[Raw, int]]:
    """Open a file and judge its headers: what it holds, its arrays still as data sets, and the bytes they will take.

    With `to_memory`, a log that cannot fit into this machine's memory is refused.
    """
    with h5py.File(path, "r", locking="best-effort") as file:
        names = [str(name) for name in file]
        datasets: dict[str, Any]
        if episodes := episodes_in(names):
            keys = EPISODE_KEYS
            datasets, declared = judge_episodes(file, episodes, source, _judge)
        else:
            keys = find_keys(names, source)
            found = {field: _judge(file, key, field, source) for field, key in keys.items()}
            datasets = {field: dataset for field, (dataset, _) in found.items()}
            declared = sum(size for _, size in found.values())
        if to_memory:
            check_memory(source, declared)
        attributes = _attributes(file, source)
        metadata = {name: attributes.pop(name) for name in METADATA if name in attributes}
        foreign = {name: value for name, value in attributes.items() if not isinstance(value, np.ndarray)}
        yield Raw(datasets, keys, metadata, foreign), declared


def _judge(file: h5py.File, key: str, field: str, source: str) -> tuple[h5py.Dataset, int]:
    """Open one data set and judge its header; gives it and the bytes it will take."""
    dataset = _dataset(file, key, source)
    stored = dataset.id.get_storage_size()
    declared = check_declaration(source, field, key, dataset.shape, dataset.dtype, stored)
    if dataset.chunks:
        # A chunk is unpacked whole, however little of it the data set uses.
        check_explained(source, key, bytes_of(dataset.chunks, dataset.dtype), stored)
    return dataset, declared


def write_hdf5(log: Log, path: os.PathLike[str]) -> None:
    """Write a log whose numbers are float32 already."""
    with h5py.File(path, "w") as file:
        for field, (key, *_) in FILE_KEYS.items():
            file.create_dataset(key, data=getattr(log, field), compression="gzip", shuffle=True)
        for name, value in metadata_of(log).items():
            file.attrs[name] = value


def metadata_of(log: Log) -> Mapping[str, Any]:
    """What is stored beside the arrays, ready to write."""
    metadata = {
        "action_low": log.action_low,
        "action_high": log.action_high,
        "provenance": json.dumps(dict(log.provenance), sort_keys=True),
        "phyb_format": FORMAT_VERSION,
    }
    return metadata if log.env_id is None else {**metadata, "env_id": log.env_id}


def _dataset(file: h5py.File, key: str, source: str) -> h5py.Dataset:
    # Links are looked at before they are followed: an external one would open any file its author names.
    parts = key.split("/")
    for name in ("/".join(parts[: depth + 1]) for depth in range(len(parts))):
        if name not in file:
            raise problem(source, name, "is missing", "Write the file again")
        if file.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD:
            raise problem(source, name, "is a link to data elsewhere", "Store the data itself under this name")
    item = file[key]
    if not isinstance(item, h5py.Dataset):
        raise problem(source, key, "is a group, not a data set", "Store one array under this name")
    if item.is_virtual or item.external:
        raise problem(source, key, "keeps its data in another file", "Store the data in this file")
    return item


def _attributes(file: h5py.File, source: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in file.attrs:
        known = name in METADATA
        header = file.attrs.get_id(name)
        # Other types, nested ones above all, are where a damaged file can crash the HDF5 library.
        simple = isinstance(header.get_type(), _SIMPLE_TYPES)
        if not simple or bytes_of(header.shape or (), header.dtype) > _MAX_ATTRIBUTE_BYTES:
            if known:
                raise problem(source, name, "is not a short text or array of numbers", "Write it again")
            continue
        value = _plain(file.attrs[name])
        if value is None or (not known and isinstance(value, str) and len(value) > _MAX_FOREIGN_TEXT):
            continue
        if name in ("env_id", "provenance") and not isinstance(value, str):
            raise problem(source, name, f"is {value!r:.80}, not text", "Store text, or leave it out")
        found[name] = value
    return found


def _plain(value: Any) -> Any:
    """An attribute as a Python number, a text or a numeric array; None for anything else."""
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "SUO":
        value = value.reshape(-1)[0]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | bool | int | float):
        return value
    return value if isinstance(value, np.ndarray) and value.dtype.kind in "iufb" else None
