"""HDF5 is read in a process of its own: it may crash, loop or run out of memory, the caller gets an error."""

import subprocess
import sys
import threading

import h5py
import numpy as np
import pytest
from log_examples import example_log, file_arrays, write_hdf5

from phyb.data import load_log, save_log
from phyb.data.files import log_header
from phyb.errors import DataError


@pytest.fixture
def path(tmp_path):
    save_log(example_log(), tmp_path / "log.hdf5")
    return tmp_path / "log.hdf5"


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"chunks": True, "shuffle": True}])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2"])
def test_numbers_and_attributes_arrive_as_they_are_stored(tmp_path, options, dtype):
    arrays = {name: a if a.dtype == bool else a.astype(dtype) for name, a in file_arrays(example_log()).items()}
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **options)
        file.attrs.update({"action_low": np.full(2, -9.0, "f2"), "action_high": np.full(2, 9), "phyb_format": 1})
        file.attrs.update({"env_id": "π", "note": "größe", "gamma": 0.5, "count": np.int64(2**62)})
    log = load_log(tmp_path / "log.hdf5")
    for field, name in (("observations", "observations"), ("rewards", "rewards"), ("terminated", "terminals")):
        np.testing.assert_array_equal(getattr(log, field), arrays[name])
    assert (log.env_id, log.action_low.tolist(), log.action_high.tolist()) == ("π", [-9, -9], [9, 9])
    assert log.provenance == {"attributes": {"note": "größe", "gamma": 0.5, "count": 2**62}}


def test_a_large_log_is_read_in_pieces(tmp_path):
    rows = 800_000
    observations = np.arange(3 * (rows + 1), dtype=np.float64).reshape(-1, 3)  # more than one piece
    arrays = {"observations": observations[:-1], "next_observations": observations[1:], "rewards": np.zeros(rows)}
    arrays |= {"actions": np.zeros((rows, 1)), "terminals": np.zeros(rows, bool)}
    log = load_log(write_hdf5(tmp_path / "log.hdf5", arrays))
    np.testing.assert_array_equal(log.observations, arrays["observations"].astype(np.float32))


def test_files_with_one_row_per_chunk_are_not_taken_for_endless(tmp_path):
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        for name, array in file_arrays(example_log(rows=20_000)).items():
            file.create_dataset(name, data=array, chunks=(1, *array.shape[1:]))
    assert len(load_log(tmp_path / "log.hdf5")) == 20_000


def test_rows_without_columns_are_refused_however_many_are_claimed(tmp_path):
    arrays = file_arrays(example_log())
    del arrays["actions"]
    path = write_hdf5(tmp_path / "log.hdf5", arrays)
    with h5py.File(path, "r+") as file:
        file.create_dataset("actions", (2**62, 0), "f4")
    with pytest.raises(DataError, match="actions: has no columns"):
        load_log(path)


def test_relative_paths_are_those_of_the_caller(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    assert load_log("log.hdf5").fingerprint() == load_log(path).fingerprint()


def test_threads_may_read_at_the_same_time(path):
    logs = []
    threads = [threading.Thread(target=lambda: logs.append(load_log(path))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {log.fingerprint() for log in logs} == {example_log().fingerprint()}


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", r"log\.hdf5: .* crashed on it \(Segmentation fault\)\. .*damaged"),
        ("os.abort()", r"crashed on it \(Aborted\)"),
        ("\n        while True: pass", "far more computing time than the data it declares"),
        ("bytearray(2**34)", "far more memory than the data it declares"),
        ("os._exit(3)", r"ended early \(exit code 3\)"),
        ("os.write(1, b'{\"half a li') + os._exit(0)", "ended early"),
        ("int('boom')", r"cannot be read as HDF5 \(ValueError: .*boom"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces limits of memory")
def test_whatever_happens_in_the_library_becomes_our_error(path, act, words, monkeypatch, tmp_path):
    """The process that reads finds another h5py, in which opening a file goes wrong."""
    package = tmp_path / "elsewhere" / "h5py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        f"import os, signal\nclass File:\n    def __init__(*_, **__):\n        {act}\n"
    )
    (package / "h5l.py").touch()
    (package / "h5t.py").write_text("TypeStringID = TypeIntegerID = TypeFloatID = TypeEnumID = int\n")
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    for read in (load_log, log_header):
        with pytest.raises(DataError, match=words):
            read(path)


def test_a_process_that_cannot_start_is_reported(path, monkeypatch):
    for program in ("/bin/false", "/no/such/python", ""):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(DataError, match=r"log\.hdf5: .*(ended early|cannot be read)"):
            load_log(path)


def test_nothing_is_left_open_and_no_process_left_over(path):
    program = (
        "import os, sys, warnings\n"
        "warnings.simplefilter('error')\n"
        "from phyb.data import load_log\n"
        "from phyb.errors import DataError\n"
        "before = os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd') else []\n"
        "for name in sys.argv[1:]:\n"
        "    try: load_log(name)\n"
        "    except DataError: pass\n"
        "assert not before or os.listdir('/proc/self/fd') == before\n"
        "try: os.waitpid(-1, os.WNOHANG)\n"
        "except ChildProcessError: print('none')\n"
    )
    bad = write_hdf5(path.with_name("bad.hdf5"), {"nothing": np.zeros(3)})
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program, path, bad], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "none\n", "")
