"""Imagined rollouts and their memory: who is asked, when a rollout ends, and that only what was written is drawn."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyb.algorithms.base import critic_rows
from phyb.algorithms.model_rollouts import Memory, elite_members, outcomes, roll_out
from phyb.algorithms.model_sac import ModelConfig, ModelSAC, by_dataset
from phyb.algorithms.problem import make_problem
from phyb.data.dataset import Rows
from phyb.world.model import WorldModel

ask = eqx.filter_jit(outcomes)


def world_of_pool(pool, termination: Any = "none", reward=None, scale=1.0):
    """One observation, one action in [-2, 2]."""
    one = jnp.ones(1)
    return WorldModel(pool, -2 * one, 2 * one, jnp.asarray(scale), 0 * one, one, jnp.zeros(()), termination, reward)


def moving(linear_pool, changes, **more):
    """Members that add each its own number to the observation and pay ten times as much."""
    changes = np.asarray(changes, float)
    return linear_pool(np.zeros((len(changes), 2, 2)), np.stack([changes, 10 * changes], axis=1), **more)


def test_elites_are_the_members_with_the_lowest_holdout_loss(linear_pool):
    pool = moving(linear_pool, [0, 0, 0, 0], holdout_nll=[3.0, -1.0, 2.0, 0.5])
    assert elite_members(pool, 3).tolist() == [1, 3, 2]
    assert elite_members(pool, 9).tolist() == [1, 3, 2, 0]


def test_each_outcome_comes_from_one_member_drawn_evenly(linear_pool):
    world = world_of_pool(moving(linear_pool, [1, 2, 3, 4]), scale=20.0)
    here, actions = jnp.arange(500.0)[:, None], jnp.full((500, 1), 0.5)
    rows = ask(jax.random.key(0), world, jnp.array([0, 2, 3]), here, actions, 4)
    change = np.asarray(rows.next_observations - here)[..., 0]
    np.testing.assert_allclose(rows.rewards, change * 10 / 20, rtol=1e-5, atol=1e-5)  # in units of the range
    numbers, counts = np.unique(np.round(change, 3), return_counts=True)
    np.testing.assert_array_equal(numbers, [1, 3, 4])
    np.testing.assert_allclose(counts / 2000, 1 / 3, atol=0.05)
    assert rows.observations.shape == (4, 500, 1)
    np.testing.assert_array_equal(rows.actions, 0.5)
    assert not np.any(rows.terminated)


def test_outcomes_have_the_noise_of_the_member(linear_pool):
    world = world_of_pool(moving(linear_pool, [1], log_std=np.log([[0.3, 2.0]])))
    rows = ask(jax.random.key(0), world, jnp.array([0]), jnp.zeros((2000, 1)), jnp.zeros((2000, 1)), 2)
    assert float(jnp.std(rows.next_observations)) == pytest.approx(0.3, rel=0.05)
    assert float(jnp.std(rows.rewards)) == pytest.approx(2.0, rel=0.05)
    assert abs(np.corrcoef(rows.next_observations.ravel(), rows.rewards.ravel())[0, 1]) < 0.05


def test_a_known_reward_and_learned_ends_are_used(linear_pool):
    pool = moving(linear_pool, [1], done_bias=np.log(0.25 / 0.75))
    world = world_of_pool(pool, "learned", lambda s, a, after: (100 * s + 10 * a + after)[..., 0], scale=2.0)
    rows = ask(jax.random.key(0), world, jnp.array([0]), jnp.full((4000, 1), 3.0), jnp.full((4000, 1), 0.5), 1)
    np.testing.assert_allclose(rows.rewards, (300 + 10 + 4) / 2, rtol=1e-6)  # 0.5 is an action of 1 in the log
    assert float(jnp.mean(rows.terminated)) == pytest.approx(0.25, abs=0.03)


def test_rollouts_stop_where_the_rule_ends_them(linear_pool):
    world = world_of_pool(moving(linear_pool, [1]), lambda s, a, after: after[..., 0] > 2.5)

    def step(key, observations, actions, alive):
        return jax.tree.map(lambda x: x[0], outcomes(key, world, jnp.array([0]), observations, actions, 1)), alive

    starts = jnp.array([[0.0], [1.0], [2.0], [-5.0]])
    rows, counts = eqx.filter_jit(roll_out)(jax.random.key(0), lambda key, s: 0.1 * s, step, starts, 4)
    kept = sorted(zip(*(np.asarray(x)[np.asarray(counts)].ravel().tolist() for x in
                        (rows.observations, rows.next_observations, rows.terminated)), strict=True))  # fmt: skip
    alone = [(-5, -4, 0), (-4, -3, 0), (-3, -2, 0), (-2, -1, 0)]
    assert kept == sorted([*alone, (0, 1, 0), (1, 2, 0), (2, 3, 1), (1, 2, 0), (2, 3, 1), (2, 3, 1)])
    np.testing.assert_allclose(rows.actions, 0.1 * rows.observations, rtol=1e-6)  # of the policy, where it stands


def numbered(numbers):
    column = jnp.asarray(numbers, jnp.float32)
    return Rows(column[:, None], column[:, None], column, column[:, None], column)


CAPACITY = 7
add = jax.jit(Memory.add)
draw = jax.jit(lambda memory: memory.sample(jax.random.key(0), 200))


@given(rounds=st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_the_memory_holds_the_newest_rows_and_yields_no_others(rounds):
    memory, written = Memory.empty(CAPACITY, 1, 1), []
    for number, counts in enumerate(rounds):
        numbers = [10.0 * number + place + 1.0 for place in range(5)]
        memory = add(memory, numbered(numbers), jnp.asarray(counts))
        written += [x for x, counted in zip(numbers, counts, strict=True) if counted]
    assert int(memory.filled) == min(len(written), CAPACITY)
    if written:
        drawn = draw(memory)
        assert set(drawn.rewards.tolist()) == set(written[-CAPACITY:])
        for leaf in drawn:
            np.testing.assert_array_equal(leaf.ravel(), drawn.rewards)


def test_batches_mix_the_log_with_what_was_imagined_in_the_same_units(linear_log, linear_pool):
    pool = linear_pool(np.zeros((2, 4, 4)), [[0.5, 0.0, 0.0, 30.0]] * 2)
    problem = make_problem(linear_log(episodes=20, steps=5), pool, discount=0.9, horizon=5, termination="none")
    config = ModelConfig(policy_hidden=(4,), batch_size=10, rollout_starts=8, rollout_length=2, rollout_every=2,
                         real_fraction=0.3)  # fmt: skip
    algorithm = ModelSAC(config, steps=5)
    assert config.real_rows == 3
    state = algorithm.init(jax.random.key(0), problem)
    assert int(state.memory.filled) == 0
    filled, told = [], {}
    update = jax.jit(lambda state: algorithm.update(state, problem))
    for _ in range(4):
        state, told = update(state)
        filled.append(int(state.memory.filled))
    assert filled == [16, 16, 32, 32]  # a round at the first update and then every second
    assert float(told["reward_imagined"]) == pytest.approx(30.0, rel=1e-5)  # in the units of the log
    rows = critic_rows(problem, state.memory.sample(jax.random.key(1), 50), config)
    np.testing.assert_allclose(rows.rewards, 30.0, rtol=1e-5)
    moved = (rows.next_observations - rows.observations)[:, 0] * problem.standardizer.scale[0]
    np.testing.assert_allclose(moved, 0.5, rtol=1e-4)


@pytest.mark.parametrize(("fraction", "rows"), [(0.0, 1), (0.05, 1), (0.5, 8), (1.0, 15)])
def test_there_is_at_least_one_row_of_each_kind(fraction, rows):
    assert ModelConfig(batch_size=16, real_fraction=fraction).real_rows == rows
    with pytest.raises(ValueError, match="batch_size"):
        dataclasses.replace(ModelConfig(), batch_size=1)


def test_datasets_without_published_settings_take_those_of_the_nearest():
    found = by_dataset(rollout_length={"medium-replay": (1, 2, 3), "medium-expert": (4, 5, 6)})
    assert found["hopper-medium-replay"] == {"rollout_length": 2} == found["hopper-full-replay"]
    assert found["walker2d-medium-expert"] == {"rollout_length": 6} == found["walker2d-expert"]
    assert "hopper-medium" not in found
