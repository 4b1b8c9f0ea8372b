"""A pool speaks in the units of the log and can weigh its members by likelihood."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.networks import Standardizer


@pytest.fixture(scope="module")
def pool(linear_pool):
    rng = np.random.default_rng(0)
    plain = linear_pool(
        rng.normal(size=(3, 3, 3)),
        rng.normal(size=(3, 3)),
        log_std=rng.uniform(-2, 0, (3, 3)),
        done_weights=rng.normal(size=(3, 3)),
        done_bias=0.5,
        holdout_nll=[2.0, 1.0, 1.5],
    )
    units = (
        Standardizer(jnp.array([1.0, 2.0, 3.0]), jnp.array([2.0, 0.0, 0.5])),
        Standardizer(jnp.array([0.1, 7.0, -4.0]), jnp.array([3.0, 0.0, 20.0])),
    )
    return eqx.tree_at(lambda p: (p.inputs, p.outputs), plain, units)


def test_predictions_are_in_the_units_of_the_log(pool):
    rng = np.random.default_rng(1)
    observations, actions = (
        rng.normal(size=(5, 2)).astype(np.float32),
        rng.normal(size=(5, 1)).astype(np.float32),
    )
    asked = np.array([2, 0, 2])
    told = pool.predict(jnp.asarray(asked), observations, actions)
    for slot, member in enumerate(asked):
        weight, bias = (
            np.asarray(x[member], np.float64) for x in (pool.members.trunk.weights[0], pool.members.trunk.biases[0])
        )
        rows = (np.concatenate([observations, actions], axis=1) - [1, 2, 3]) / [2, np.inf, 0.5]
        out = rows @ weight + bias
        mean, std = np.array([0.1, 7, -4]) + [3, 0, 20] * out[:, :3], np.array([3, 0, 20]) * np.exp(out[:, 3:6])
        np.testing.assert_allclose(told.next_mean[slot], observations + mean[:, :2], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(told.next_std[slot], std[:, :2], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(told.reward_mean[slot], mean[:, 2], rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(told.reward_std[slot], std[:, 2], rtol=1e-4)
        np.testing.assert_allclose(told.done_probability[slot], 1 / (1 + np.exp(-out[:, 6])), rtol=1e-4, atol=1e-6)


def test_a_column_that_never_changed_is_predicted_exactly(pool):
    told = pool.predict(jnp.arange(3), jnp.array([[0.3, 1e6]]), jnp.zeros((1, 1)))
    np.testing.assert_array_equal(told.next_mean[..., 1], np.float32(1e6) + np.float32(7.0))
    np.testing.assert_array_equal(told.next_std[..., 1], 0.0)


def test_sizes(pool):
    assert pool.size == 3
    assert pool.observation_size == 2


def test_the_prior_is_flat_or_the_likelihood_of_so_many_rows(pool):
    np.testing.assert_array_equal(pool.log_prior("uniform", 100.0), np.zeros(3))
    np.testing.assert_allclose(pool.log_prior("likelihood", 10.0), [-10.0, 0.0, -5.0])
