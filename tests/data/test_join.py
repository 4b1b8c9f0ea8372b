"""Several files as one log, in memory and on disk."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
from frame_examples import table
from log_examples import example_log

from phyb.cli import main, parse
from phyb.data import load_log, save_log, validate
from phyb.data.files import log_files, log_header
from phyb.data.formats import LogHeader
from phyb.data.log import FIELDS
from phyb.errors import DataError, UsageError
from phyb.storage import mapped


@pytest.fixture
def files(tmp_path):
    """Medium ends in the middle of an episode; expert has other numbers."""
    medium, expert = example_log(rows=34), example_log(rows=20, seed=1)
    for log, kind, suffix in ((medium, "medium", ".hdf5"), (expert, "expert", ".npz")):
        terminated, truncated = log.terminated.copy(), log.truncated.copy()
        terminated[-1] = truncated[-1] = kind == "expert"
        ended = dataclasses.replace(log, terminated=terminated, truncated=truncated, provenance={"kind": kind})
        save_log(ended, tmp_path / f"{kind}{suffix}")
    return [tmp_path / "medium.hdf5", tmp_path / "expert.npz"]


def write(path, **changes):
    log = example_log(rows=20, seed=2)
    if "width" in changes:
        log = example_log(rows=20, observation_size=changes.pop("width"))
    save_log(dataclasses.replace(log, **changes), path)
    return path


def test_medium_and_expert_make_medium_expert(files):
    log, parts = load_log(files), [load_log(file) for file in files]
    for name in FIELDS:
        expected = np.concatenate([getattr(part, name) for part in parts])
        if name == "truncated":
            expected[33] = True
        np.testing.assert_array_equal(getattr(log, name), expected)
    assert log.episode_lengths().tolist() == [10, 10, 10, 4, 10, 10]
    assert (log.env_id, log.provenance["kind"]) == ("Example-v0", "medium-expert")
    assert [part["rows"] for part in log.provenance["joined"]] == [34, 20]
    assert log_header(files) == LogHeader(54, 3, 2, "Example-v0", "medium-expert")
    assert not any("no end" in finding.message for finding in validate(log, "log"))


def test_a_folder_is_its_logs_by_name(files, tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "more.npz").mkdir()
    assert log_files(tmp_path) == [str(path) for path in reversed(files)]
    assert log_files([tmp_path / "more.npz" / "..", files[0]])[-1] == str(files[0])
    assert load_log(tmp_path).fingerprint() == load_log(files[::-1]).fingerprint()
    assert load_log([files[0]]).fingerprint() == load_log(files[0]).fingerprint()


def test_on_disk_it_is_the_same_and_found_again(files, tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "BLOCK_BYTES", 100)
    memory, disk = load_log(files), load_log(files, rows_in=tmp_path / "rows")
    assert disk.on_disk
    assert disk.fingerprint() == memory.fingerprint()
    assert disk.provenance == memory.provenance
    monkeypatch.setattr("phyb.data.disk.join_logs", None)
    assert load_log(files, rows_in=tmp_path / "rows").fingerprint() == memory.fingerprint()


def test_ranges_of_actions_taken_from_the_logs_are_widened(tmp_path):
    frames = [pd.DataFrame(table(seed=seed)) for seed in (0, 1)]
    for frame, name in zip(frames, ("a.csv", "b.csv"), strict=True):
        frame.to_csv(tmp_path / name, index=False)
    log = load_log(tmp_path)
    doses = pd.concat(frames)["a_dose"].astype(np.float32)
    assert (log.action_low[0], log.action_high[0]) == (doses.min(), doses.max())
    assert log.names("observations") == ("obs_pulse", "obs_pressure")
    assert [name for name in log.provenance["assumed"] if "a.csv" in name]
    assert log_header(tmp_path) is None
    frames[1].rename(columns={"obs_pulse": "obs_heart"}).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(DataError, match=r"b\.csv: columns: has the columns .*obs_heart.* but .*a\.csv has .*obs_pulse"):
        load_log(tmp_path)


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("observations: has 5 observation columns, but {} has 3 observation columns", {"width": 5}),
        ("env_id: has env_id Other-v0, but {} has Example-v0", {"env_id": "Other-v0"}),
        ("action_high: has action_high [2.0, 2.0], but {} has [1.0, 1.0]", {"action_high": np.full(2, 2.0)}),
    ],
)
def test_logs_that_do_not_belong_together_are_refused_by_name(files, tmp_path, words, changes):
    other = write(tmp_path / "other.npz", **changes)
    with pytest.raises(DataError, match=re.escape(f"{other}: {words.format(files[0])}")):
        load_log([files[0], other])
    if "env_id" in changes:
        with pytest.raises(DataError, match="Only logs of the same environment"):
            log_header([files[0], other])


def test_a_log_without_environment_goes_along(files, tmp_path):
    assert load_log([write(tmp_path / "other.npz", env_id=None), files[0]]).env_id == "Example-v0"


def test_what_is_no_log_or_given_twice_is_refused(files, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: is a folder without logs\. A log is a file ending in \.hdf5"):
        load_log(tmp_path / "empty")
    with pytest.raises(DataError, match=r"medium\.hdf5: is given twice"):
        load_log([files[0], tmp_path])
    with pytest.raises(DataError, match="no file is given"):
        load_log([])
    with pytest.raises(DataError, match=r"nothing\.npz: there is no such file"):
        load_log([files[0], tmp_path / "nothing.npz"])


def test_the_command_line_takes_several(files, capsys):
    main(["data", "describe", *map(str, files)])
    shown = capsys.readouterr().out
    assert "54 rows" in shown
    assert "6: 4 terminated, 2 truncated, 0 unfinished" in shown
    words = ["train", *map(str, files), "--subset-size", "2"]
    assert parse(words).source == tuple(map(str, files))
    assert parse(["train", "liquidation"]).source == "liquidation"
    with pytest.raises(UsageError, match="DATA is missing"):
        parse(["train", "--subset-size", "2"])
    with pytest.raises(SystemExit) as stop:
        main(["data", "describe"])
    assert stop.value.code == 2
