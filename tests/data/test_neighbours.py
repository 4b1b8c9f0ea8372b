"""Clusters of states that nearly repeat: by hand, against brute force, and with copies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.data import neighbours
from phyb.data.neighbours import cluster_shares, squared_distances, typical_gap


def shares(observations, scores, radius, most=50):
    found = cluster_shares(
        jnp.asarray(observations, jnp.float32),
        jnp.asarray(scores, jnp.float32),
        jnp.arange(len(scores)),
        jnp.asarray(radius),
        most,
    )
    return np.asarray(found)


def test_the_shares_of_three_close_rows_and_one_far_away_by_hand():
    scores = np.log([1.0, 2.0, 5.0, 7.0])
    np.testing.assert_allclose(
        shares([[0.0], [0.1], [0.2], [9.0]], scores, 0.25), [1 / 8, 2 / 8, 5 / 8, 1.0], rtol=1e-5
    )
    # Clusters are not the same seen from each of their rows.
    np.testing.assert_allclose(
        shares([[0.0], [0.1], [0.2], [9.0]], scores, 0.15), [1 / 3, 2 / 8, 5 / 7, 1.0], rtol=1e-5
    )


def test_scores_of_any_size_neither_overflow_nor_vanish():
    np.testing.assert_allclose(
        shares(np.zeros((2, 3)), [5000.0, 5001.0], 0.0), [1 / (1 + np.e), np.e / (1 + np.e)], rtol=1e-3
    )
    np.testing.assert_allclose(shares(np.zeros((2, 3)), [-5000.0, 5000.0], 0.0), [0.0, 1.0])


def test_copies_of_a_state_compete_and_each_belongs_to_its_own_cluster():
    """Even the last of more copies than a cluster may have: it is compared with the first ones and itself."""
    scores = np.log([1.0, 1.0, 1.0, 4.0])
    np.testing.assert_allclose(
        shares(np.full((4, 2), 0.3), scores, 0.0, most=3), [1 / 3, 1 / 3, 1 / 3, 4 / 6], rtol=1e-5
    )


def test_large_logs_in_blocks_against_brute_force(monkeypatch):
    monkeypatch.setattr(neighbours, "_BLOCK", 200)
    rng = np.random.default_rng(0)
    states, scores = rng.normal(size=(57, 2)).astype(np.float32), rng.normal(size=57)
    states[40:50] = states[:10]
    expected = []
    for i in range(57):
        distance = np.linalg.norm(states - states[i], axis=1)
        distance[i] = -1.0
        nearest = np.argsort(distance, kind="stable")[:5]
        near = nearest[distance[nearest] <= 0.4]
        expected.append(np.exp(scores[i]) / np.sum(np.exp(scores[near])))
    assert len({round(share, 3) for share in expected}) > 30
    np.testing.assert_allclose(shares(states, scores, 0.4, most=5), expected, rtol=1e-4)


def test_the_typical_gap_leaves_copies_out():
    states = jnp.asarray([[0.0], [0.0], [1.0], [3.0]])
    assert float(typical_gap(states)) == pytest.approx((1 + 1 + 1 + 2) / 4)
    assert float(typical_gap(jnp.ones((5, 2)))) == 0.0


def test_close_states_far_from_the_origin_keep_their_distance():
    states = jnp.asarray([[1000.0, 5.0], [1000.0, 5.001]])
    np.testing.assert_allclose(np.sqrt(squared_distances(states[0], states.T)), [0.0, 0.001], rtol=1e-2)
    assert float(jax.jit(typical_gap)(states)) == pytest.approx(0.001, rel=1e-2)
