import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from log_examples import example_log, logs, with_value
from rich.console import Console

from phyb.data import Log, describe, load_log
from phyb.data.describe import render
from phyb.errors import DataError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def tiny_log():
    """Three episodes by hand: one terminates, one times out, one is left unfinished."""
    states = np.array([[0, 1], [1, 1], [2, 1], [10, 1], [11, 1], [20, 1]], np.float32)
    successors = np.array([[1, 1], [2, 1], [3, 1], [11, 1], [12, 1], [21, 1]], np.float32)
    return Log(
        observations=states,
        actions=np.array([[-2], [0], [2], [1], [1], [1.9999]], np.float32),
        rewards=np.array([1, 2, 3, 10, 20, -5], np.float32),
        next_observations=successors,
        terminated=np.array([0, 0, 1, 0, 0, 0], bool),
        truncated=np.array([0, 0, 0, 0, 1, 0], bool),
        action_low=np.array([-2], np.float32),
        action_high=np.array([2], np.float32),
    )


def printed(description, width=80):
    console = Console(file=io.StringIO(), width=width)
    render(description, console)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_log_small_enough_to_check_by_hand():
    d = describe(tiny_log(), "tiny")
    assert (d.rows, d.episodes, d.observation_size, d.action_size) == (6, 3, 2, 1)
    assert (d.terminated, d.truncated, d.unfinished) == (1, 1, 1)
    assert (d.episode_length["min"], d.episode_length["median"], d.episode_length["max"]) == (1, 2, 3)
    assert (d.episode_return["min"], d.episode_return["median"], d.episode_return["max"]) == (-5, 6, 30)
    assert d.episode_return["mean"] == pytest.approx(31 / 3)
    assert d.share_of_actions_at_bounds == d.actions[0].share_at_bounds == 0.5
    assert (d.observations[0].low, d.observations[0].high) == (0, 20)
    assert d.observations[0].mean == pytest.approx(44 / 6)
    assert d.rewards.std == pytest.approx(np.std([1, 2, 3, 10, 20, -5]))
    assert sum(d.rewards.histogram) == sum(d.observations[1].histogram) == 6
    assert d.bytes_in_memory == 6 * (4 * (2 + 1 + 1 + 2) + 2)
    assert {finding.field for finding in d.findings} == {"observations", "truncated"}


@given(log=logs())
@settings(max_examples=25, deadline=None)
def test_any_valid_log_can_be_described_printed_and_written_as_json(log):
    description = describe(log, "any [red]log")
    assert json.loads(json.dumps(dataclasses.asdict(description), allow_nan=False))["rows"] == len(log)
    assert description.terminated + description.truncated + description.unfinished == description.episodes
    assert description.episode_length["mean"] * description.episodes == pytest.approx(len(log))
    assert "any [red]log" in printed(description)


def test_a_log_that_breaks_a_rule_is_not_described():
    with pytest.raises(DataError, match=r"mine: rewards, row 3"):
        describe(with_value(example_log(), "rewards", 3, np.nan), "mine")


def test_the_printed_page_shows_sizes_episodes_columns_and_findings():
    text = printed(describe(tiny_log(), "tiny.npz"))
    for words in ("tiny.npz", "6 rows", "2 observation numbers, 1 action number", "[-2, 2]", "50.0%"):
        assert words in text
    assert "3: 1 terminated, 1 truncated, 1 unfinished" in text
    assert "warning: observations: column 1 is 1 on every row." in text
    assert "note: truncated, row 5: the last episode has no end." in text
    assert "Nothing suspicious found." in printed(describe(example_log(rows=1000, episode=100)))


@pytest.mark.skipif(not SHARED.exists(), reason="the shared logs are not here")
def test_a_halfcheetah_log_fits_80_characters_without_cutting_a_number():
    log = load_log(SHARED / "halfcheetah-medium.hdf5")
    text = printed(describe(log, "halfcheetah-medium"))
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert all(f" obs {i} " in text for i in range(17))
    assert "100: 0 terminated, 100 truncated, 0 unfinished" in text
