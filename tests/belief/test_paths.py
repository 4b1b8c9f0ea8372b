"""Paths inside the models: their returns by hand, their slopes against differences, and nothing after the end."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.belief.backup import BeliefConfig, World
from phyb.belief.paths import walk

STEPS, DISCOUNT = 6, 0.9
CONFIG = BeliefConfig(ensemble_size=2, subset_size=1, noise_samples=1, noise="none")
MEMBERS = jnp.array([0, 2])
STARTS = jnp.array([[0.3], [-0.5], [0.1]])


def world_of(linear_pool, *, termination: Any = "none", width=1e6):
    """Three members: the state shrinks and is driven by the action, which also pays, each in its own way."""
    weights = np.array([[[-0.2, 0.5], [0.4, 0.3]], [[0.0, 0.0], [0.0, 0.0]], [[-0.4, 1.0], [0.7, -0.2]]])
    one = jnp.ones(1)
    pool = linear_pool(weights, np.zeros((3, 2)), log_std=0.0)
    return World(pool, -one, one, jnp.float32(2.0), 0 * one, width * one, jnp.float32(-7.0), termination)


def act(observations, shift):
    return jnp.tanh(0.5 * observations + 0.2 + shift)


def value(observations):
    return jnp.sin(observations[..., 0])


def paths_of(world, *, trace=0.8, policy=act, starts=STARTS):
    noise = jax.random.normal(jax.random.key(0), (STEPS, len(starts), 1))
    return walk(
        world, CONFIG, MEMBERS, starts, policy, noise, value, discount=DISCOUNT, trace=trace, action_size=1
    )  # fmt: skip


def by_hand(member, state, trace, *, changed=-1, by=0.0, falls=lambda state: False):
    """Returns from every step on, of one member and start, in plain Python; action `changed` is shifted `by`."""
    weights = {0: [[-0.2, 0.5], [0.4, 0.3]], 2: [[-0.4, 1.0], [0.7, -0.2]]}[member]
    rewards, values, ends = [], [], []
    for step in range(STEPS):
        action = np.tanh(0.5 * state + 0.2 + (by if step == changed else 0.0))
        rewards.append((state * weights[0][1] + action * weights[1][1]) / 2.0)
        state = state + state * weights[0][0] + action * weights[1][0]
        values.append(np.sin(state))
        ends.append(falls(state))
        if ends[-1]:
            break
    found, later = [], values[-1]
    for reward, behind, ended in list(zip(rewards, values, ends, strict=True))[::-1]:
        later = reward + (0.0 if ended else DISCOUNT * ((1 - trace) * behind + trace * later))
        found.append(later)
    return np.array(found[::-1])


@pytest.mark.parametrize("trace", [0.8, 1.0])
def test_returns_are_those_of_every_step_on(linear_pool, trace):
    paths = paths_of(world_of(linear_pool), trace=trace)
    for i, member in enumerate((0, 2)):
        for j, start in enumerate(STARTS[:, 0]):
            np.testing.assert_allclose(paths.returns[:, i, j], by_hand(member, float(start), trace), rtol=1e-4)
    assert np.all(paths.alive == 1)
    assert np.all(paths.survival == 1)


def test_slopes_are_what_a_little_more_of_an_action_adds(linear_pool):
    paths = paths_of(world_of(linear_pool))
    for i, member in enumerate((0, 2)):
        for step in range(STEPS):
            more, less = (by_hand(member, 0.3, 0.8, changed=step, by=by)[step] for by in (1e-4, -1e-4))
            np.testing.assert_allclose(paths.slopes[step, i, 0, 0], (more - less) / 2e-4, rtol=2e-3, atol=1e-5)


def test_nothing_is_earned_learned_or_felt_after_the_end(linear_pool):
    def falls(observations, actions, successors):
        return successors[..., 0] > 0.6

    paths = paths_of(world_of(linear_pool, termination=falls), trace=0.8)
    expected = by_hand(2, 0.3, 0.8, falls=lambda state: state > 0.6)
    steps = len(expected)
    assert 0 < steps < STEPS
    np.testing.assert_allclose(paths.returns[:steps, 1, 0], expected, rtol=1e-4)
    np.testing.assert_array_equal(paths.alive[:, 1, 0], np.arange(STEPS) < steps)
    assert paths.survival[1, 0] == 0
    assert np.all(paths.slopes[steps:, 1, 0] == 0)
    assert np.all(np.isfinite(paths.last))


def test_leaving_the_data_is_worth_the_floor_and_ends_the_path(linear_pool):
    paths = paths_of(world_of(linear_pool, width=1e-3))
    np.testing.assert_array_equal(paths.alive[:, 0, 0], np.arange(STEPS) < 1)
    reward = (0.5 * 0.3 + 0.3 * np.tanh(0.35)) / 2.0
    np.testing.assert_allclose(paths.returns[0, 0, 0], reward - DISCOUNT * 7.0, rtol=1e-5)


def test_without_noise_members_move_by_their_means_whatever_the_chance(linear_pool):
    world = world_of(linear_pool)

    def last(key):
        noise = jax.random.normal(key, (STEPS, len(STARTS), 1))
        return walk(
            world, CONFIG, MEMBERS, STARTS, act, noise, value, discount=DISCOUNT, trace=0.8, action_size=1
        ).last  # fmt: skip

    np.testing.assert_array_equal(last(jax.random.key(1)), last(jax.random.key(2)))
