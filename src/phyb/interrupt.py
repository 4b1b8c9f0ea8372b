"""Stopping on request: the first Ctrl-C or SIGTERM saves and ends within seconds, the second ends at once."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from phyb.errors import InterruptedRunError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PATIENCE = 1.0


class StopRequests:
    """Whether somebody asked to stop; long work asks `requested` now and then, or calls `check`."""

    requested = False

    def check(self) -> None:
        """Raise `InterruptedRunError` if a stop was asked for."""
        if self.requested:
            raise InterruptedRunError(
                "Stopped as asked; everything finished so far is saved. Go on with the same command and --resume."
            )


class Pieces:
    """Runs long compiled work in pieces of about a second, and asks in between whether to stop."""

    def __init__(self, stop: StopRequests | None) -> None:
        self.stop = stop or StopRequests()
        self._length = 1

    def run(self, total: int, work: Callable[[int], object]) -> None:
        """Call `work(count)` with counts that add up to `total`; the lengths adapt to the time they take.

        Raises:
            InterruptedRunError: a stop was asked for; what `work` was told so far is done.
        """
        while total > 0:
            self.stop.check()
            count, started = min(self._length, total), time.monotonic()
            work(count)
            seconds, total = time.monotonic() - started, total - count
            if seconds < 0.5 and count == self._length:
                self._length *= 2
            elif seconds > 2.0:
                self._length = max(1, self._length // 2)


@contextlib.contextmanager
def stop_requests(tell: Callable[[str], None] | None = None) -> Iterator[StopRequests]:
    """Turn the first Ctrl-C or SIGTERM into a request that can be asked for; a second one raises KeyboardInterrupt.

    Signals can be caught in the main thread only; elsewhere nothing is ever requested.
    """
    stop = StopRequests()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True
        if tell is not None:
            tell("Stopping: saving what is under way. Press Ctrl-C again to stop at once.")

    before = {number: signal.signal(number, ask) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def hard_stop() -> Iterator[None]:
    """End the process on a second signal even if compiled code keeps Python from noticing it.

    A thread hears of signals through a socket. The main thread is given a moment to end in good order; then the
    process exits with code 130. That is safe: files are written whole or not at all.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, told = socket.socketpair()
    told.setblocking(False)
    ended = threading.Event()

    def listen() -> None:
        count = 0
        while (numbers := heard.recv(16)) and not ended.is_set():
            count += sum(number in SIGNALS for number in numbers)
            if count >= 2:
                time.sleep(_PATIENCE)
                if not ended.is_set():
                    if sys.stdout.isatty():
                        os.write(1, b"\x1b[?25h\n")  # progress bars hide the cursor
                    os._exit(InterruptedRunError.exit_code)

    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=listen, name="hard-stop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        told.close()
        thread.join(timeout=2 * _PATIENCE)
        heard.close()
