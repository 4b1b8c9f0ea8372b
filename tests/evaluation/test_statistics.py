"""Statistics over seeds: by hand, against SciPy and brute force, and what must hold of any scores."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from phyb.errors import UsageError
from phyb.evaluation.statistics import (
    aggregate,
    interquartile_mean,
    interval,
    mean,
    mean_and_std,
    median,
    optimality_gap,
    probability_of_improvement,
    run_profile,
    task_profile,
)

ONE_NUMBER = (mean, median, interquartile_mean, optimality_gap)
UNEVEN = {"easy": [1.0, 1.0, 1.0, 1.0], "hard": [0.0, 0.5]}
tables = arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 4)),
    elements=st.integers(-8, 8).map(lambda number: number / 4),  # ties are common, sums are exact
)


def test_the_interquartile_mean_of_a_textbook_sample():
    sample = np.array([5, 8, 4, 38, 8, 6, 9, 7, 7, 3, 1, 6])  # the middle six are 5, 6, 6, 7, 7, 8
    assert interquartile_mean(sample[:, None]) == 6.5
    assert interquartile_mean(sample.reshape(4, 3)) == 6.5, "runs of all tasks are pooled"


@pytest.mark.parametrize(
    ("sample", "expected"),
    [([7], 7), ([1, 2, 9], 4), ([0, 1, 2, 90], 1.5), ([0, 1, 2, 3, 90], 2), ([0, 1, 2, 3, 4, 5, 6, 90], 3.5)],
)
def test_no_run_counts_in_part(sample, expected):
    assert interquartile_mean({"task": sample}) == expected


@given(tables)
def test_the_interquartile_mean_is_the_trimmed_mean_of_scipy(table):
    assert interquartile_mean(table) == pytest.approx(scipy.stats.trim_mean(table.ravel(), 0.25), abs=1e-12)


def test_a_small_table_by_hand():
    table = np.array([[0.25, 1.0, 3.0], [0.75, 2.0, 3.0]])  # task means 0.5, 1.5, 3.0
    assert mean(table) == pytest.approx(5 / 3)
    assert median(table) == 1.5
    assert optimality_gap(table) == pytest.approx((0.75 + 0.25) / 6)
    assert optimality_gap(table, gamma=2.0) == pytest.approx((1.75 + 1.25 + 1.0) / 6)
    np.testing.assert_allclose(run_profile(table, [0.0, 0.5, 1.0, 2.5, 3.0]), [1, 5 / 6, 1 / 2, 1 / 3, 0])
    np.testing.assert_allclose(task_profile(table, [0.0, 0.5, 1.0, 2.5, 3.0]), [1, 2 / 3, 2 / 3, 1 / 3, 0])
    of_first = mean_and_std(table)["0"]
    assert of_first == pytest.approx((0.5, 0.125**0.5))


def test_the_tortoise_and_the_hare():
    """Mann and Whitney's race: finishing order T H H H H H T T T T T H, U = 25 of 36 pairs for the hares."""
    order = "THHHHHTTTTTH"
    place = {who: [-float(i) for i, one in enumerate(order) if one == who] for who in "TH"}
    assert probability_of_improvement({"race": place["H"]}, {"race": place["T"]}) == pytest.approx(25 / 36)
    assert probability_of_improvement({"race": place["T"]}, {"race": place["H"]}) == pytest.approx(11 / 36)


@given(tables, st.data())
@settings(max_examples=50)
def test_the_probability_of_improvement_counts_pairs_and_half_the_ties(ours, data):
    theirs = data.draw(arrays(np.float64, (data.draw(st.integers(1, 5)), ours.shape[1]), elements=st.integers(-2, 2)))
    found = probability_of_improvement(ours, theirs)
    expected = [
        np.mean([(x > y) + 0.5 * (x == y) for x, y in itertools.product(*pair)])
        for pair in zip(ours.T, theirs.T, strict=True)
    ]
    assert found == pytest.approx(np.mean(expected))
    assert found + probability_of_improvement(theirs, ours) == pytest.approx(1.0)
    u = [scipy.stats.mannwhitneyu(x, y, method="asymptotic").statistic for x, y in zip(ours.T, theirs.T, strict=True)]
    assert found == pytest.approx(np.mean(u) / (len(ours) * len(theirs)))


