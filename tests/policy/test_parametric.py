"""The mirror step of a parametric policy against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyb.networks import gradient_step, start_optimizer
from phyb.policy.actor import Gaussian, propose
from phyb.policy.critics import vote_on
from phyb.policy.mirror import mirror_step
from phyb.policy.parametric import normalizer, parametric_step, relative_entropy, with_spread

BEST, CURVATURE, BETA = 1.5, 2.0, 0.7
MU = Gaussian(jnp.array([[0.2]]), jnp.log(jnp.array([[0.6]])))


def quadratic(draws):
    """Q = -c/2 (x - x*)^2 of two critics that agree."""
    return jnp.broadcast_to(-0.5 * CURVATURE * jnp.sum((draws - BEST) ** 2, axis=-1), (2, *draws.shape[:-1]))


def best_gaussian():
    """Mean and deviation of mu exp(Q / beta) / Z."""
    precision = 1 / 0.6**2 + CURVATURE / BETA
    return (0.2 / 0.6**2 + CURVATURE * BEST / BETA) / precision, precision**-0.5


def climb(loss, steps=600):
    optimizer = optax.adam(optax.cosine_decay_schedule(0.03, steps))

    def step(carry, key):
        found, state = carry
        return gradient_step(optimizer, jax.grad(loss)(found, key), state, found), None

    start = Gaussian(jnp.zeros((1, 1)), jnp.zeros((1, 1)))
    (found, _), _ = jax.lax.scan(
        step, (start, start_optimizer(optimizer, start)), jax.random.split(jax.random.key(0), steps)
    )
    return float(found.mean[0, 0]), float(jnp.exp(found.log_std[0, 0]))


def spread_out(gaussian, rows):
    return Gaussian(*(jnp.broadcast_to(part, (rows, 1)) for part in gaussian))


def test_the_gradient_and_the_candidates_reach_the_same_closed_form_optimum():
    rows = 64
    mu = spread_out(MU, rows)

    def by_gradient(pi, key):
        step = parametric_step(key, spread_out(pi, rows), mu, quadratic)
        return -jnp.mean(step.q[0] - BETA * step.divergence)

    def by_candidates(pi, key):
        candidates = propose(key, mu, mu, (0, 256, 0))
        weights = mirror_step(quadratic(candidates.draws)[0], candidates.reference, BETA, 1.0).weights
        return -jnp.mean(jnp.sum(weights * spread_out(pi, rows).log_density(candidates.draws), axis=-1))

    for loss in (by_gradient, by_candidates):
        np.testing.assert_allclose(climb(loss), best_gaussian(), atol=0.03)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(*[st.floats(-2, 2)] * 4), min_size=1, max_size=4))
def test_relative_entropy_is_the_integral_of_log_ratios(numbers):
    a, b, c, d = (jnp.array(column) for column in zip(*numbers, strict=True))
    p, m = Gaussian(a, 0.3 * b), Gaussian(c, 0.3 * d)
    found = float(relative_entropy(p, m))
    assert found >= -1e-5
    assert abs(float(relative_entropy(p, p))) < 1e-6
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    expected = 0.0
    for j in range(len(numbers)):
        x = float(p.mean[j]) + float(jnp.exp(p.log_std[j])) * nodes
        log_p, log_m = (
            -0.5 * ((x - float(g.mean[j])) / np.exp(float(g.log_std[j]))) ** 2 - float(g.log_std[j]) for g in (p, m)
        )
        expected += np.sum(weights * (log_p - log_m)) / np.sqrt(2 * np.pi)
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_the_step_is_differentiable_in_the_policy_alone_through_the_action():
    pi = Gaussian(jnp.array([[0.1]]), jnp.array([[-1.0]]))

    def q_of_step(mean):
        return jnp.sum(parametric_step(jax.random.key(3), pi._replace(mean=mean), MU, quadratic).q[0])

    draw = parametric_step(jax.random.key(3), pi, MU, quadratic).draws
    np.testing.assert_allclose(jax.grad(q_of_step)(pi.mean), -CURVATURE * (draw - BEST), rtol=1e-5)


def test_a_fixed_spread_replaces_the_learned_one_and_zero_keeps_it():
    np.testing.assert_allclose(jnp.exp(with_spread(MU, 0.3).log_std), 0.3, rtol=1e-6)
    assert with_spread(MU, 0.0) is MU


def test_votes():
    values = jnp.array([[3.0, 0.0], [1.0, 5.0], [2.0, 4.0]])
    np.testing.assert_array_equal(vote_on(jax.random.key(0), values, "least"), [1.0, 0.0])
    np.testing.assert_allclose(vote_on(jax.random.key(0), values, "mean"), [2.0, 3.0])
    pairs = {tuple(vote_on(jax.random.key(seed), values, "random-pair").tolist()) for seed in range(30)}
    assert pairs == {(1.0, 0.0), (2.0, 0.0), (1.0, 4.0)}, "the least of each of the three pairs, one pair for all rows"


def test_the_normalizer_takes_scale_away_and_passes_no_gradient():
    q = jnp.array([[2.0, -4.0], [1.0, 1.0]])
    assert float(normalizer(q)) == pytest.approx(2.0, rel=1e-5)
    assert float(normalizer(10 * q)) == pytest.approx(20.0, rel=1e-5)
    np.testing.assert_array_equal(jax.grad(normalizer)(q), 0.0)
