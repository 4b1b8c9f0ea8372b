"""One Gaussian model and its losses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from phyb.dynamics.model import GaussianModel, Heads, cross_entropy, gaussian_nll


@pytest.fixture(scope="module")
def model():
    return GaussianModel(jax.random.key(0), 3, 2, (8,))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(x) for x in (rng.normal(size=(32, 3)), rng.normal(size=(32, 2)), rng.random(32) < 0.3))


def test_heads_have_the_shape_of_the_rows_and_a_clamped_spread(model):
    for batch in ((5,), (2, 5)):
        heads = model(1e4 * jax.random.normal(jax.random.key(1), (*batch, 3)))
        assert heads.mean.shape == heads.log_std.shape == (*batch, 2)
        assert heads.done_logit.shape == batch
        assert float(heads.log_std.min()) >= -5.01
        assert float(heads.log_std.max()) <= 1.01


def test_the_loss_of_a_row_is_its_negative_log_likelihood():
    rng = np.random.default_rng(1)
    mean, log_std, targets = rng.normal(size=(3, 10, 2)).astype(np.float32)
    heads = Heads(jnp.asarray(mean), jnp.asarray(log_std), jnp.zeros(10))
    expected = -scipy.stats.norm.logpdf(targets, mean, np.exp(log_std)) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(gaussian_nll(heads, jnp.asarray(targets)), expected, rtol=1e-4, atol=1e-4)


def test_cross_entropy_is_that_of_a_coin_and_never_overflows():
    logit = jnp.array([-2.0, 0.0, 3.0, 500.0, -500.0])
    p = 1 / (1 + np.exp(-np.asarray(logit[:3], np.float64)))
    np.testing.assert_allclose(cross_entropy(logit[:3], jnp.ones(3, bool)), -np.log(p), rtol=1e-5)
    np.testing.assert_allclose(cross_entropy(logit[:3], jnp.zeros(3, bool)), -np.log(1 - p), rtol=1e-5)
    np.testing.assert_allclose(cross_entropy(logit[3:], jnp.array([False, True])), [500.0, 500.0])


def loss(model, rows, **options):
    return model.loss(*rows, **{"nll_beta": 0.0, "bound_weight": 0.0, "done_weight": 0.0, **options})


def test_without_beta_the_loss_is_the_plain_likelihood_plus_its_named_parts(model, rows):
    heads = model(rows[0])
    plain = float(jnp.mean(gaussian_nll(heads, rows[1])))
    assert float(loss(model, rows)) == pytest.approx(plain, rel=1e-5)
    ends = float(jnp.mean(cross_entropy(heads.done_logit, rows[2])))
    assert float(loss(model, rows, done_weight=2.0)) == pytest.approx(plain + 2 * ends, rel=1e-5)
    assert float(loss(model, rows, bound_weight=0.5)) == pytest.approx(plain + 0.5 * 6.0, rel=1e-5)


def test_with_beta_1_the_mean_learns_as_from_squared_error(model, rows):
    targets = rows[1]

    def squared(model):
        heads = model(rows[0])
        scale = jax.lax.stop_gradient(jnp.mean(jnp.exp(2 * heads.log_std), axis=0))
        return jnp.mean(0.5 * (heads.mean - targets) ** 2 / scale)

    last = lambda m: m.trunk.biases[-1][:2]  # the mean heads' bias  # noqa: E731
    np.testing.assert_allclose(
        last(jax.grad(lambda m: loss(m, rows, nll_beta=1.0))(model)),
        last(jax.grad(squared)(model)),
        rtol=1e-4,
    )
    plain = last(jax.grad(lambda m: loss(m, rows))(model))
    assert not np.allclose(plain, last(jax.grad(squared)(model)), rtol=1e-2)


def test_the_pull_on_the_bounds_closes_them(model, rows):
    slope = jax.grad(lambda m: loss(m, rows, bound_weight=1.0) - loss(m, rows))(model)
    np.testing.assert_allclose(slope.max_log_std, 0.5, rtol=1e-3)
    np.testing.assert_allclose(slope.min_log_std, -0.5, rtol=1e-3)


def test_without_the_termination_head_its_weights_get_no_gradient(model, rows):
    slope = jax.grad(lambda m: loss(m, rows, nll_beta=0.5))(model)
    assert float(slope.trunk.biases[-1][-1]) == 0.0
    assert float(jnp.abs(slope.trunk.biases[-1][:-1]).min()) > 0
    assert eqx.tree_equal(jax.tree.structure(slope), jax.tree.structure(model))
