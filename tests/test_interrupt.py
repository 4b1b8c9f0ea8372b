"""Stopping on request."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from phyb.errors import InterruptedRunError
from phyb.interrupt import Pieces, StopRequests, stop_requests


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_does_what_was_chosen(number):
    said, before = [], signal.getsignal(signal.SIGINT)  # a job in the background is born deaf to it
    with stop_requests(said.append, second=signal.default_int_handler) as stop:
        stop.check()
        os.kill(os.getpid(), number)
        assert stop.requested
        assert "again" in said[0]
        with pytest.raises(InterruptedRunError, match="--resume"):
            stop.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interactive_session_survives_the_second_signal(monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with stop_requests() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_outside_the_main_thread_nothing_is_caught():
    handler = signal.getsignal(signal.SIGTERM)
    seen = []

    def work():
        with stop_requests() as stop:
            seen.append((stop.requested, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, handler)]


@pytest.mark.parametrize("total", [0, 1, 2, 1000])
def test_pieces_add_up(total):
    counts = []
    Pieces(None).run(total, counts.append)
    assert sum(counts) == total
    assert all(count > 0 for count in counts)


def test_pieces_grow_while_they_are_quick_and_stop_when_asked():
    stop, counts = StopRequests(), []

    def work(count):
        counts.append(count)
        stop.requested = len(counts) == 5

    with pytest.raises(InterruptedRunError):
        Pieces(stop).run(10**6, work)
    assert counts == [1, 2, 4, 8, 16]


STUCK = """
import hashlib
from phyb.interrupt import stop_requests
with stop_requests():
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 3_000_000)  # seconds in which, as in compiled code, no handler can run
    print("asked", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # minutes
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_process_that_is_stuck(number):
    process = subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == "asked\n", "one signal only asks"
        process.send_signal(number)
        assert process.wait(timeout=30) == -number
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
