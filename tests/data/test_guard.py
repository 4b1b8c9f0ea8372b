"""HDF5 is read in a process of its own: it may crash, loop or run out of memory, the caller gets an error."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from log_examples import example_log, file_arrays, write_hdf5

from phyb.data import _guard, load_log, save_log
from phyb.data._hdf5 import read_hdf5
from phyb.errors import DataError

pytestmark = pytest.mark.skipif(not _guard._CAN_FORK, reason="files are read directly here")


@pytest.fixture
def path(tmp_path):
    save_log(example_log(), tmp_path / "log.hdf5")
    return tmp_path / "log.hdf5"


@pytest.fixture
def helper(path):
    """A running helper, asked once."""
    load_log(path)
    helper = _guard._READER._helper
    assert helper is not None
    return helper


def same(one, other):
    return one.fingerprint() == other.fingerprint() and one.provenance == other.provenance


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"chunks": True, "shuffle": True}])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2", "<i4"])
def test_arrays_metadata_and_attributes_arrive_as_a_direct_read_finds_them(tmp_path, options, dtype):
    path = tmp_path / "log.hdf5"
    with h5py.File(path, "w") as file:
        for name, array in file_arrays(example_log()).items():
            file.create_dataset(name, data=array if array.dtype == bool else array.astype(dtype), **options)
        file.attrs.update({"action_low": np.full(2, -9.0), "action_high": np.full(2, 9.0), "phyb_format": 1})
        file.attrs.update({"env_id": "π", "note": "größe", "gamma": 0.5, "nan": np.nan, "count": np.int64(2**62)})
    direct, guarded = read_hdf5(path, "x"), _guard.read_hdf5_guarded(path, "x")
    assert direct.keys == guarded.keys
    for one, other in ((direct.arrays, guarded.arrays), (direct.metadata, guarded.metadata)):
        assert one.keys() == other.keys()
        for name in one:
            assert np.asarray(one[name]).dtype == np.asarray(other[name]).dtype
            np.testing.assert_array_equal(one[name], other[name])
    assert repr(direct.attributes) == repr(guarded.attributes)


def test_relative_paths_are_those_of_the_caller(path, helper, monkeypatch):
    monkeypatch.chdir(path.parent)
    assert same(load_log("log.hdf5"), load_log(path))


def test_files_with_one_row_per_chunk_are_not_taken_for_endless(tmp_path):
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        for name, array in file_arrays(example_log(rows=20_000)).items():
            file.create_dataset(name, data=array, chunks=(1, *array.shape[1:]))
    assert len(load_log(tmp_path / "log.hdf5")) == 20_000


def test_one_helper_serves_many_threads(path, helper):
    logs = []
    threads = [threading.Thread(target=lambda: logs.append(load_log(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(logs) == 8
    assert all(same(log, logs[0]) for log in logs)
    assert _guard._READER._helper is helper


def test_a_helper_that_died_is_replaced(path, helper):
    helper.process.kill()
    helper.process.wait()
    assert same(load_log(path), load_log(path))
    assert _guard._READER._helper is not helper


def test_a_fork_of_the_caller_starts_its_own_helper(path):
    program = (
        "import os, sys, warnings\n"
        "from phyb.data import _guard\n"
        "def load():\n"
        "    _guard.read_hdf5_guarded(sys.argv[1], 'log')\n"
        "    return _guard._READER._helper.process.pid\n"
        "pid = load()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    sys.exit(load() == pid)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert load() == pid\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program, path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", r"log\.hdf5: the HDF5 library crashed on it \(SIGSEGV\)\. .*damaged"),
        ("os.abort()", r"crashed on it \(SIGABRT\)"),
        ("while True: pass", "far more computing time than the data it declares"),
        ("np.ones(2**31)", "far more memory than the data it declares"),
        ("os._exit(3)", "ended early"),
        ("raise OSError('boom')", r"cannot be read as HDF5 \(OSError: boom\)"),
    ],
)
def test_whatever_happens_in_the_library_becomes_our_error(path, helper, act, words, monkeypatch, tmp_path):
    """A copy of the helper in which opening a file goes wrong."""
    source = Path(_guard.__file__).parent
    shutil.copytree(source, tmp_path / "phyb" / "data")
    shutil.copytree(source.parent / "storage", tmp_path / "phyb" / "storage")
    shutil.copy(source.parent / "errors.py", tmp_path / "phyb")
    script = tmp_path / "phyb" / "data" / "_helper.py"
    wrong = f"def judged(*_, **__):\n    import os, signal\n    {act}\n\n\n"
    place = 'if __name__ == "__main__":\n    signal'
    assert place in script.read_text()
    script.write_text(script.read_text().replace(place, wrong + place))
    monkeypatch.setattr(_guard, "__file__", str(script))
    reader = _guard._Reader()
    monkeypatch.setattr(_guard, "_READER", reader)
    try:
        with pytest.raises(DataError, match=words):
            load_log(path)
    finally:
        reader.close()


def test_a_helper_that_cannot_start_is_reported(path, monkeypatch):
    monkeypatch.setattr(_guard, "_READER", _guard._Reader())
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(DataError, match=r"log\.hdf5: the process that reads HDF5 did not start"):
        load_log(path)


def test_the_helper_stays_small_survives_ctrl_c_and_leaves_with_its_parent(path):
    program = (
        "import sys, os, warnings\n"
        "warnings.simplefilter('error')\n"
        "from phyb.data import _guard\n"
        "_guard.read_hdf5_guarded(sys.argv[1], 'log')\n"
        "print(_guard._READER._helper.process.pid, flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, signal.SIGINT)
        if os.path.exists(f"/proc/{pid}/maps"):
            with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                assert "jaxlib" not in maps.read()
            assert len(os.listdir(f"/proc/{pid}/task")) == 1
        _, errors = parent.communicate("\n", timeout=60)
    assert errors == ""
    assert parent.returncode == 0
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the helper outlived its parent")


def test_ctrl_c_while_reading_leaves_a_working_reader(path, helper, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_guard, "_receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_log(path)
    monkeypatch.undo()
    assert len(load_log(path)) == 40


def test_no_descriptor_is_left_open(path, helper):
    if not os.path.exists("/proc/self/fd"):
        pytest.skip("descriptors cannot be counted here")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        load_log(path)
        with pytest.raises(DataError):
            load_log(write_hdf5(path.with_name("bad.hdf5"), {"nothing": np.zeros(3)}))
    assert len(os.listdir("/proc/self/fd")) == before
