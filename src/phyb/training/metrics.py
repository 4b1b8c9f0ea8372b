"""The metrics file: one JSON object per line, kept in memory too, so that every checkpoint carries all of it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from phyb.storage.files import storage_errors, write_all, write_bytes
from phyb.training.folder import RunFolder


class MetricsWriter:
    """Appends metrics to metrics.jsonl and, if its package is installed, to TensorBoard events.

    `text` is everything the file holds: the writer begins by making the file say exactly `begin`, which on resuming
    is what the checkpoint holds, whatever happened to the file since.
    """

    def __init__(
        self, folder: RunFolder, begin: bytes = b"", on_message: Callable[[str], None] = lambda text: None
    ) -> None:
        self.text = bytearray(begin)
        self._path, self._on_message = folder.metrics, on_message
        folder.guard()
        write_bytes(self._path, begin)
        with storage_errors(self._path):
            self._handle = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._events: Any = _open_events(folder.tensorboard)

    def write(self, stage: str, step: int, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """One line of JSON, which is returned without its step; numbers that are not finite become null."""
        plain = {name: _finite(np.asarray(value).tolist()) for name, value in metrics.items()}
        line = (json.dumps({"stage": stage, "step": step, **plain}) + "\n").encode()
        with storage_errors(self._path):
            write_all(self._handle, line)
        self.text += line
        if self._events is not None:
            try:
                self._write_events(stage, step, plain)
            except OSError as error:  # a convenience must not end a run
                self._close_events()
                self._on_message(f"TensorBoard events are no longer written ({error}).")
        return {"stage": stage, **plain}

    def sync(self) -> None:
        """Make sure that what was written survives a power loss."""
        with storage_errors(self._path):
            os.fsync(self._handle)

    def _write_events(self, stage: str, step: int, plain: Mapping[str, Any]) -> None:
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.summary import scalar

        for name, value in plain.items():
            if isinstance(value, int | float):
                summary = scalar(f"{stage}/{name}", value)
                self._events.write(Event(wall_time=time.time(), step=step, summary=summary).SerializeToString())
        self._events.flush()

    def _close_events(self) -> None:
        if self._events is not None:
            with contextlib.suppress(OSError):
                self._events.close()
        self._events = None

    def close(self) -> None:
        """Finish both files."""
        os.close(self._handle)
        self._close_events()


def _open_events(folder: Path) -> Any:
    """TensorBoard's event file, or None without the package or the folder.

    This is the part of tensorboardX that writes at once: its SummaryWriter has a thread that hangs on a full disk, and
    its EventsWriter leaves the file open there.
    """
    try:
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.record_writer import RecordWriter

        now = time.time()
        folder.mkdir(parents=True, exist_ok=True)
        writer = RecordWriter(str(folder / f"events.out.tfevents.{now:.0f}.{socket.gethostname()}.{os.getpid()}"))
        writer.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
        return writer
    except (ImportError, OSError):
        return None


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
