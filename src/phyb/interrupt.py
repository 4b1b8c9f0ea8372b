"""Stopping on request: the first Ctrl-C or SIGTERM saves and ends within seconds, the second ends at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from phyb.errors import InterruptedRunError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], object] | signal.Handlers


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

        If a stop is asked for, an `InterruptedRunError` follows the work that is under way.
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
def stop_requests(
    on_message: Callable[[str], None] | None = None, *, second: Handler = signal.SIG_DFL
) -> Iterator[StopRequests]:
    """Turn the first Ctrl-C or SIGTERM into a request that can be asked for; `on_message` shows that it was heard.

    A `second` one then ends the process at once, as the signal does by default, also inside compiled code. That is
    safe: files are written whole or not at all. In an interactive session it raises KeyboardInterrupt instead. Signals
    can be caught in the main thread only; elsewhere nothing is ever requested.
    """
    stop = StopRequests()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        stop.requested = True
        for each in SIGNALS:
            signal.signal(each, signal.default_int_handler if hasattr(sys, "ps1") else second)
        if sys.stdout.isatty():
            os.write(1, b"\x1b[?25h")  # progress bars hide the cursor, and a second signal lets nobody show it again
        if on_message is not None:
            on_message("Stopping: saving what is under way. Press Ctrl-C again to stop at once.")

    before = {number: signal.signal(number, ask) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
