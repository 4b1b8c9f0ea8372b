"""Formats of logs: the registry, headers, and a format of one's own."""

import json

import h5py
import numpy as np
import pytest
from log_examples import example_log, file_arrays, write_hdf5, write_npz

from phyb.data import load_log, save_log
from phyb.data.files import log_header
from phyb.data.formats import FORMATS, FileContent, LogFormat, LogHeader, names_log
from phyb.errors import DataError
from phyb.registry import Registry

WRITERS = {".hdf5": write_hdf5, ".npz": write_npz}


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_header_says_what_the_file_says(tmp_path, suffix):
    path = tmp_path / f"walker2d-expert-v2{suffix}"
    save_log(example_log(), path)
    assert log_header(path) == LogHeader(40, 3, 2, "Example-v0", None)
    provenance = json.dumps({"kind": "medium-replay"})
    WRITERS[suffix](path, file_arrays(example_log()), provenance=provenance)
    assert log_header(path) == LogHeader(40, 3, 2, None, "medium-replay")


@pytest.mark.parametrize("provenance", ["by hand", "[1]", '{"kind": 3}', '{"minari": "x"}', '{"minari": {}}'])
def test_a_header_makes_nothing_of_provenance_of_another_make(tmp_path, provenance):
    path = write_npz(tmp_path / "log.npz", file_arrays(example_log()), provenance=provenance)
    assert log_header(path) == LogHeader(40, 3, 2)


@pytest.mark.parametrize("suffix", WRITERS)
def test_the_header_of_what_is_no_log_is_refused(tmp_path, suffix):
    with pytest.raises(DataError, match="no such file"):
        log_header(tmp_path / f"nothing{suffix}")
    (tmp_path / f"text{suffix}").write_text("no log at all")
    with pytest.raises(DataError, match="cannot be read as"):
        log_header(tmp_path / f"text{suffix}")
    arrays = file_arrays(example_log())
    del arrays["actions"]
    with pytest.raises(DataError, match="actions: is missing"):
        log_header(WRITERS[suffix](tmp_path / f"less{suffix}", arrays))


def test_the_header_of_a_huge_claim_is_refused(tmp_path):
    arrays = file_arrays(example_log())
    del arrays["observations"]
    path = write_hdf5(tmp_path / "log.hdf5", arrays)
    with h5py.File(path, "r+") as file:
        file.create_dataset("observations", (10**12, 3), "f4", chunks=(1000, 3))
    with pytest.raises(DataError, match=r"claims 12,000,000,000,000 bytes"):
        log_header(path)


class Text(LogFormat):
    """Rows of observation, action, reward; every row is its own episode."""

    title = "a text file"

    def read(self, path, source, rows_in=None):
        table = np.loadtxt(path, ndmin=2)
        arrays = {"observations": table[:, :1], "actions": table[:, 1:2], "rewards": table[:, 2]}
        arrays["next_observations"] = table[:, 3:4]
        arrays["terminated"] = np.ones(len(table), bool)
        return FileContent(arrays, metadata={"env_id": "Mine-v0"})


@pytest.fixture
def text_format(monkeypatch):
    known = Registry[type[LogFormat]]("log format", {name: FORMATS.load(name) for name in FORMATS.names()})
    known.register(".txt", Text)
    monkeypatch.setattr("phyb.data.formats.FORMATS", known)


def test_a_format_of_ones_own_needs_only_to_read(text_format, tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("0 0.5 1 2\n3 -1 2 4\n")
    log = load_log(path)
    assert (len(log), log.env_id, log.rewards.tolist()) == (2, "Mine-v0", [1, 2])
    assert load_log(path, rows_in=tmp_path / "rows").fingerprint() == log.fingerprint()
    assert log_header(path) is None
    with pytest.raises(DataError, match="a text file cannot be written"):
        save_log(example_log(), path)
    path.write_text("not numbers\n")
    with pytest.raises(DataError, match=r"log\.txt: cannot be read as a text file \(ValueError"):
        load_log(path)


def test_words_that_name_logs(text_format):
    assert all(names_log(word) for word in ("a.hdf5", "A.H5", "b/c.npz", "minari:a/b-v0", "x.txt", "a.csv"))
    assert not any(names_log(word) for word in ("liquidation", "Hopper-v5", "a.xlsx", "module:Class", ""))