@given(tables, st.randoms(use_true_random=False))
def test_the_order_of_seeds_and_tasks_does_not_matter(table, random):
    shuffled = table[random.sample(range(len(table)), len(table))][
        :, random.sample(range(table.shape[1]), table.shape[1])
    ]
    for statistic in ONE_NUMBER:
        assert statistic(shuffled) == pytest.approx(statistic(table), abs=1e-12)
    np.testing.assert_allclose(run_profile(shuffled, [-1, 0, 1]), run_profile(table, [-1, 0, 1]))


@given(tables, st.data())
def test_a_better_run_never_makes_things_worse(table, data):
    better = table.copy()
    better[data.draw(st.integers(0, len(table) - 1)), data.draw(st.integers(0, table.shape[1] - 1))] += 0.75
    for statistic, sign in ((mean, 1), (median, 1), (interquartile_mean, 1), (optimality_gap, -1)):
        assert sign * (statistic(better) - statistic(table)) >= -1e-12
    thresholds = np.linspace(-2, 3, 7)
    for profile in (run_profile, task_profile):
        assert np.all(profile(better, thresholds) >= profile(table, thresholds))
        assert np.all(np.diff(profile(table, thresholds)) <= 0)
    assert probability_of_improvement(better, table) >= 0.5


@given(tables)
def test_scores_moved_and_scaled_move_and_scale_the_aggregates(table):
    for statistic in (mean, median, interquartile_mean):
        assert statistic(2 * table + 3) == pytest.approx(2 * statistic(table) + 3)
    assert optimality_gap(table, 2.0) == pytest.approx(2.0 - np.minimum(table, 2.0).mean())


def test_a_mapping_says_the_same_as_a_table():
    table = np.random.default_rng(0).normal(size=(5, 3))
    mapping = dict(zip("abc", table.T, strict=True))
    for statistic in ONE_NUMBER:
        assert statistic(mapping) == statistic(table)


def test_tasks_with_different_numbers_of_seeds_count_the_same_or_are_refused():
    assert mean(UNEVEN) == pytest.approx(0.625)
    assert median(UNEVEN) == pytest.approx(0.625)
    assert optimality_gap(UNEVEN) == pytest.approx(0.375)
    np.testing.assert_allclose(run_profile(UNEVEN, [0.25, 0.75]), [0.75, 0.5])
    assert probability_of_improvement(UNEVEN, {"easy": [1.0], "hard": [0.5, 0.5, 0.5]}) == pytest.approx(0.375)
    low, high = interval(mean, UNEVEN)
    assert (low, high) == (0.5, 0.75)
    with pytest.raises(UsageError, match=r"as many seeds of every task.*'easy': 4, 'hard': 2"):
        interquartile_mean(UNEVEN)


@pytest.mark.parametrize("statistic", ONE_NUMBER)
def test_leading_axes_are_kept_and_each_entry_is_the_statistic_of_its_scores(statistic):
    table = np.random.default_rng(0).normal(size=(4, 3, 5, 2))
    found = statistic({"a": table[..., 0], "b": table[..., 1]})
    assert found.shape == (4, 3)
    assert found[2, 1] == pytest.approx(statistic(table[2, 1]))


def test_the_interval_holds_the_percentiles_of_all_samples_that_can_be_drawn():
    ours = {"one": [0.0, 1.0, 5.0], "two": [2.0, 3.0]}
    every = [
        (np.mean(first) + np.mean(second)) / 2
        for first in itertools.product(ours["one"], repeat=3)
        for second in itertools.product(ours["two"], repeat=2)
    ]
    low, high = interval(mean, ours, level=0.8, resamples=50_000)
    assert (low, high) == pytest.approx(tuple(np.quantile(every, [0.1, 0.9])), abs=1e-9)


