"""Single files: written whole or not at all, with errors that say what to do."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from phyb.errors import DataError, StorageError

_TEMPORARY = ".tmp"
_MAX_JSON_BYTES = 8 * 2**20
_MAX_JSON_DEPTH = 100


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside `path` that takes its name only when the block ends well and the bytes are on disk.

    Bytes are synced, then the name is changed, then the folder is synced: after a crash or power loss the path holds
    the old content or the new one, never a part.
    """
    target = Path(path)
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=_TEMPORARY, dir=target.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            _sync(temporary)
            temporary.chmod(0o644)
            os.replace(temporary, target)
            with contextlib.suppress(OSError):  # not every file system can sync a folder
                _sync(target.parent)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file in one piece."""
    with atomic_path(path) as temporary:
        handle = os.open(temporary, os.O_WRONLY | os.O_TRUNC)
        try:
            write_all(handle, content)
        finally:
            os.close(handle)


def write_all(handle: int, content: bytes) -> None:
    """Write every byte to an open file; the system may take fewer at a time than it is given."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write strict JSON (no NaN) in one piece."""
    write_bytes(path, json_bytes(content))


def json_bytes(content: Any) -> bytes:
    """What `write_json` writes."""
    return (json.dumps(content, indent=2, allow_nan=False, default=_plain) + "\n").encode()


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read JSON; a file that is missing, damaged, no ordinary file or far too large gives a `DataError` naming it."""
    check_file(path)
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_JSON_BYTES + 1)
        if len(content) > _MAX_JSON_BYTES:
            raise ValueError(f"it is larger than {_MAX_JSON_BYTES:,} bytes")
        return parse_json(content)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({error}). Restore it, or delete it and run again.") from error


def parse_json(text: str | bytes) -> Any:
    """JSON that can be worked with and written again: no name twice, no half characters, no bottomless nesting.

    Anything else is a `ValueError`.
    """
    try:
        content = json.loads(text.decode("utf-8") if isinstance(text, bytes) else text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_json(content)
    return content


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse what is no ordinary file: reading a pipe would wait forever, a device might never end."""
    if not os.path.isfile(path):
        found = "is not an ordinary file" if os.path.exists(path) else "there is no such file"
        raise DataError(f"{path}: {found}.")


@contextlib.contextmanager
def storage_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what the operating system says about writing `path` into a `StorageError` with advice."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {_explain(error, Path(path))}") from error


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files that a killed process left in a folder and below."""
    for path in folder.rglob(f".*{_TEMPORARY}"):
        with contextlib.suppress(OSError):
            path.unlink()


def _explain(error: OSError, path: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        folder = next(folder for folder in path.absolute().parents if folder.is_dir())
        return f"the disk is full ({shutil.disk_usage(folder).free / 2**20:,.0f} MiB free). Make room, then go on."
    said = error.strerror or str(error) or type(error).__name__
    return f"{said}. Check the folder, its rights and the disk."


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _plain(value: Any) -> Any:
    if hasattr(value, "__array__"):
        return np.asarray(value).tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name in it is given twice")
    return content


def _check_json(content: Any, depth: int = 0) -> None:
    if depth > _MAX_JSON_DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(content, str):
        content.encode("utf-8")
    elif isinstance(content, list | dict):
        for item in [*content, *content.values()] if isinstance(content, dict) else content:
            _check_json(item, depth + 1)
