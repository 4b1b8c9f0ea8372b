"""One writer at a time, and a clear word about who it is."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from phyb.errors import BusyError, StorageError
from phyb.storage.lock import NAME, locked, owner

HOLD = """
import sys, time
from pathlib import Path
from phyb.storage.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def take(folder):
    with locked(folder):
        pass


def test_a_second_process_hears_pid_and_host(holder, tmp_path):
    with pytest.raises(BusyError, match=rf"process {holder.pid} on {socket.gethostname()}"):
        take(tmp_path)
    said = owner(tmp_path)
    assert said is not None
    assert str(holder.pid) in said


def test_the_lock_of_a_killed_process_is_taken_over(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert json.loads((tmp_path / NAME).read_text())["pid"] == holder.pid, "it could not tidy up"
    assert owner(tmp_path) is None
    with locked(tmp_path):
        assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
    assert (tmp_path / NAME).read_bytes() == b""


def test_a_lock_left_by_another_machine_is_refused_with_advice(tmp_path):
    (tmp_path / NAME).write_text(json.dumps({"pid": 1, "host": "elsewhere.example", "since": "yesterday"}))
    with pytest.raises(BusyError, match=r"elsewhere\.example.*delete .*\.lock"):
        take(tmp_path)
    (tmp_path / NAME).unlink()
    take(tmp_path)


def test_an_error_lets_go_in_good_order(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        _ = 1 / 0
    assert (tmp_path / NAME).read_bytes() == b""


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"[" * 4000, b"1" * 4096])
def test_a_damaged_lock_file_is_no_obstacle(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    take(tmp_path)


def test_a_folder_that_vanished_or_was_replaced_is_noticed(tmp_path):
    folder = tmp_path / "run"
    with locked(folder) as check:
        check()
        shutil.rmtree(folder)
        with pytest.raises(StorageError, match="deleted, moved or replaced"):
            check()
        folder.mkdir()
        (folder / NAME).touch()
        with pytest.raises(StorageError, match="deleted, moved or replaced"):
            check()


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        take(tmp_path / "file" / "run")
