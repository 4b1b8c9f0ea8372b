"""Rollouts in the learned environment: recorded by hand, ended by every kind of termination, moved by every step."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.data.dataset import Rows
from phyb.networks import Standardizer
from phyb.world.model import WorldConfig, WorldModel
from phyb.world.rollout import (
    ROWS,
    Recorder,
    Transition,
    discounted_return,
    elite_members,
    elite_step,
    member_step,
    outcomes,
    penalize_disagreement,
    rollout,
    together,
    total,
)

ask = eqx.filter_jit(outcomes)
KEY = jax.random.key(0)


def down(key, observations, actions, alive):
    """s' = s - 1 and r = s; a rollout ends at 0, and half of it at 1."""
    successors = observations - 1.0
    survival = jnp.clip(successors[..., 0], 0.0, 2.0) / 2.0
    row = Rows(observations, actions, observations[..., 0], successors, 1.0 - survival)
    return Transition(row, alive, survival, info=10.0 * observations[..., 0])


def still(key, observations):
    return jnp.zeros_like(observations)


STARTS = jnp.array([[1.0], [2.0], [4.0], [9.0]])
RETURNS = [1.0, 2.0 + 0.5 * 1.0, 4.0 + 3.0 + 2.0 + 0.5 * 1.0, 9.0 + 8.0 + 7.0 + 6.0 + 5.0]


def test_a_return_is_the_sum_of_what_each_step_earns_as_far_as_it_is_still_alive():
    found = rollout(KEY, STARTS, still, down, length=5, record=total())
    np.testing.assert_allclose(found.recorded, RETURNS)
    np.testing.assert_allclose(found.alive, [0.0, 0.0, 0.0, 1.0])


def test_recorders_work_together():
    record = together(plain=total(), late=discounted_return(0.5), other=total(lambda t: t.info), rows=ROWS)
    found = rollout(KEY, STARTS, still, down, length=5, record=record)
    np.testing.assert_allclose(found.recorded["plain"], RETURNS)
    np.testing.assert_allclose(found.recorded["other"], 10 * np.array(RETURNS))
    late = [1.0, 2.0 + 0.25, 4.0 + 1.5 + 0.5 + 0.0625, 9.0 + 4.0 + 1.75 + 0.75 + 0.3125]
    np.testing.assert_allclose(found.recorded["late"][0], late)
    rows, counts = found.kept["rows"]
    assert rows.rewards.shape == counts.shape == (5, 4)
    np.testing.assert_array_equal(counts.sum(axis=0), [1, 2, 4, 5])
    np.testing.assert_array_equal(rows.rewards[:, 3], [9, 8, 7, 6, 5])


