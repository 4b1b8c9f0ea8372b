"""Variations of a whole policy: exact changes of the last layer, of known size over the log."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.policy.actor import Actor
from phyb.policy.variation import Variation

OBS, ACT, DIRECTIONS = 4, 2, 5


@pytest.fixture(scope="module")
def actor():
    return Actor(jax.random.key(0), OBS, ACT, (16, 12)).with_spread(0.5)


@pytest.fixture(scope="module")
def rows():
    return jax.random.normal(jax.random.key(1), (400, OBS))


@pytest.fixture(scope="module")
def variation(actor, rows):
    return Variation.over(actor, rows, DIRECTIONS)


def whitened(variation, actor, rows):
    return (actor.features(rows) - variation.centre) @ variation.whitening


def test_features_are_what_the_last_layer_is_linear_in(actor, rows):
    np.testing.assert_allclose(actor.mean_of(actor.features(rows)), actor(rows).mean, rtol=1e-5, atol=1e-5)


def test_directions_are_whitened_and_the_largest(variation, actor, rows):
    found = np.asarray(whitened(variation, actor, rows))
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-3)
    np.testing.assert_allclose(found.T @ found / len(rows), np.eye(DIRECTIONS), atol=1e-2)
    features = np.asarray(actor.features(rows))
    spread = np.sort(np.linalg.eigvalsh(np.cov(features.T, ddof=0)))[::-1][:DIRECTIONS]
    np.testing.assert_allclose(1.0 / np.sum(np.asarray(variation.whitening) ** 2, axis=0), spread, rtol=1e-2)


def test_the_changed_actor_does_what_the_change_says(variation, actor, rows):
    changes = variation.draw(jax.random.key(2), 6, 0.3, ACT)
    apart = rows[:120].reshape(2, 6, 10, OBS)
    means = variation.means(actor, apart, changes)
    for i in range(6):
        changed = variation.apply(actor, changes[i])(apart[:, i])
        np.testing.assert_allclose(means[:, i], changed.mean, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(changed.log_std, actor(apart[:, i]).log_std, rtol=1e-5)
    assert float(jnp.abs(means - actor(apart).mean).max()) > 0.1


def test_no_change_is_no_change(variation, actor, rows):
    same = variation.apply(actor, jnp.zeros((DIRECTIONS + 1, ACT)))
    np.testing.assert_array_equal(same(rows).mean, actor(rows).mean)


@pytest.mark.parametrize("spread", [0.05, 0.5])
def test_draws_move_the_mean_by_their_spread_and_cancel(variation, actor, rows, spread):
    changes = variation.draw(jax.random.key(3), 400, spread, ACT)
    np.testing.assert_allclose(jnp.sum(changes, axis=0), 0.0, atol=1e-4)
    moved = variation.means(actor, jnp.broadcast_to(rows, (400, *rows.shape)), changes) - actor(rows).mean
    assert float(jnp.sqrt(jnp.mean(moved**2))) == pytest.approx(spread, rel=0.1)
    assert variation.draw(jax.random.key(3), 7, spread, ACT).shape == (7, DIRECTIONS + 1, ACT)


def test_directions_that_do_not_differ_are_left_out(actor):
    here = jnp.repeat(jnp.eye(OBS)[:2], 20, axis=0)  # two states, and so one difference between them
    found = Variation.over(actor, here, DIRECTIONS)
    used = np.any(np.asarray(found.whitening) != 0, axis=0)
    assert used.tolist() == [True] + [False] * (DIRECTIONS - 1)
    assert np.all(np.isfinite(found.whitening))
