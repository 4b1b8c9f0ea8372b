"""Logs from data frames and from files of columns."""

import builtins
import datetime
import decimal
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from frame_examples import ROLES, arrays, table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from phyb import Log, load_log
from phyb.data.files import log_header
from phyb.errors import DataError, MissingExtraError

FRAMES = {"dict": dict, "pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
WRITERS = {
    "pandas.csv": lambda columns, path: pd.DataFrame(columns).to_csv(path, index=False),
    "pandas.parquet": lambda columns, path: pd.DataFrame(columns).to_parquet(path),
    "polars.csv": lambda columns, path: pl.DataFrame(columns).write_csv(path),
    "polars.parquet": lambda columns, path: pl.DataFrame(columns).write_parquet(path),
    "semicolons.csv": lambda columns, path: pd.DataFrame(columns).to_csv(path, index=False, sep=";"),
    "indexed.csv": lambda columns, path: pd.DataFrame(columns).to_csv(path),
}
NUMBERS = st.floats(-1e30, 1e30)


@st.composite
def tables(draw):
    """Any table with at least one row that can be kept."""
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda found: max(found) > 1))
    rows = sum(lengths)
    ends = np.cumsum(lengths) - 1
    terminated = np.zeros(rows, bool)
    terminated[ends] = draw(hnp.arrays(bool, len(lengths)))
    columns = {name: draw(hnp.arrays(np.float64, rows, elements=NUMBERS)) for name in ("obs_pulse", "obs_pressure")}
    return {
        **columns,
        "a_dose": np.linspace(0, 1, rows) * draw(st.floats(1, 100)),
        "reward": draw(hnp.arrays(np.float64, rows, elements=NUMBERS)),
        "terminated": terminated,
        "id": np.repeat(draw(st.permutations(range(len(lengths)))), lengths),
    }


@settings(max_examples=40, deadline=None)
@given(tables())
def test_every_kind_of_frame_gives_the_log_of_its_arrays(columns):
    expected = Log.from_arrays(**arrays(columns))
    for make in FRAMES.values():
        log = Log.from_frame(make(columns), **ROLES)
        assert log.fingerprint() == expected.fingerprint()
        assert log.names("observations") == ("obs_pulse", "obs_pressure")
        assert log.provenance["assumed"] == expected.provenance["assumed"]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables())
def test_files_of_columns_agree_to_the_bit_with_the_arrays(tmp_path, columns):
    expected = Log.from_arrays(**arrays(columns)).fingerprint()
    for name, write in WRITERS.items():
        write(columns, tmp_path / name)
        log = load_log(tmp_path / name)
        assert log.fingerprint() == expected, name
        assert log.names("actions") == ("a_dose",)


def test_bounds_environment_and_rows_on_disk_are_those_asked_for(tmp_path):
    columns = table()
    log = Log.from_frame(pd.DataFrame(columns), **ROLES, action_bounds=(0, 2), env_id="Ward-v0")
    assert (log.env_id, log.action_high.tolist()) == ("Ward-v0", [2])
    WRITERS["pandas.parquet"](columns, tmp_path / "log.parquet")
    found = load_log(tmp_path / "log.parquet", action_bounds=(0, 2), rows_in=tmp_path / "rows")
    assert found.on_disk
    assert found.fingerprint() == log.fingerprint()
    assert log_header(tmp_path / "log.parquet") is None


def test_successors_time_and_time_outs_may_be_columns_too():
    columns = table() | {"next_pulse": np.ones(12), "next_pressure": np.zeros(12)}
    roles = ROLES | {"observations": ["obs_pulse"], "next_observations": "next_pulse", "truncated": "cut"}
    del roles["episode"], roles["terminated"]
    log = Log.from_frame(columns | {"cut": [True] * 12}, **roles)
    assert (len(log), log.next_observations.min(), log.truncated.all()) == (12, 1.0, True)
    dates = pd.DataFrame(table()).assign(
        time=lambda frame: pd.Timestamp("2026-01-01") + pd.to_timedelta(frame.time, "h")
    )
    mixed = dates.sample(frac=1, random_state=0).sort_values("id", kind="stable")
    assert Log.from_frame(mixed, **ROLES, time="time").fingerprint() == Log.from_frame(dates, **ROLES).fingerprint()


