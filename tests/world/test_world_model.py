"""The learned environment: noise in antithetic pairs, trust inside the data, termination and reward of every kind."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyb.world.model import WorldConfig, WorldModel, imagine, successor_noise

OBS, ACT, ROWS, POOL = 2, 1, 40, 6
LOW, HIGH, SCALE = -2.0, 4.0, 2.5


def world_of(pool, *, middle: Any = 0.0, width: Any = 1e6, floor=-1e3, termination: Any = "none", reward: Any = None):
    vector = lambda value, size: jnp.broadcast_to(jnp.asarray(value, jnp.float32), (size,))  # noqa: E731
    return WorldModel(
        pool,
        vector(LOW, ACT),
        vector(HIGH, ACT),
        jnp.float32(SCALE),
        vector(middle, OBS),
        vector(width, OBS),
        jnp.float32(floor),
        termination,
        reward,
    )


def pool_of(linear_pool, *ends):
    rng = np.random.default_rng(0)
    return linear_pool(0.4 * rng.normal(size=(POOL, OBS + ACT, OBS + 1)), rng.normal(size=(POOL, OBS + 1)), -1.0, *ends)


def rows_of(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(ROWS, OBS)).astype(np.float32), rng.uniform(-1, 1, (ROWS, ACT)).astype(np.float32)


def imagined(world, config, observations, actions):
    noise = successor_noise(jax.random.key(0), config, 4, ROWS, OBS)
    return imagine(world, config, jnp.arange(4), observations, actions, noise)


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_noise_comes_in_antithetic_pairs(samples):
    kinds: Any = (("shared", 1), ("private", 4))
    for noise, members in kinds:
        config = WorldConfig(noise=noise, noise_samples=samples)
        drawn = np.asarray(successor_noise(jax.random.key(0), config, 4, ROWS, OBS))
        assert drawn.shape == (members, samples, ROWS, OBS)
        half = -(-samples // 2)
        np.testing.assert_array_equal(drawn[:, half:] + drawn[:, : samples - half], 0.0)
        assert 0.8 < drawn.std() < 1.2
        assert len(np.unique(drawn[:, :half])) == members * half * ROWS * OBS


@given(
    inside=st.floats(-1, 1),
    beyond=st.floats(1, 50),
    start=st.floats(0.5, 5),
    thickness=st.floats(0.1, 5),
    dimension=st.integers(0, 1),
)
@settings(max_examples=20, deadline=None)
def test_trust_is_1_inside_the_data_and_0_behind_the_wall(linear_pool, inside, beyond, start, thickness, dimension):
    middle, width = np.array([3.0, -10.0], np.float32), np.array([0.5, 40.0], np.float32)
    world = world_of(pool_of(linear_pool), middle=middle, width=width)
    config = WorldConfig(wall_start=start, wall_end=start + thickness)
    unit = np.eye(OBS, dtype=np.float32)[dimension] * width
    near, far = middle + inside * 0.499 * unit, middle + beyond * (start + thickness) * 1.001 * unit
    np.testing.assert_array_equal(world.trust(jnp.stack([near, far]), config), [1.0, 0.0])
    ladder = world.trust(jnp.asarray(middle + np.linspace(0, 12, 200)[:, None] * unit), config)
    assert np.all(np.diff(ladder) <= 0)
    half_way = world.trust(jnp.asarray(middle - (start + thickness / 2) * unit), config)
    assert float(half_way) == pytest.approx(0.5, abs=1e-3)


def test_a_dimension_without_range_keeps_its_trust(linear_pool):
    world = world_of(pool_of(linear_pool), middle=[7.0, 0.0], width=[0.0, 1.0])
    states = jnp.array([[7.0, 0.0], [1e9, 0.0], [-3.0, 0.2], [jnp.inf, 0.0], [7.0, 99.0]])
    np.testing.assert_array_equal(world.trust(states, WorldConfig()), [1, 1, 1, 1, 0])
    slope = jax.grad(lambda s: jnp.sum(world.trust(s, WorldConfig())))(states[:3])
    assert np.all(np.isfinite(slope))


def test_termination_none_learned_and_by_rule(linear_pool):
    done_weights = np.tile(np.array([1.5, 0.0, -0.5], np.float32), (POOL, 1))
    pool, rows = pool_of(linear_pool, done_weights, 0.3), rows_of(1)
    config = WorldConfig(noise_samples=2)
    seen = []

    def rule(observations, actions, successors):
        seen.append((observations, actions))
        return successors[..., 0] + observations[..., 1] > 0.5

    found = {kind: imagined(world_of(pool, termination=kind), config, *rows) for kind in ("none", "learned", rule)}
    assert np.all(found["none"].alive == 1.0)
    logit = rows[0] @ done_weights[0, :2] + done_weights[0, 2] * (LOW + (rows[1][:, 0] + 1) / 2 * (HIGH - LOW)) + 0.3
    np.testing.assert_allclose(
        found["learned"].alive, np.broadcast_to(1 / (1 + np.exp(logit)), (4, 2, ROWS)), rtol=1e-4
    )
    by_rule = found[rule]
    np.testing.assert_array_equal(by_rule.alive, by_rule.successors[..., 0] + rows[0][:, 1] <= 0.5)
    np.testing.assert_array_equal(seen[0][0], rows[0])
    np.testing.assert_allclose(seen[0][1], LOW + (rows[1] + 1) / 2 * (HIGH - LOW), rtol=1e-6)


def test_a_known_reward_is_averaged_over_the_imagined_successors(linear_pool):
    observations, actions = rows_of(1)
    reward = lambda before, action, after: 100 * before[..., 1] + 10 * action[..., 0] + after[..., 0] ** 2  # noqa: E731
    found = imagined(world_of(pool_of(linear_pool), reward=reward), WorldConfig(noise_samples=2), observations, actions)
    in_log = LOW + (actions[:, 0] + 1) / 2 * (HIGH - LOW)
    bent = np.mean(np.asarray(found.successors)[..., 0] ** 2, axis=1)
    np.testing.assert_allclose(found.rewards, (100 * observations[:, 1] + 10 * in_log + bent) / SCALE, rtol=1e-4)


def test_a_learned_reward_is_its_mean_unless_noise_is_given(linear_pool):
    world = world_of(pool_of(linear_pool))
    observations, actions = (jnp.asarray(rows) for rows in rows_of(1))
    predictions = world.predict(jnp.arange(POOL), observations, actions)
    given = (predictions, observations, actions, predictions.next_mean)
    np.testing.assert_allclose(world.rewards(*given), predictions.reward_mean / SCALE, rtol=1e-6)
    noisy = world.rewards(*given, noise=jnp.full((POOL, ROWS), 2.0))
    np.testing.assert_allclose(noisy, (predictions.reward_mean + 2.0 * np.exp(-1.0)) / SCALE, rtol=1e-4)
