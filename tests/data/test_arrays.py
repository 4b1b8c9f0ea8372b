"""Logs from plain arrays: ends of episodes, successors, and what is refused."""

import dataclasses
import re

import numpy as np
import pytest
from frame_examples import arrays, table
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from log_examples import logs

from phyb import Log
from phyb.data import describe, load_log, save_log
from phyb.data.log import FIELDS
from phyb.errors import DataError

OBSERVATIONS = np.arange(6.0)[:, None]
ACTIONS = np.linspace(0, 1, 6)[:, None]
REWARDS = np.arange(6.0) / 10


def made(**options):
    return Log.from_arrays(OBSERVATIONS, ACTIONS, REWARDS, **options)


def refused(words, **options):
    with pytest.raises(DataError, match=words):
        Log.from_arrays(**{"observations": OBSERVATIONS, "actions": ACTIONS, "rewards": REWARDS, **options})


@settings(max_examples=30, deadline=None)
@given(logs())
def test_a_complete_log_goes_through_unchanged(log):
    complete = dataclasses.replace(log, truncated=log.truncated | (log.episode_ends & ~log.terminated))
    fields = {name: getattr(complete, name) for name in FIELDS}
    found = Log.from_arrays(**fields, action_bounds=(log.action_low, log.action_high), env_id=log.env_id)
    assert found.fingerprint() == complete.fingerprint()
    assert found.env_id == log.env_id


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=6), st.randoms())
def test_successors_come_from_the_following_row_and_only_ends_that_do_not_terminate_are_dropped(episodes, random):
    ids = np.repeat(np.arange(len(episodes)), [length for length, _ in episodes])
    rows = np.arange(float(len(ids)))
    last = np.append(ids[1:] != ids[:-1], True)
    terminated = last & np.array([episodes[number][1] for number in ids])
    kept = ~last | terminated
    columns = {"observations": rows[:, None], "actions": rows[:, None] / 10 + [[0.0]], "rewards": rows}
    bounds = (-1, 10)
    if not kept.any():
        with pytest.raises(DataError, match="every episode is one row long"):
            Log.from_arrays(**columns, episode=ids, action_bounds=bounds)
        return
    shuffled = np.array(random.sample(range(len(ids)), len(ids)))
    log = Log.from_arrays(
        **{name: array[shuffled] for name, array in columns.items()},
        terminated=terminated[shuffled], episode=ids[shuffled], time=rows[shuffled], action_bounds=bounds,
    )  # fmt: skip
    # Episodes are in the order in which the shuffled rows show them; inside, rows count up.
    first_seen = list(dict.fromkeys(ids[shuffled].tolist()))
    expected = [row for number in first_seen for row in rows[(ids == number) & kept]]
    assert log.observations[:, 0].tolist() == expected
    inner = ~last[log.observations[:, 0].astype(int)]
    assert (log.next_observations[:, 0] - log.observations[:, 0]).tolist() == inner.astype(float).tolist()
    assert log.terminated.tolist() == terminated[log.observations[:, 0].astype(int)].tolist()
    assert log.provenance.get("dropped_rows", {"truncated": 0})["truncated"] == int((~kept).sum())
    assert not (log.terminated & log.truncated).any()
    assert log.terminated[-1] or log.truncated[-1]


def test_the_end_of_an_episode_is_a_time_out_unless_said_otherwise():
    log = made(episode=[0, 0, 0, 1, 1, 1], next_observations=OBSERVATIONS + 1)
    assert log.truncated.tolist() == [False, False, True] * 2
    assert "every end of an episode counts as a time-out" in log.provenance["assumed"]["terminated"]
    log = made(episode=[0, 0, 0, 1, 1, 1], terminated=[0, 0, 1, 0, 0, 0], next_observations=OBSERVATIONS + 1)
    assert log.terminated.tolist() == [False, False, True, False, False, False]
    assert log.truncated.tolist() == [False] * 5 + [True]
    assert "1 episodes that do not terminate" in log.provenance["assumed"]["truncated"]


def test_dropped_rows_are_counted_and_named_as_they_were_given():
    log = made(episode=["b", "a", "b", "a", "b", "a"], time=[2, 1, 1, 2, 3, 3])
    assert log.observations[:, 0].tolist() == [2, 0, 1, 3]
    assert log.next_observations[:, 0].tolist() == [0, 4, 3, 5]
    assert log.truncated.tolist() == [False, True, False, True]
    assert log.provenance["dropped_rows"] == {"truncated": 2}
    assert log.provenance["dropped_row_numbers"] == [4, 5]


def test_flags_alone_or_a_time_that_starts_anew_say_where_episodes_end():
    by_flags = made(terminated=[0, 0, 1, 0, 0, 0], truncated=np.zeros(6))
    by_time = made(terminated=[0, 0, 1, 0, 0, 0], time=[0, 1, 2, 0, 1, 2])
    by_dates = made(terminated=[0, 0, 1, 0, 0, 0], time=np.array([5, 6, 7, 1, 2, 9], "datetime64[s]"))
    assert len({log.fingerprint() for log in (by_flags, by_time, by_dates)}) == 1
    assert by_flags.episode_lengths().tolist() == [3, 2]
    alone = made(terminated=[0, 0, 1, 0, 0, 1])
    assert alone.terminated.tolist() == [False, False, True] * 2
    assert "every marked end counts as terminated" in alone.provenance["assumed"]["truncated"]
    both = made(terminated=[0, 0, 1, 0, 0, 1], truncated=[0, 0, 1, 0, 0, 0])
    assert "1 rows are marked as both" in both.provenance["assumed"]["ends"]