@pytest.mark.parametrize(
    "column",
    [
        pd.array([1, 2, 3], "Int64"),
        pd.array([1.0, 2.0, 3.0], "Float64"),
        pl.Series([decimal.Decimal(n) for n in (1, 2, 3)]),
        pd.Series([1, 2, 3], index=[5, 1, 0]),
        pa.chunked_array([[1, 2], [3]]),
        np.array([1, 2, 3], np.float16),
    ],
)  # fmt: skip
def test_numbers_of_any_make_are_numbers(column):
    given = {"x": column, "a": [0.0, 0.5, 1.0], "r": column}
    log = Log.from_frame(
        given | {"end": [False, False, True]}, observations="x", actions="a", reward="r", terminated="end"
    )
    assert log.observations[:, 0].tolist() == log.rewards.tolist() == [1, 2, 3]


CATEGORY = pd.Categorical(["x", "y"] * 6)
BAD = [
    ("obs_pulse, row 3: is missing .*Nothing is filled in here", {"obs_pulse": [1.0, 2.0, 3.0, None] * 3}),
    ("obs_pulse, row 1: is missing", {"obs_pulse": pd.array([1, None] * 6, "Int64")}),
    ("obs_pulse, row 0: is missing", {"obs_pulse": [None] * 12}),
    ("terminated, row 1: is missing", {"terminated": pd.array([False, None] * 6, "boolean")}),
    ("reward, row 2: found 1e", {"reward": [0.0, 0.0, 1e300] * 4}),
    ("reward, row 0: found -inf", {"reward": [-np.inf] * 12}),
    ("obs_pulse, row 0: found 'x'.*one column of 0 and 1", {"obs_pulse": CATEGORY}),
    ("obs_pulse, row 2: found '12,5'.*repair it", {"obs_pulse": [1, 2, "12,5"] * 4}),
    ("obs_pulse, row 0: holds a list in each row.*Images are not supported", {"obs_pulse": [[1, 2]] * 12}),
    (r"obs_pulse, row 0: holds a ndarray of shape \(4, 4\)", {"obs_pulse": [np.zeros((4, 4))] * 12}),
    ("obs_pulse, row 0: holds a dict", {"obs_pulse": [{"a": 1}] * 12}),
    ("obs_pulse, row 0: holds dates; found 2026-01-01", {"obs_pulse": [datetime.datetime(2026, 1, 1)] * 12}),
    ("a_dose: holds 3 different whole numbers", {"a_dose": [0, 1, 2] * 4}),
    ("a_dose, row 0: found 'buy'", {"a_dose": ["buy", "sell"] * 6}),
    ("terminated, row 1: found 3. A flag", {"terminated": [0, 3] * 6}),
    ("id, row 1|episode, row 1: is missing", {"id": ["a", None] * 6}),
]  # fmt: skip


@pytest.mark.parametrize(("words", "column"), BAD)
def test_columns_that_cannot_be_used_are_refused_with_the_row(words, column):
    with pytest.raises(DataError, match=f"the frame: ({words})"):
        Log.from_frame(pd.DataFrame({**table(), **column}), **ROLES)


def test_vectors_of_polars_and_arrow_are_refused():
    vectors = pl.Series("obs_pulse", [[1.0, 2.0]] * 12)
    for column in (vectors, vectors.cast(pl.Array(pl.Float64, 2)), pl.Series([{"a": 1}] * 12)):
        frame = pl.DataFrame(table()).with_columns(column.alias("obs_pulse"))
        for made in (frame, frame.to_arrow()):
            with pytest.raises(DataError, match=r"obs_pulse, row 0: holds a .*Images are not supported"):
                Log.from_frame(made, **ROLES)


