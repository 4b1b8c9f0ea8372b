"""The tanh-Gaussian actor: densities, squashing, and candidates that stand for the reference policy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from phyb.policy.actor import Actor, Gaussian, propose, squash, unsquash


def gaussian(mean, log_std):
    return Gaussian(jnp.atleast_2d(jnp.asarray(mean, jnp.float32)), jnp.atleast_2d(jnp.asarray(log_std, jnp.float32)))


@given(
    mean=hnp.arrays(np.float32, (3, 2), elements=st.floats(-3, 3, width=32)),
    log_std=hnp.arrays(np.float32, (3, 2), elements=st.floats(-2, 1, width=32)),
    draws=hnp.arrays(np.float32, (3, 4, 2), elements=st.floats(-5, 5, width=32)),
)
@settings(max_examples=20, deadline=None)
def test_the_density_is_that_of_independent_normals(mean, log_std, draws):
    found = Gaussian(jnp.asarray(mean), jnp.asarray(log_std)).log_density(jnp.asarray(draws))
    expected = scipy.stats.norm.logpdf(draws, mean[:, None], np.exp(log_std)[:, None]).sum(axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_draws_follow_the_density():
    draws = np.asarray(gaussian([0.5, -2.0], [0.0, -1.0]).sample(jax.random.key(0), 4000))[0]
    for column, mean, std in zip(draws.T, (0.5, -2.0), np.exp([0.0, -1.0]), strict=True):
        assert scipy.stats.kstest((column - mean) / std, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.06


def test_an_actor_maps_rows_to_gaussians_of_bounded_spread():
    actor = Actor(jax.random.key(0), 3, 2, (8,))
    pi = actor(1e3 * jax.random.normal(jax.random.key(1), (50, 3)))
    assert pi.mean.shape == pi.log_std.shape == (50, 2)
    assert float(pi.log_std.min()) >= -4.01
    assert float(pi.log_std.max()) <= 1.01
    assert float(jnp.ptp(pi.log_std)) > 1.0


@given(hnp.arrays(np.float32, 10, elements=st.floats(-0.99609375, 0.99609375, width=32)))
@settings(max_examples=20, deadline=None)
def test_unsquash_undoes_squash(actions):
    np.testing.assert_allclose(squash(unsquash(jnp.asarray(actions))), actions, atol=1e-5)


def test_actions_at_the_bounds_have_finite_draws():
    draws = unsquash(jnp.array([-1.0, 1.0, 1.5]))
    np.testing.assert_allclose(squash(draws), [-0.999, 0.999, 0.999], atol=1e-5)


@pytest.mark.parametrize("censored", [False, True])
def test_a_clipped_action_is_as_likely_as_all_draws_beyond_the_bound(censored):
    pi, actions = gaussian([0.4, -0.2], [-0.5, 0.3]), jnp.array([[0.97, -1.0], [0.2, 0.95], [-0.99, 0.5]])
    bound, law = np.arctanh(0.95), {"loc": [0.4, -0.2], "scale": np.exp([-0.5, 0.3])}
    draws = np.clip(np.arctanh(np.clip(np.asarray(actions, np.float64), -0.999, 0.999)), -bound, bound)
    expected = scipy.stats.norm.logpdf(draws, **law)
    if censored:
        expected[[0, 1], [0, 1]] = scipy.stats.norm.logsf(bound, **law)
        expected[[2, 0], [0, 1]] = scipy.stats.norm.logcdf(-bound, **law)
    np.testing.assert_allclose(pi.log_likelihood(actions, 0.95, censored=censored), expected.sum(axis=1), rtol=1e-4)


@pytest.mark.parametrize(
    ("counts", "logged"), [((4000, 4000, 0), False), ((3000, 3000, 2000), True), ((8, 2, 6), False)]
)
def test_candidates_stand_for_the_reference_policy(counts, logged):
    pi, mu = gaussian([0.8, 0.0], [-0.5, 0.0]), gaussian([0.0, 0.3], [0.0, -0.3])
    near = gaussian([-0.7, 0.5], np.log([0.1, 0.1])) if logged else None
    repeats = 8000 // sum(counts)
    pi, mu, near = jax.tree.map(lambda leaf: jnp.repeat(leaf, repeats, 0), (pi, mu, near))
    candidates = propose(jax.random.key(0), pi, mu, counts, near)
    assert candidates.draws.shape == (repeats, sum(counts), 2)
    np.testing.assert_allclose(candidates.reference.sum(axis=-1), 1.0, rtol=1e-4)
    # Self-normalised estimates of few candidates are biased towards their own mean.
    tolerance = 0.05 if repeats == 1 else 0.2
    for f, expected in (
        (lambda x: x[..., 0], 0.0),
        (lambda x: x[..., 1], 0.3),
        (lambda x: x[..., 0] ** 2, 1.0),
        (lambda x: (x[..., 1] > 0.3) * 1.0, 0.5),
    ):
        estimate = jnp.mean(jnp.sum(candidates.reference * f(candidates.draws), axis=-1))
        assert float(estimate) == pytest.approx(expected, abs=tolerance)


def test_no_candidate_counts_more_than_its_share_however_far_the_actor_has_gone():
    pi, mu = gaussian([4.0], [-2.0]), gaussian([0.0], [0.0])
    candidates = propose(jax.random.key(0), pi, mu, (12, 4, 0))
    reference = np.asarray(candidates.reference[0])
    assert np.all(reference[:12] < 1e-2), "where the reference never goes it has no mass"
    assert np.all(reference <= 0.26)
    # The balance heuristic: weight ~ mu / (n_pi pi + n_mu mu).
    x = np.asarray(candidates.draws[0, :, 0], np.float64)
    raw = scipy.stats.norm.pdf(x) / (12 * scipy.stats.norm.pdf(x, 4, np.exp(-2)) + 4 * scipy.stats.norm.pdf(x))
    np.testing.assert_allclose(reference, raw / raw.sum(), rtol=1e-3, atol=1e-6)


def test_equal_policies_give_equal_weights():
    mu = gaussian([0.2, 0.1], [0.0, -1.0])
    np.testing.assert_allclose(propose(jax.random.key(0), mu, mu, (3, 5, 0)).reference, 1 / 8, rtol=1e-5)


def test_candidates_carry_no_gradient():
    def total(mean):
        pi = Gaussian(mean, jnp.zeros_like(mean))
        candidates = propose(jax.random.key(0), pi, pi, (3, 3, 0))
        return jnp.sum(candidates.draws) + jnp.sum(candidates.reference**2)

    np.testing.assert_array_equal(jax.grad(total)(jnp.ones((2, 1))), 0.0)


def test_spread_changes_and_the_mean_stays():
    actor, rows = Actor(jax.random.key(0), 3, 2, (16,)), jax.random.normal(jax.random.key(1), (50, 3))
    before, after = actor(rows), actor.with_spread(0.5)(rows)
    np.testing.assert_array_equal(after.mean, before.mean)
    np.testing.assert_allclose(jnp.exp(after.log_std - before.log_std), 0.5, rtol=1e-5)
    np.testing.assert_array_equal(actor.with_spread(1.0)(rows).log_std, before.log_std)
