"""Rollouts that remember: a history stays in its episode; they follow what is known and tell how far it spreads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.algorithms.problem import make_problem
from phyb.dynamics.pool import Prediction
from phyb.world import history as history_module
from phyb.world.history import History, look_back_step, spread

WINDOW, ROWS = 3, 4000


@pytest.fixture(scope="module")
def problem(linear_log, linear_pool):
    log = linear_log(episodes=12, steps=4)
    return make_problem(log, linear_pool(np.zeros((1, 4, 4)), np.zeros((1, 4))), discount=0.9, horizon=4,
                        termination="none")  # fmt: skip


def test_what_came_before_a_row_is_that_of_its_episode(problem, linear_log):
    log = linear_log(episodes=12, steps=4)
    found = History.before(problem, jnp.arange(len(log)), WINDOW)
    first = np.flatnonzero(log.steps_before() == 0)
    for row in range(len(log)):
        begin = max(first[first <= row].max(), row - WINDOW + 1)
        length = row - begin + 1
        assert int(found.length[row]) == length
        np.testing.assert_array_equal(found.observations[row, WINDOW - length :], log.observations[begin : row + 1])
        np.testing.assert_allclose(found.actions[row, WINDOW - length :], log.actions[begin : row + 1], atol=1e-6)


def test_one_step_later_the_oldest_step_is_forgotten():
    states, actions = jnp.arange(6.0).reshape(1, 3, 2), jnp.array([[[10.0], [11.0], [0.0]]])
    after = History(states, actions, jnp.array([2])).after(jnp.array([[12.0]]), jnp.array([[6.0, 7.0]]))
    np.testing.assert_array_equal(after.observations[0], [[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]])
    np.testing.assert_array_equal(after.actions[0, :2, 0], [11.0, 12.0])
    assert int(after.length[0]) == 3
    assert int(after.after(jnp.zeros((1, 1)), jnp.zeros((1, 2))).length[0]) == 3


def test_spread_is_the_root_of_the_mean_variance_over_known_lengths():
    means = np.random.default_rng(0).normal(size=(WINDOW, 5, 4))
    counts = np.array([1, 2, 3, 3, 2])
    expected = [np.sqrt(np.mean(np.var(means[:count, row], axis=0))) for row, count in enumerate(counts)]
    known = jnp.arange(WINDOW)[:, None] < counts
    np.testing.assert_allclose(spread(jnp.asarray(means), known), expected, rtol=1e-5)
    assert expected[0] == 0.0, "a single prediction cannot spread"
    alike = jnp.broadcast_to(jnp.asarray(means[:1]), means.shape)
    np.testing.assert_allclose(spread(alike, known), 0.0, atol=1e-6)


def test_a_rollout_follows_one_of_the_predictions_that_are_known(problem, monkeypatch):
    def say(pool, member, observations, actions, key):
        """From k steps back: everything moves by k, with a reward of 100 k."""
        steps = jnp.arange(1.0, WINDOW + 1)[:, None]
        means = observations[:, -1] + steps[..., None] * jnp.array([1.0, 1.0, 0.0])
        still = jnp.zeros((WINDOW, ROWS))
        return Prediction(means, jnp.zeros_like(means), 100.0 * jnp.broadcast_to(steps, still.shape), still, still)

    monkeypatch.setattr(history_module, "look_back", say)
    lengths = jnp.arange(ROWS) % WINDOW + 1
    start = History(jnp.zeros((ROWS, WINDOW, 3)), jnp.zeros((ROWS, WINDOW, 1)), lengths)
    moved = jax.jit(lambda key: look_back_step(key, problem.world, jnp.asarray(0), start, jnp.ones((ROWS, 1))))(
        jax.random.key(0)
    )
    followed = np.asarray(moved.row.next_observations[:, 0]).round().astype(int)
    np.testing.assert_allclose(moved.row.rewards * problem.reward_scale, 100.0 * followed, rtol=1e-5)
    np.testing.assert_array_equal(moved.after.observations[:, -1], moved.row.next_observations)
    np.testing.assert_array_equal(moved.after.actions[:, -2], 1.0)
    for length in range(1, WINDOW + 1):
        of_these = np.asarray(lengths) == length
        shares = np.bincount(followed[of_these], minlength=WINDOW + 1)[1:] / of_these.sum()
        np.testing.assert_allclose(shares, np.where(np.arange(WINDOW) < length, 1.0 / length, 0.0), atol=0.05)
        # Two of three numbers spread; the reward, which spreads most of all, has no part in it.
        expected = np.sqrt(2.0 / 3.0 * np.var(np.arange(length)))
        np.testing.assert_allclose(moved.spread[of_these], expected, rtol=1e-4)
    low, high = np.asarray(problem.world.middle), 2.0 * np.asarray(problem.world.range)
    inside = np.all(np.abs(np.asarray(moved.row.next_observations) - low)[:, :2] < high[:2], axis=1)
    np.testing.assert_array_equal(moved.survival, inside.astype(np.float32))