@pytest.mark.parametrize(
    ("words", "frame", "roles"),
    [
        ("pulse: there is no such column. The columns are id, time, obs_pulse", table(), {"observations": ["pulse"]}),
        ("no column is given for actions. Name at least one", table(), {"actions": []}),
        ("has 1 columns, observations has 2", table(), {"next_observations": ["reward"]}),
        ("reward: has 2 rows, obs_pulse has 12", {**table(), "reward": [1.0, 2.0]}, {}),
        ("is a LazyFrame, not a table.*collect", pl.LazyFrame(table()), {}),
        ("is a int, not a table", 3, {}),
        ("reward: is the name of two columns", pd.DataFrame(np.zeros((2, 2)), columns=["reward"] * 2), {}),
    ],
)
def test_frames_that_cannot_be_used_are_refused(words, frame, roles):
    with pytest.raises(DataError, match=words):
        Log.from_frame(frame, **(ROLES | roles))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_without_telling_names_say_what_to_do(tmp_path, suffix):
    path = tmp_path / f"log{suffix}"
    columns = {name.removeprefix("obs_"): column for name, column in table().items()}
    WRITERS[f"pandas{suffix}"](columns, path)
    with pytest.raises(DataError, match=r"no column is named like observations.*phyb data import"):
        load_log(path)
    WRITERS[f"pandas{suffix}"]({"obs_a": [1.0], "x": [2.0]}, path)
    with pytest.raises(DataError, match=r"no column is named like actions and reward"):
        load_log(path)
    path.write_text("PAR1 no table")
    with pytest.raises(DataError, match=r"cannot be read as a|no column is named"):
        load_log(path)


def test_a_bad_cell_is_found_wherever_it_is(tmp_path):
    path = tmp_path / "log.csv"
    lines = [f"{row},0.5,{row / 7},{row // 50000}" for row in range(100_000)]
    lines[99_998] = "1,x,1,1"
    path.write_text("obs_0,a_0,r,episode\n" + "\n".join(lines))
    with pytest.raises(DataError, match=r"log\.csv: a_0, row 99998: found 'x'"):
        load_log(path)
    lines[99_998] = "1.5,1.25,1"
    path.write_text("obs_0,a_0,r,episode\n" + "\n".join(lines))
    with pytest.raises(DataError, match=r"log\.csv: cannot be read as a CSV file .*Row #100000"):
        load_log(path)
    path.write_text("\ufeffobs_0,a_0,r,episode\n1,0.5,1,1\n2.5,1,1,1\n", encoding="utf-8")
    assert load_log(path).observations.tolist() == [[1.0]]


def test_a_parquet_file_larger_than_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "log.parquet"
    WRITERS["pandas.parquet"](table(), path)
    monkeypatch.setattr("phyb.data._limits.os.sysconf", lambda name: 10)
    with pytest.raises(DataError, match="this machine has"):
        load_log(path)


def test_without_pyarrow_only_files_and_foreign_frames_are_refused(tmp_path, monkeypatch):
    given = pa.table(table())
    WRITERS["pandas.csv"](table(), tmp_path / "log.csv")
    real = builtins.__import__

    def without(name, *rest, **options):
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    assert len(Log.from_frame(pl.DataFrame(table()), **ROLES)) == 10
    with pytest.raises(MissingExtraError, match=r"reading this frame .*phyb\[frames\]"):
        Log.from_frame(given, **ROLES)
    with pytest.raises(MissingExtraError, match=r"reading CSV files .*phyb\[frames\]"):
        load_log(tmp_path / "log.csv")


def test_no_frame_library_is_imported_for_a_dict():
    import subprocess

    code = (
        "import sys; from phyb.data.log import Log; "
        "Log.from_frame({'x': [1., 2.], 'a': [0., 1.], 'r': [1., 2.], 'end': [0, 1]}, "
        "observations='x', actions='a', reward='r', terminated='end'); "
        "sys.exit(any(name in sys.modules for name in ('pandas', 'polars', 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