def test_what_has_ended_stays_where_it_is():
    found = rollout(KEY, STARTS, still, down, length=8, record=Recorder(keep=lambda t: t.row.observations[..., 0]))
    np.testing.assert_array_equal(found.kept[:, 1], [2, 1, 1, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(found.states[:, 0], [1, 1, 1, 1])


def test_rollouts_may_begin_partly_ended():
    found = rollout(KEY, STARTS, still, down, length=5, record=total(), alive=jnp.array([0.0, 0.5, 1.0, 1.0]))
    np.testing.assert_allclose(found.recorded, np.array(RETURNS) * [0.0, 0.5, 1.0, 1.0])


def test_states_may_be_more_than_an_observation():
    """A step that sees the last two observations, as models with a history do."""

    def step(key, history, actions, alive):
        now, before = history
        after: Any = (now + 1.0, now)
        row = Rows(now, actions, now + before, after, jnp.zeros_like(now))
        return Transition(row, alive, jnp.where(now > 2, 0.0, 1.0))

    starts, alive = (jnp.array([0.0, 2.0]), jnp.array([5.0, 5.0])), jnp.ones(2)
    found = rollout(KEY, starts, lambda key, history: history[0], step, length=4, record=total(), alive=alive)
    np.testing.assert_allclose(found.recorded, [5 + 1 + 3 + 5, 7 + 5])
    np.testing.assert_allclose(found.states, [[3.0, 3.0], [2.0, 2.0]])


def test_actions_may_be_given_beforehand():
    actions = jnp.arange(6.0).reshape(3, 2, 1)

    def step(key, observations, actions, alive):
        row = Rows(observations, actions, actions[..., 0], observations + actions, jnp.zeros(2))
        return Transition(row, alive, jnp.ones(2))

    found = rollout(KEY, jnp.zeros((2, 1)), actions, step, length=3, record=total())
    np.testing.assert_allclose(found.recorded, [0 + 2 + 4, 1 + 3 + 5])
    np.testing.assert_allclose(found.states[:, 0], found.recorded)


def test_every_step_has_keys_of_its_own():
    def step(key, observations, actions, alive):
        row = Rows(observations, actions, jax.random.uniform(key, (2,)), observations, jnp.zeros(2))
        return Transition(row, alive, jnp.ones(2))

    def act(key, observations):
        return jax.random.uniform(key, observations.shape)

    kept = rollout(KEY, jnp.zeros((2, 1)), act, step, length=4, record=ROWS).kept[0]
    assert len(np.unique(np.concatenate([kept.rewards.ravel(), kept.actions.ravel()]))) == 16


def world_of_pool(pool, termination: Any = "none", reward=None, scale=1.0, width=1.0, floor=0.0):
    """One observation, one action in [-2, 2]."""
    one = jnp.ones(1)
    return WorldModel(
        pool, -2 * one, 2 * one, jnp.asarray(scale), 0 * one, width * one, jnp.asarray(floor), termination, reward
    )


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


def states_of(starts, members=3):
    return jnp.broadcast_to(jnp.asarray(starts)[:, None], (members, len(starts), 1))


def moved(world, starts, **config):
    step = member_step(world, WorldConfig(**config), jnp.arange(3))
    states = states_of(starts)
    return step(KEY, states, jnp.zeros_like(states), jnp.ones(states.shape[:-1]))


def test_members_move_alone_by_noise_that_is_shared_or_private_or_none(linear_pool):
    world = world_of_pool(moving(linear_pool, [1, 2, 3], log_std=np.log(0.5)), width=1e6)
    starts = np.zeros(4)
    drawn = {noise: moved(world, starts, noise=noise).row.next_observations[..., 0] for noise in
             ("shared", "private", "none")}  # fmt: skip
    np.testing.assert_allclose(drawn["none"], np.array([[1.0], [2.0], [3.0]]) * np.ones(4))
    shared, private = (drawn[noise] - drawn["none"] for noise in ("shared", "private"))
    np.testing.assert_allclose(shared[0], shared[1], atol=1e-6)
    assert len(np.unique(np.round(shared, 5))) == 4
    assert len(np.unique(np.round(private, 5))) == 12


def test_beyond_the_wall_the_floor_is_earned_and_the_rollout_is_cut_off(linear_pool):
    world = world_of_pool(moving(linear_pool, [0, 1, 2]), width=1.0, floor=-8.0)  # trust ends between 1 and 2
    found = moved(world, [0.0, 0.5], noise="none")
    np.testing.assert_allclose(found.survival, [[1, 1], [1, 0.5], [0, 0]])
    np.testing.assert_allclose(found.row.rewards, [[0, 0], [10, 10 - 4], [20 - 8, 20 - 8]], rtol=1e-6)
    np.testing.assert_array_equal(found.row.terminated, 0.0)


@pytest.mark.parametrize("kind", ["none", "learned", "rule"])
def test_members_end_by_each_kind_of_termination(linear_pool, kind):
    pool = moving(linear_pool, [0, 1, 2], done_bias=np.log(0.25 / 0.75))
    rule = lambda before, action, after: after[..., 0] > 1.2  # noqa: E731
    found = moved(world_of_pool(pool, rule if kind == "rule" else kind, width=1e6), [0.0, 0.5], noise="none")
    expected = {"none": 0.0, "learned": 0.25, "rule": np.array([[0, 0], [0, 1], [1, 1]])}[kind]
    np.testing.assert_allclose(found.row.terminated, np.broadcast_to(expected, (3, 2)), rtol=1e-5)
    np.testing.assert_allclose(found.survival, 1.0 - found.row.terminated)


def test_disagreement_is_in_standard_deviations_and_paid_for(linear_pool):
    world = world_of_pool(moving(linear_pool, [1, 2, 4], log_std=0.0), width=1e6)
    config, states = WorldConfig(), states_of([0.0, 1.0])
    unit = Standardizer(jnp.zeros(1), jnp.full(1, 2.0))
    step, other = (member_step(world, config, jnp.array(members)) for members in ([0, 1, 2], [1, 2, 0]))
    given = (KEY, states, jnp.zeros_like(states), jnp.ones((3, 2)))
    plain, found = step(*given), penalize_disagreement(step, other, unit, 0.5)(*given)
    apart = np.array([[1.0], [2.0], [3.0]]) / 2.0 * np.ones(2)
    np.testing.assert_allclose(found.info, apart, rtol=1e-5)  # the noise is the same in both
    np.testing.assert_allclose(found.row.rewards, plain.row.rewards - 0.5 * apart, rtol=1e-5)


def test_rollouts_that_follow_elites_stop_where_the_rule_ends_them(linear_pool):
    world = world_of_pool(moving(linear_pool, [1]), lambda s, a, after: after[..., 0] > 2.5)
    starts, act = jnp.array([[0.0], [1.0], [2.0], [-5.0]]), lambda key, s: 0.1 * s
    rows, counts = rollout(KEY, starts, act, elite_step(world, jnp.array([0])), length=4, record=ROWS).kept
    kept = sorted(zip(*(np.asarray(x)[np.asarray(counts)].ravel().tolist() for x in
                        (rows.observations, rows.next_observations, rows.terminated)), strict=True))  # fmt: skip
    alone = [(-5, -4, 0), (-4, -3, 0), (-3, -2, 0), (-2, -1, 0)]
    assert kept == sorted([*alone, (0, 1, 0), (1, 2, 0), (2, 3, 1), (1, 2, 0), (2, 3, 1), (2, 3, 1)])
    np.testing.assert_allclose(rows.actions, 0.1 * rows.observations, rtol=1e-6)  # of the policy, where it stands