def test_bounds_are_those_given_or_those_of_the_log():
    log = made(episode=[0] * 6)
    assert (log.action_low.tolist(), log.action_high.tolist()) == ([0], [1])
    assert "lowest and the highest" in log.provenance["assumed"]["action_bounds"]
    log = made(episode=[0] * 6, action_bounds=(-1, [2.0]))
    assert (log.action_low.tolist(), log.action_high.tolist()) == ([-1], [2])
    refused(r"actions, row 3: 0\.6 in column 0 is outside \[0, 0\.5\]", episode=[0] * 6, action_bounds=(0, 0.5))
    refused(r"action_low: has shape \(2,\)", episode=[0] * 6, action_bounds=([0, 0], [1, 1]))
    refused("not below action_high", episode=[0] * 6, actions=np.ones((6, 1)))


def test_arrays_are_copied():
    actions = np.array([[1.0 + 1e-6], [0.0]], np.float32)
    log = Log.from_arrays(np.zeros((2, 1)), actions, [0, 1], terminated=[0, 1], action_bounds=(0, 1))
    assert log.provenance["clipped_actions"] == 1
    assert (log.actions.max(), actions.max()) == (1.0, np.float32(1.0 + 1e-6))


def test_names_and_notes_live_in_the_log_and_in_its_file(tmp_path):
    log = made(episode=[0] * 6, names={"observations": ["pulse"], "actions": ["dose"]})
    save_log(log, tmp_path / "log.hdf5")
    again = load_log(tmp_path / "log.hdf5")
    assert (again.fingerprint(), again.provenance) == (log.fingerprint(), log.provenance)
    assert (again.names("observations"), again.names("actions")) == (("pulse",), ("dose",))
    shown = describe(again)
    assert [column.name for column in (*shown.observations, *shown.actions)] == ["pulse", "dose"]
    assert any("counts as a time-out" in finding.message for finding in shown.findings)


@pytest.mark.parametrize("kept", [None, 3, {"observations": ["a", "b"]}, {"observations": [3]}, {"observations": "p"}])
def test_names_that_do_not_fit_are_made_up(kept):
    log = dataclasses.replace(made(episode=[0] * 6), provenance={"names": kept})
    assert log.names("observations") == ("obs 0",)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("the arrays: nothing says where episodes end. Give episode", {}),
        ("rewards: has 5 rows, observations has 6", {"rewards": REWARDS[:5], "episode": [0] * 6}),
        (r"observations: has shape \(6,\), expected \(rows, size\)", {"observations": REWARDS, "episode": [0] * 6}),
        ("actions: has type <U1. Store plain numbers", {"actions": [["a"]] * 6, "episode": [0] * 6}),
        ("observations: is not an array", {"observations": [[1], [2, 3]], "episode": [0] * 6}),
        ("rewards, row 2: found nan", {"rewards": [0, 1, np.nan, 1, 2, 3], "episode": [0] * 6}),
        ("observations, row 1: found inf in column 0", {"observations": OBSERVATIONS * 1e39, "episode": [0] * 6}),
        ("terminated, row 1: found 2. A flag is", {"terminated": [0, 2, 0, 0, 0, 0]}),
        (r"episode: has shape \(2,\), expected \(6,\)", {"episode": [0, 1]}),
        ("episode, row 2: is missing", {"episode": [0, 0, None, 1, 1, 1]}),
        ("episode, row 2: is missing", {"episode": [0, 0, np.nan, 1, 1, 1]}),
        ("episode, row 2: 0 comes back after rows of other episodes", {"episode": [0, 1, 0, 1, 2, 2]}),
        ("time, row 3: is the same as in row 1 of the same episode", {"episode": [0] * 6, "time": [0, 1, 2, 1, 4, 5]}),
        ("time, row 1: found nan", {"time": [0, np.nan, 2, 3, 4, 5]}),
        ("time, row 0: has type <U1; found", {"time": list("abcdef")}),
        ("terminated, row 1: is True, but the episode goes on", {"terminated": [0, 1, 0, 0, 0, 1], "episode": [0] * 6}),
        ("truncated, row 0: is True, but .*goes on.*5 rows are", {"truncated": np.ones(6), "episode": [0] * 6}),
        ("every episode is one row long", {"episode": np.arange(6)}),
        (r"leads to 0 in column 0, but row 1", {"episode": [0] * 6, "next_observations": OBSERVATIONS * 0}),
        ("has no rows", {"observations": np.zeros((0, 1)), "actions": np.zeros((0, 1)), "rewards": [], "episode": []}),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(words, options):
    refused(words, **options)


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64])
def test_discrete_actions_are_refused_with_what_is_possible(kind):
    choices = np.array([0, 1, 1, 0, 1, 0]).astype(kind)[:, None]
    refused(r"actions: holds 2 different whole numbers .*discrete.*astype\(float\)", actions=choices, episode=[0] * 6)
    assert len(made(episode=[0] * 6)) == len(
        Log.from_arrays(OBSERVATIONS, choices.astype(float), REWARDS, episode=[0] * 6)
    )


@settings(max_examples=10, deadline=None)
@given(hnp.arrays(np.int64, 40, unique=True, elements=st.integers(-1000, 1000)))
def test_whole_numbers_of_many_values_are_amounts(doses):
    log = Log.from_arrays(np.zeros((40, 1)), doses[:, None], np.zeros(40), episode=np.zeros(40))
    assert (log.action_low[0], log.action_high[0]) == (doses.min(), doses.max())


def test_messages_keep_to_one_line_per_fault():
    columns = arrays(table())
    columns["rewards"] = columns["rewards"] * np.nan
    with pytest.raises(DataError) as caught:
        Log.from_arrays(**columns)
    assert re.fullmatch(
        r"the arrays: rewards, row 0: found nan \(12 rows have such values\)\. [^\n]+", str(caught.value)
    )
