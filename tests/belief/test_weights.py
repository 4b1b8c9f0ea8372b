"""Ranking, weighing and drawing members, and the likelihood ratio of proposition 1."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from phyb.belief.weights import draw_members, likelihood_ratio, ranks, subset_weights

N, ROWS = 5, 3
RULES = ("scaled_softmax", "softmax", "kth_min", "uniform", "single")
KEY = jax.random.key(0)

promises = hnp.arrays(np.float32, (N, ROWS), elements=st.floats(-100, 100, width=32, allow_subnormal=False))
quick = settings(max_examples=20, deadline=None)


def weigh(x, rule: Any = "softmax", k=3, temperature=0.5, key=KEY, **options):
    return np.asarray(subset_weights(key, jnp.asarray(x), rule=rule, subset_size=k, temperature=temperature, **options))


@pytest.mark.parametrize("rule", RULES)
@given(x=promises, k=st.integers(1, N), mix=st.sampled_from([0.0, 0.01, 0.3]))
@quick
def test_weights_are_a_distribution_over_the_k_smallest(rule, x, k, mix):
    alpha = weigh(x, rule, k, uniform_mix=mix)
    np.testing.assert_allclose(alpha.sum(axis=0), 1.0, rtol=1e-5)
    assert np.all(alpha >= 0)
    beyond = np.argsort(x, axis=0, kind="stable")[k:]
    np.testing.assert_allclose(np.take_along_axis(alpha, beyond, axis=0), mix / N, atol=1e-7)


@pytest.mark.parametrize("rule", ["scaled_softmax", "softmax"])
@given(x=promises)
@quick
def test_all_members_at_infinite_temperature_give_the_mean(rule, x):
    np.testing.assert_allclose(weigh(x, rule, N, 1e9), 1 / N, rtol=1e-5)


@pytest.mark.parametrize("rule", RULES)
@given(x=promises)
@quick
def test_a_subset_of_one_gives_the_minimum(rule, x):
    np.testing.assert_array_equal(np.sum(weigh(x, rule, 1) * x, axis=0), x.min(axis=0))


@pytest.mark.parametrize("rule", ["scaled_softmax", "softmax", "kth_min", "uniform"])
@given(seed=st.integers(0, 10**6), order=st.permutations(range(N)))
@quick
def test_renumbering_the_members_renumbers_the_weights(rule, seed, order):
    x = np.random.default_rng(seed).normal(size=(N, ROWS)).astype(np.float32)
    np.testing.assert_allclose(weigh(x[list(order)], rule), weigh(x, rule)[list(order)], rtol=1e-6)


@pytest.mark.parametrize("rule", ["scaled_softmax", "softmax", "kth_min", "uniform"])
@given(x=promises, temperature=st.floats(0.05, 20))
@quick
def test_a_larger_subset_is_never_more_pessimistic(rule, x, temperature):
    targets = [np.sum(weigh(x, rule, k, temperature) * x.astype(np.float64), axis=0) for k in range(1, N + 1)]
    assert np.all(np.diff(targets, axis=0) >= -1e-3)


def test_softmax_rules_equal_the_hand_computation():
    x = np.array([[3.0], [1.0], [9.0], [2.0], [4.0]], np.float32)
    raw = np.exp(-np.array([3.0, 1.0, 2.0]) / 0.5)
    np.testing.assert_allclose(weigh(x, "softmax")[[0, 1, 3], 0], raw / raw.sum(), rtol=1e-5)
    scaled = np.exp(-np.array([1.0, 0.0, 0.5]) / 0.5)
    np.testing.assert_allclose(weigh(x, "scaled_softmax")[[0, 1, 3], 0], scaled / scaled.sum(), rtol=1e-5)


@given(x=promises, log_factor=st.integers(-10, 10))
@quick
def test_the_scaled_rule_does_not_depend_on_the_scale_of_values(x, log_factor):
    x = np.where(np.abs(x) < 1e-3, 0.0, x).astype(np.float32)
    np.testing.assert_allclose(
        weigh(x * np.float32(2.0**log_factor), "scaled_softmax"), weigh(x, "scaled_softmax"), rtol=1e-5
    )


@given(x=promises, temperature=st.floats(0.5, 50), seed=st.integers(0, 1000))
@quick
def test_alpha_reaches_the_optimum_of_the_entropy_regularised_objective(x, temperature, seed):
    k = 3
    alpha = weigh(x, "softmax", k, temperature).astype(np.float64)
    smallest = np.sort(x.astype(np.float64), axis=0)[:k]

    def objective(weights, values):
        return np.sum(weights * values + temperature * scipy.special.xlogy(weights, weights), axis=0)

    optimum = -temperature * scipy.special.logsumexp(-smallest / temperature, axis=0)
    np.testing.assert_allclose(objective(alpha, x), optimum, rtol=1e-4, atol=1e-3)
    other = np.random.default_rng(seed).dirichlet(np.ones(k), size=ROWS).T
    assert np.all(objective(other, smallest) >= optimum - 1e-9 * np.abs(optimum))


def test_ranks_break_ties_by_the_order_of_drawing():
    x = jnp.array([[2.0, 1.0], [1.0, 1.0], [2.0, 1.0], [0.0, 0.5]])
    np.testing.assert_array_equal(ranks(x), [[2, 1], [1, 2], [3, 3], [0, 0]])


@given(
    x=hnp.arrays(np.float32, (N, ROWS), elements=st.integers(-2, 2).map(float)),
    k=st.integers(1, N),
)
@quick
def test_kth_min_picks_exactly_one_member_of_the_kth_smallest_value(x, k):
    alpha = weigh(x, "kth_min", k)
    assert np.all(np.sort(alpha, axis=0) == np.eye(N)[-1][:, None])
    np.testing.assert_array_equal(np.sum(alpha * x, axis=0), np.sort(x, axis=0)[k - 1])


def test_single_draws_evenly_from_the_subset():
    rows, k = 20_000, 3
    x = np.tile(np.array([[4.0], [1.0], [3.0], [0.0], [2.0]], np.float32), (1, rows))
    alpha = weigh(x, "single", k)
    assert np.all(np.sort(alpha, axis=0)[-1] == 1.0)
    np.testing.assert_allclose(alpha.mean(axis=1), [0, 1 / 3, 0, 1 / 3, 1 / 3], atol=0.015)


def test_uniform_mix_is_taken_evenly_from_the_weights():
    x = np.arange(N, dtype=np.float32)[:, None]
    np.testing.assert_allclose(weigh(x, "kth_min", 2, uniform_mix=0.1)[:, 0], [0.02, 0.92, 0.02, 0.02, 0.02], rtol=1e-6)


def frequencies(draws, size):
    return np.bincount(np.ravel(draws), minlength=size) / np.size(draws)


def test_independent_draws_follow_the_prior_and_may_repeat():
    prior = jnp.log(jnp.array([0.5, 0.3, 0.2, 0.0]))
    draws = jax.vmap(lambda key: draw_members(key, prior + 7.0, 6, "independent"))(jax.random.split(KEY, 5000))
    assert draws.shape == (5000, 6)
    for slot in range(6):
        np.testing.assert_allclose(frequencies(draws[:, slot], 4), [0.5, 0.3, 0.2, 0.0], atol=0.03)
    together = np.mean((draws[:, 0] == 1) & (draws[:, 1] == 1))
    assert together == pytest.approx(0.09, abs=0.015)


def test_distinct_draws_never_repeat_and_follow_successive_sampling():
    p = np.array([0.5, 0.3, 0.2, 0.0])
    draws = jax.vmap(lambda key: draw_members(key, jnp.log(jnp.asarray(p)), 2, "distinct"))(
        jax.random.split(KEY, 20_000)
    )
    draws = np.asarray(draws)
    assert np.all(draws[:, 0] != draws[:, 1])
    for first, second in itertools.permutations(range(3), 2):
        expected = p[first] * p[second] / (1 - p[first])
        assert np.mean((draws == [first, second]).all(axis=1)) == pytest.approx(expected, abs=0.015)


def test_distinct_draws_of_everything_are_a_permutation():
    drawn = draw_members(KEY, jnp.zeros(7), 7, "distinct")
    np.testing.assert_array_equal(np.sort(drawn), np.arange(7))


@pytest.mark.parametrize(("weights", "size"), [([1.0], 1), ([0.7, 0.2, 0.1], 3), ([0.5, 0.3, 0.2], 10), ([1.0], 20)])
def test_the_likelihood_ratio_is_a_mixture_of_order_statistics(weights, size):
    points, mass = np.polynomial.legendre.leggauss(30)
    points, mass = 0.5 * (points + 1), 0.5 * mass
    xi = np.asarray(likelihood_ratio(jnp.asarray(points, jnp.float32), jnp.asarray(weights), size))
    assert np.sum(mass * xi) == pytest.approx(1.0, abs=1e-4)
    mixture = sum(w * scipy.stats.beta.pdf(points, i + 1, size - i) for i, w in enumerate(weights))
    np.testing.assert_allclose(xi, mixture, rtol=1e-3, atol=1e-5)


def test_the_likelihood_ratio_says_how_often_the_belief_meets_each_quantile():
    weights, size, trials = np.array([0.6, 0.3, 0.1]), 8, 50_000
    rng = np.random.default_rng(0)
    drawn = np.sort(rng.uniform(size=(trials, size)), axis=1)
    followed = drawn[np.arange(trials), rng.choice(3, size=trials, p=weights)]
    observed, edges = np.histogram(followed, bins=20, range=(0, 1), density=True)
    inside = edges[:-1, None] + (np.arange(50) + 0.5) / 50 * 0.05
    xi = likelihood_ratio(jnp.asarray(inside, jnp.float32), jnp.asarray(weights, jnp.float32), size)
    np.testing.assert_allclose(observed, np.mean(xi, axis=1), atol=0.15)


def test_the_likelihood_ratio_favours_low_quantiles_and_is_flat_without_pessimism():
    q = jnp.linspace(0.0, 1.0, 11)
    np.testing.assert_allclose(likelihood_ratio(q, jnp.full(6, 1 / 6), 6), 1.0, atol=1e-5)
    assert np.all(np.diff(likelihood_ratio(q, jnp.array([0.5, 0.3, 0.2]), 6)) <= 1e-6)
