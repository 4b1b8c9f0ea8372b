"""The problem in learning units: what is scaled, what is never shifted, what bounds the values."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyb.algorithms.problem import make_problem
from phyb.data.dataset import discounted_returns
from phyb.data.log import Log


@pytest.fixture(scope="module")
def log(linear_log):
    return linear_log(episodes=10, steps=6)


def with_rewards(log, rewards):
    return dataclasses.replace(log, rewards=np.resize(np.asarray(rewards, np.float32), len(log)))


@given(factor=st.sampled_from([1e-4, 0.5, 300.0]), offset=st.sampled_from([-2.0, 0.0, 0.25]))
@settings(max_examples=9, deadline=None)
def test_rewards_are_divided_by_their_range_and_never_shifted(log, factor, offset):
    scaled = dataclasses.replace(log, rewards=(log.rewards * factor + offset * factor).astype(np.float32))
    problem = make_problem(scaled, None, discount=0.9, horizon=100)
    assert float(jnp.ptp(problem.rows.rewards)) == pytest.approx(1.0, rel=1e-3)
    np.testing.assert_allclose(
        problem.rows.rewards * problem.reward_scale, scaled.rewards, rtol=1e-4, atol=1e-4 * factor
    )


@pytest.mark.parametrize(
    ("rewards", "discount", "horizon", "low", "high"),
    [
        ([0.0, 4.0], 0.9, 1000, 0.0, 10.0),  # 1 / (1 - gamma) steps of at most 1
        ([0.0, 4.0], 0.9, 5, 0.0, 5.0),  # the episode is shorter than that
        ([-1.0, 3.0], 1.0, 20, -5.0, 15.0),  # no discount: the horizon counts
        ([-4.0, -2.0], 0.5, 1000, -4.0, 0.0),  # losses only: ending is the best there is
        ([2.0, 4.0], 0.5, 1000, 0.0, 4.0),
    ],
)
def test_values_are_bounded_by_what_the_rewards_allow(log, rewards, discount, horizon, low, high):
    problem = make_problem(with_rewards(log, rewards), None, discount=discount, horizon=horizon)
    assert float(problem.value_low) == pytest.approx(low, rel=1e-5)
    assert float(problem.value_high) == pytest.approx(high, rel=1e-5)


@pytest.mark.parametrize("reward", [0.0, 0.25, 5.0, -3.0])
def test_a_log_of_equal_rewards_has_finite_units(log, reward):
    problem = make_problem(with_rewards(log, [reward]), None, discount=0.9, horizon=50)
    np.testing.assert_allclose(problem.rows.rewards * problem.reward_scale, reward, rtol=1e-6)
    assert np.all(np.abs(problem.rows.rewards) <= 1.0)
    assert float(problem.reward_scale) > 0


def test_actions_are_mapped_from_their_bounds_to_one_and_back(log, linear_pool):
    low, high = np.array([3.0], np.float32), np.array([11.0], np.float32)
    moved = dataclasses.replace(
        log, actions=(log.actions + 1) / 2 * (high - low) + low, action_low=low, action_high=high
    )
    pool = linear_pool(np.zeros((2, 4, 4)), np.zeros((2, 4)))
    problem = make_problem(moved, pool, discount=0.9, horizon=50)
    np.testing.assert_allclose(problem.rows.actions, log.actions, atol=1e-6)
    assert problem.world is not None
    np.testing.assert_allclose(problem.world.env_action(problem.rows.actions), moved.actions, rtol=1e-6)


def test_the_world_knows_where_the_data_ends(log, linear_pool):
    pool = linear_pool(np.zeros((2, 4, 4)), np.zeros((2, 4)))
    problem = make_problem(log, pool, discount=0.9, horizon=50, termination="none")
    visited = np.concatenate([log.observations, log.next_observations])
    world = problem.world
    assert world is not None
    np.testing.assert_allclose(world.middle - world.range / 2, visited.min(axis=0), atol=1e-5)
    np.testing.assert_allclose(world.middle + world.range / 2, visited.max(axis=0), atol=1e-5)
    assert world.range[2] == 0.0
    assert float(world.value_floor) == float(problem.value_low)
    assert float(world.reward_scale) == float(problem.reward_scale)
    assert world.termination == "none"


def test_starts_are_the_first_rows_of_the_episodes(log):
    problem = make_problem(log, None, discount=0.9, horizon=50)
    first = np.searchsorted(log.episode_of_row, np.arange(10))
    np.testing.assert_array_equal(problem.starts, log.observations[first])
    assert (problem.observation_size, problem.action_size) == (3, 1)
    assert problem.world is None


def test_rows_of_the_best_episodes_come_first(log):
    problem = make_problem(log, None, discount=0.9, horizon=50)
    earned = log.episode_returns()[log.episode_of_row][np.asarray(problem.best_first)]
    assert np.all(np.diff(earned) <= 0)
    np.testing.assert_array_equal(np.sort(problem.best_first), np.arange(len(log)))


def test_only_true_ends_count_as_terminated(log):
    problem = make_problem(log, None, discount=0.9, horizon=50)
    np.testing.assert_array_equal(problem.rows.terminated, log.terminated.astype(np.float32))
    assert np.any(log.truncated & (np.asarray(problem.rows.terminated) == 0))


def test_sampled_rows_are_whole_rows_of_the_log(log):
    problem = make_problem(log, None, discount=0.9, horizon=50)
    drawn = problem.sample(jax.random.key(0), 500)
    row = np.argmin(np.abs(np.asarray(drawn.rewards)[:, None] - np.asarray(problem.rows.rewards)), axis=1)
    for field, whole in zip(drawn, problem.rows, strict=True):
        np.testing.assert_array_equal(field, np.asarray(whole)[row])
    assert len(set(row.tolist())) == len(log), "every row can be drawn"


def test_returns_are_discounted_along_episodes_and_what_was_cut_off_goes_on_at_its_mean():
    rewards = np.array([1.0, 2.0, 4.0, 3.0, 5.0, 7.0], np.float32)
    ends = np.array([0, 0, 1, 0, 1, 0], bool)
    flags = {"terminated": ends & (np.arange(6) == 2), "truncated": ends & (np.arange(6) == 4)}
    states, bound = np.zeros((6, 1), np.float32), np.ones(1, np.float32)
    log = Log(states, states, rewards, states, **flags, action_low=-bound, action_high=bound)
    tail = 4.0 * (1 - 0.5**3) / 0.5  # mean reward 4 over the three steps that a horizon of 5 leaves
    last = 7.0 * (1 - 0.5**4) / 0.5  # the log stops inside its last episode
    expected = [1 + 0.5 * 4, 2 + 0.5 * 4, 4, 3 + 0.5 * (5 + 0.5 * tail), 5 + 0.5 * tail, 7 + 0.5 * last]
    np.testing.assert_allclose(discounted_returns(log, 0.5, horizon=5), expected)
    np.testing.assert_allclose(discounted_returns(log, 1.0, horizon=5)[3:5], [8 + 12, 5 + 12])
    problem = make_problem(log, None, discount=0.5, horizon=5)
    np.testing.assert_allclose(problem.returns * problem.reward_scale, expected, rtol=1e-6)