def test_seeds_are_drawn_within_their_task():
    """Scores that differ between tasks but not within have no spread, however far apart the tasks are."""
    low, high = interval(mean, np.array([[0.0, 10.0]] * 4))
    assert (low, high) == (5.0, 5.0)


def test_intervals_are_repeatable_nested_and_hold_every_kind_of_statistic():
    ours, theirs = np.random.default_rng(0).normal([[0.0], [0.6]], 1.0, (2, 8))[..., None]
    assert interval(interquartile_mean, ours, seed=3) == interval(interquartile_mean, ours, seed=3)
    narrow, wide = (interval(mean, ours, level=level) for level in (0.5, 0.95))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
    low, high = interval(probability_of_improvement, ours, theirs)
    assert 0.0 <= low < probability_of_improvement(ours, theirs) < high <= 1.0
    low, high = interval(lambda scores: run_profile(scores, [-1.0, 0.0, 1.0]), ours)
    assert low.shape == high.shape == (3,)
    assert np.all(low <= high)


@pytest.mark.parametrize(("seeds", "least", "most"), [(40, 0.91, 0.98), (4, 0.70, 0.88)])
def test_how_often_an_interval_holds_the_truth(seeds, least, most):
    """Close to its nominal 95 % with many seeds, far below with four."""
    rng = np.random.default_rng(0)
    held = [
        low <= 1.0 <= high
        for low, high in (
            interval(mean, rng.normal(1.0, [0.5, 2.0], (seeds, 2)), resamples=400, seed=trial) for trial in range(400)
        )
    ]
    assert least < np.mean(held) < most


def test_the_summary_names_every_aggregate_with_its_interval():
    table = np.random.default_rng(1).normal(0.8, 0.2, (5, 3))
    found = aggregate(table, resamples=500)
    assert list(found) == ["mean", "median", "interquartile_mean", "optimality_gap"]
    assert found["mean"].value == pytest.approx(table.mean())
    for estimate in found.values():
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low <= estimate.value <= estimate.high
    assert found["mean"].low == interval(mean, table, resamples=500)[0]


def test_one_seed_has_no_spread_and_no_interval():
    assert np.isnan(mean_and_std({"task": [3.0]})["task"][1])
    with pytest.raises(UsageError, match="at least 2 seeds of every task; only 1 of: b"):
        interval(mean, {"a": [1.0, 2.0], "b": [1.0]})


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        (np.zeros(3), r"shape \(3,\); expected \(seeds, tasks\)"),
        (np.zeros((0, 2)), "task 0 has no scores"),
        (np.zeros((2, 0)), "no scores"),
        ({}, "no scores"),
        ({"a": [1.0], "b": []}, "task b has no scores"),
        ({"a": [1.0, np.nan, np.inf]}, "task a: 2 of its scores are not finite"),
    ],
)
def test_scores_that_say_nothing_are_refused(scores, found):
    for statistic in (*ONE_NUMBER, mean_and_std):
        with pytest.raises(UsageError, match=found):
            statistic(scores)


def test_scores_with_axes_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match=r"leading axes differ.*'a': \(2, 3\)"):
        mean({"a": np.zeros((2, 3)), "b": np.zeros(3)})
    for needs_plain_numbers in (mean_and_std, lambda scores: interval(mean, scores)):
        with pytest.raises(UsageError, match=r"task a has scores of shape \(2, 3\)"):
            needs_plain_numbers({"a": np.zeros((2, 3))})


def test_comparisons_of_other_tasks_and_impossible_levels_are_refused():
    with pytest.raises(UsageError, match="same tasks"):
        probability_of_improvement({"a": [1.0]}, {"b": [1.0]})
    for level, resamples in ((0.0, 10), (1.0, 10), (0.5, 0)):
        with pytest.raises(UsageError, match="level must lie"):
            interval(mean, np.zeros((3, 1)), level=level, resamples=resamples)
