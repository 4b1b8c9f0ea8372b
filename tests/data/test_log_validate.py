import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from log_examples import example_log, logs, with_value

from phyb.data import validate
from phyb.data.validate import Finding
from phyb.errors import DataError


def quiet_log(**options):
    return example_log(**{"rows": 1000, "episode": 100, **options})


def only(findings):
    [finding] = findings
    return finding


def test_a_good_log_has_no_findings():
    assert validate(quiet_log(), "log") == []


@given(log=logs())
@settings(max_examples=25, deadline=None)
def test_any_valid_log_passes_with_warnings_before_notes(log):
    severities = [finding.severity for finding in validate(log, "log")]
    assert severities == sorted(severities, reverse=True)


def test_constant_columns_are_warned_about():
    log = quiet_log(rows=1000)
    for array in (log.observations, log.next_observations):
        array[:, 2] = 0.5
    log.actions[:, 0] = -0.25
    one, two = validate(log, "log")
    assert (one.severity, one.field, one.message) == (
        "warning",
        "observations",
        "column 2 is 0.5 on every row",
    )
    assert (two.severity, two.field, two.message) == ("warning", "actions", "column 0 is -0.25 on every row")


def test_equal_rewards_are_warned_about():
    log = dataclasses.replace(quiet_log(), rewards=np.full(1000, 2, np.float32))
    finding = only(validate(log, "log"))
    assert (finding.severity, finding.field, finding.message) == ("warning", "rewards", "every reward is 2")


def test_a_terminal_row_that_leads_to_the_next_episode_is_found():
    log = quiet_log()
    first_end = int(np.argmax(log.terminated))
    borrowed = with_value(log, "next_observations", first_end, log.observations[first_end + 1])
    finding = only(validate(borrowed, "log"))
    assert (finding.severity, finding.field, finding.row) == ("warning", "next_observations", first_end)
    assert "first state of the next episode" in finding.message
    cut = with_value(log, "next_observations", 199, log.observations[200])
    assert log.truncated[199]
    assert validate(cut, "log") == []


@pytest.mark.parametrize(("copies", "severity"), [(1, "note"), (5, "warning")])
def test_repeated_rows_are_counted(copies, severity):
    one = quiet_log(rows=100 * 10)
    fields = ("observations", "actions", "rewards", "next_observations", "terminated", "truncated")
    rows = np.r_[np.arange(1000), [999] * copies, np.tile(np.arange(300, 400), copies // 5)]
    finding = only(validate(dataclasses.replace(one, **{f: getattr(one, f)[rows] for f in fields}), "log"))
    assert (finding.severity, finding.row) == (severity, 1000)
    assert finding.message.startswith(f"{len(rows) - 1000} rows")


def test_episode_ends_are_noted():
    log = dataclasses.replace(quiet_log(), terminated=np.zeros(1000, bool), truncated=quiet_log().episode_ends)
    assert only(validate(log, "log")).message == "no episode terminates"
    unfinished = with_value(quiet_log(rows=1050), "terminated", -1, False)
    finding = only(validate(with_value(unfinished, "truncated", -1, False), "log"))
    assert (finding.severity, finding.field, finding.row) == ("note", "truncated", 1049)


def test_short_logs_are_warned_about():
    assert only(validate(quiet_log(rows=999), "log")).message == "the log has only 999 rows"


def test_what_the_reader_assumed_is_noted():
    provenance = {
        "assumed": {"timeouts": "taken as False"},
        "clipped_actions": 3,
        "dropped_rows": {"terminated": 0},
    }
    one, two = validate(dataclasses.replace(quiet_log(), provenance=provenance), "log")
    assert one == Finding("note", "timeouts", None, "taken as False", "Store it in the file if this is wrong")
    assert two.message.startswith("3 rows")


def test_float_noise_does_not_break_episodes_but_a_real_gap_does():
    log = quiet_log()
    noise = np.random.default_rng(1).normal(size=log.observations.shape) * 1e-6
    noisy = dataclasses.replace(log, next_observations=(log.next_observations + noise).astype(np.float32))
    assert validate(noisy, "log") == []
    gap = with_value(log, "next_observations", 42, log.next_observations[42] + np.array([0, 0.1, 0], np.float32))
    with pytest.raises(DataError, match=r"^mine: next_observations, row 42: .*column 1.*\(1 of 990 .*True on this row"):
        validate(gap, "mine")
    assert validate(with_value(gap, "truncated", 42, True), "mine") == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": [0.0] * 40}, r"mine: rewards: is a list, not an array. .*np.asarray"),
        ({"rewards": np.zeros((40, 1))}, r"mine: rewards: has shape \(40, 1\), expected \(rows,\). Flatten"),
        (
            {"terminated": np.zeros(40)},
            r"mine: terminated: has type float64, expected bool. .*astype\(bool\)",
        ),
        ({"observations": np.full((40, 3), None)}, r"mine: observations: holds Python objects"),
        ({"action_low": [-1, -1]}, r"mine: action_low: .*one bound per action column"),
        (
            {"action_low": np.zeros(2), "action_high": np.zeros(2)},
            r"mine: action_low: is 0 in column 0, not below",
        ),
    ],
)
def test_logs_made_by_hand_are_checked_too(change, message):
    with pytest.raises(DataError, match=message):
        validate(dataclasses.replace(example_log(), **change), "mine")


def test_repeats_are_counted_exactly_on_rows_that_differ_in_few_bits():
    rng = np.random.default_rng(0)
    log = quiet_log()
    grid = dataclasses.replace(
        log,
        observations=rng.integers(0, 4, (1000, 3)).astype(np.float32),
        next_observations=rng.integers(0, 4, (1000, 3)).astype(np.float32),
        actions=rng.integers(-1, 2, (1000, 2)).astype(np.float32),
        rewards=rng.integers(0, 2, 1000).astype(np.float32),
        truncated=np.ones(1000, bool),
        terminated=np.zeros(1000, bool),
    )
    table = np.column_stack([grid.observations, grid.actions, grid.rewards, grid.next_observations])
    expected = 1000 - len(np.unique(table, axis=0))
    found = [finding.message for finding in validate(grid, "log") if "repeat" in finding.message]
    assert found == ([f"{expected:,} rows ({expected / 1000:.1%}) repeat an earlier row exactly"] if expected else [])
