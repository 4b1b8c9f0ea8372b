"""One writer per folder: a lock that dies with its process and says who holds it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from phyb.errors import BusyError, StorageError
from phyb.storage.files import storage_errors, write_all

NAME = ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Callable[[], None]]:
    """Hold the lock of a folder, which is made if need be.

    The operating system lets go of a lock when its process ends, however it ends. One left on another machine cannot be
    distinguished from a living one everywhere, and is refused with advice. What is given raises a `StorageError` if the
    folder was deleted, moved or replaced since.

    Raises:
        BusyError: another process holds it; the message names its pid and host.
    """
    path = folder / NAME
    with storage_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)

    def check() -> None:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(handle)):
                return
        raise StorageError(
            f"{folder}: was deleted, moved or replaced while this process was writing to it. Nothing more is written. "
            "If it was moved, go on with --resume and --out at its new place."
        )

    try:
        _take(handle, path)
        with storage_errors(path):
            os.ftruncate(handle, 0)
            owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S %Z")}
            write_all(handle, json.dumps(owner).encode())
        try:
            yield check
        finally:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, 0)  # let go in good order: nobody has to wonder about the owner
    finally:
        os.close(handle)


def owner(folder: Path) -> str | None:
    """A description of who works on a folder right now; None if nobody does, as far as this machine can see."""
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    try:
        _take(handle, folder / NAME)
    except BusyError:
        return _describe(_read(handle))
    finally:
        os.close(handle)
    return None


def is_in_use(folder: Path, *harmless: str) -> bool:
    """Whether a path holds anything but an abandoned lock and the files named, which a refused start leaves behind."""
    if not folder.is_dir():
        return folder.exists()
    return any(item.name not in (NAME, *harmless) for item in folder.iterdir())


def _take(handle: int, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: no lock
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise StorageError(f"{path}: this file system cannot lock files ({error.strerror}).") from error
        raise BusyError(
            f"{path.parent}: is in use by {_describe(_read(handle))}. Wait until it is done, or stop it first."
        ) from error
    left = _read(handle)
    if left.get("host", socket.gethostname()) != socket.gethostname():
        raise BusyError(
            f"{path.parent}: was in use by {_describe(left)} and never released; from this machine it cannot be seen "
            f"whether that process still runs. If it does not, delete {path} and start again."
        )


def _read(handle: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(handle, 4096, 0) or b"{}")
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _describe(found: dict[str, Any]) -> str:
    if not found:
        return "another process"
    return f"process {found.get('pid')!s:.20} on {found.get('host')!s:.80} (since {found.get('since')!s:.40})"
