"""phyb data import: guess, confirm, correct, import."""

import io
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tyro
from rich.console import Console

from phyb import Log, load_log
from phyb.cli import main
from phyb.commands.importing import Import
from phyb.errors import PhybError

sys.path.append(str(Path(__file__).parents[1] / "data"))
from frame_examples import ROLES, table  # pyright: ignore[reportMissingImports]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Names of files in a folder of their own; ward.csv is a table whose names tell what they are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    pd.DataFrame(table() | {"note": ["fine"] * 12}).to_csv("ward.csv", index=False)
    return tmp_path


def phyb(capsys, *words, whole=False):
    """Exit code, output and errors of the command, or of the `whole` command line, which takes longer to parse."""
    code, err = 0, ""
    try:
        if whole:
            main(["data", "import", *words])
        else:
            tyro.cli(Import, args=list(words)).run(Console())
    except PhybError as error:
        code, err = error.exit_code, str(error)
    except SystemExit as stop:
        code = int(stop.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, err or shown.err


def answer(monkeypatch, word):
    """A terminal at which somebody types."""

    class Terminal:
        def isatty(self):
            return True

    def typed(prompt=""):
        if word is None:
            raise EOFError
        return word

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", typed)


def test_without_a_terminal_the_guess_is_written_and_waits(files, capsys):
    code, out, err = phyb(capsys, "ward.csv", "--out", "ward.hdf5", whole=True)
    assert code == 2
    assert "phyb data import ward.csv --columns ward.toml --out ward.hdf5" in err
    assert "not used: text; make it numbers" in out
    assert not (files / "ward.hdf5").exists()
    code, out, _ = phyb(capsys, "ward.csv", "--columns", "ward.toml", "--out", "ward.hdf5")
    assert code == 0
    log, expected = load_log("ward.hdf5"), Log.from_frame(pd.DataFrame(table()), **ROLES)
    assert log.fingerprint() == expected.fingerprint()
    assert log.names("actions") == ("a_dose",)
    assert "10 transitions, 3 episodes" in out
    assert "dropped: 2 rows, the last of episodes that do not terminate (7, 11)" in out
    assert "assumed: action_bounds" in out
    code, _, err = phyb(
        capsys, "ward.csv", "--out", "other.hdf5", "--columns", "ward.toml", "--action-bounds", "0", "3"
    )
    assert (code, load_log("other.hdf5").action_high.tolist()) == (0, [3])


@pytest.mark.parametrize(("word", "code"), [("y", 0), (" YES ", 0), ("", 2), ("n", 2), (None, 2)])
def test_at_a_terminal_the_user_confirms(files, capsys, monkeypatch, word, code):
    answer(monkeypatch, word)
    found, out, _ = phyb(capsys, "ward.csv", "--out", "logs/ward.npz", "--env-id", "Ward-v0")
    assert found == code
    assert "obs_pulse" in out
    assert (files / "logs" / "ward.toml").exists()
    assert (files / "logs" / "ward.npz").exists() is (code == 0)
    if code == 0:
        assert load_log("logs/ward.npz").env_id == "Ward-v0"


def test_yes_accepts_and_parquet_gives_the_same(files, capsys):
    pd.DataFrame(table()).to_parquet("ward.parquet")
    for name in ("ward.csv", "ward.parquet"):
        assert phyb(capsys, name, "--yes", "--out", f"{name}.hdf5")[0] == 0
    assert load_log("ward.csv.hdf5").fingerprint() == load_log("ward.parquet.hdf5").fingerprint()


def test_other_names_are_found_by_kind_or_named_by_hand(files, capsys):
    frame = pd.DataFrame(table()).rename(columns={"obs_pulse": "pulse", "obs_pressure": "pressure", "a_dose": "dose"})
    frame.to_csv("other.csv", index=False)
    code, out, err = phyb(capsys, "other.csv", "--yes", "--out", "other.hdf5")
    assert code == 2
    assert "no column looks like actions" in err
    assert "No name looks like an observation" in " ".join(out.split())
    text = Path("other.toml").read_text()
    assert 'observations = ["pulse", "pressure", "dose"]' in text
    Path("other.toml").write_text(text.replace(', "dose"', "").replace("actions = []", 'actions = ["dose"]'))
    assert phyb(capsys, "other.csv", "--columns", "other.toml", "--out", "other.hdf5")[0] == 0
    assert phyb(capsys, "ward.csv", "--yes", "--out", "ward.hdf5")[0] == 0
    assert load_log("other.hdf5").fingerprint() == load_log("ward.hdf5").fingerprint()


def test_whole_numbers_are_amounts_if_the_map_says_so(files, capsys):
    pd.DataFrame(table() | {"a_dose": np.arange(12) % 3}).to_csv("ward.csv", index=False)
    code, _, err = phyb(capsys, "ward.csv", "--yes", "--out", "ward.hdf5")
    assert code == 2
    assert "ward.csv: a_dose: holds 3 different whole numbers (0, 1, 2)" in err
    assert "amounts = true" in err
    Path("ward.toml").write_text(Path("ward.toml").read_text().replace("amounts = false", "amounts = true"))
    assert phyb(capsys, "ward.csv", "--columns", "ward.toml", "--out", "ward.hdf5")[0] == 0
    assert sorted(set(load_log("ward.hdf5").actions[:, 0].tolist())) == [0, 1, 2]


def test_bad_cells_are_refused_with_file_column_row_and_value(files, capsys):
    for column, value, words in (
        ("obs_pulse", "high", "ward.csv: obs_pulse, row 3: found 'high'"),
        ("reward", "", "ward.csv: reward, row 3: is missing (1 such rows)"),
        ("id", "", "ward.csv: episode, row 3: is missing"),
    ):
        pd.DataFrame(table()).astype(object).assign(
            **{column: lambda frame, c=column, v=value: frame[c].where(frame.index != 3, v)}
        ).to_csv("ward.csv", index=False)
        (files / "ward.toml").unlink(missing_ok=True)
        code, _, err = phyb(capsys, "ward.csv", "--yes", "--out", "ward.hdf5")
        assert (code, words in err) == (2, True), err
    assert not (files / "ward.hdf5").exists()


def test_what_is_there_is_never_overwritten(files, capsys):
    Path("there.hdf5").write_text("")
    assert "there.hdf5: already exists" in phyb(capsys, "ward.csv", "--out", "there.hdf5")[2]
    Path("ward.toml").write_text("mine")
    code, _, err = phyb(capsys, "ward.csv", "--yes", "--out", "ward.hdf5")
    assert (code, "ward.toml: is there already. Use it with: phyb data import" in err) == (2, True)
    assert Path("ward.toml").read_text() == "mine"


def test_files_that_are_no_tables_are_refused(files, capsys):
    phyb(capsys, "ward.csv", "--yes", "--out", "ward.hdf5")
    assert "ward.hdf5: HDF5 is a log already" in phyb(capsys, "ward.hdf5", "--out", "x.hdf5")[2]
    assert "nothing.csv: there is no such file" in phyb(capsys, "nothing.csv", "--out", "x.hdf5")[2]
    Path("bad.parquet").write_text("no table")
    assert "bad.parquet: cannot be read as a Parquet file" in phyb(capsys, "bad.parquet", "--out", "x.hdf5")[2]
    Path("map.toml").write_text('observations = ["x"]\nactions = ["a_dose"]\nreward = "reward"\n')
    err = phyb(capsys, "ward.csv", "--columns", "map.toml", "--out", "x.hdf5")[2]
    assert "ward.csv: x: there is no such column. The columns are id, time" in err
