"""Whole episodes inside members: exact against one member, one row and one step at a time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.networks import Standardizer
from phyb.world.model import WorldConfig, WorldModel
from phyb.world.rollout import member_episodes

WEIGHTS = np.array([[[-0.5, 1.0], [0.3, 0.5]], [[-0.4, 0.8], [0.2, 0.6]], [[-0.7, 1.1], [0.4, 0.4]]])
STARTS = jnp.array([[1.0], [-0.5], [3.0]])
UNIT = Standardizer(jnp.zeros(1), jnp.full(1, 2.0))
STEPS = 6


def world_of(pool, *, termination: Any = "none", width=1e6, floor=-1e3):
    one = jnp.ones(1)
    return WorldModel(pool, -one, one, jnp.float32(2.0), 0.0 * one, width * one, jnp.float32(floor), termination)


def act(key, observations):
    return jnp.tanh(-observations)


def members_alike(linear_pool, log_std=-40.0):
    return linear_pool(WEIGHTS, np.zeros((3, 2)), log_std=log_std)


def run(world, *, cost=0.0, noise: Any = "none", members=(0, 1, 2), policy=act, seed=0, steps=STEPS, starts=STARTS):
    config = WorldConfig(noise=noise, wall_start=0.5, wall_end=1.0)
    key = jax.random.key(seed)
    return member_episodes(
        key, world, config, jnp.asarray(members), starts, policy, UNIT, length=steps, disagreement_penalty=cost
    )


def by_hand(member, other, state, cost, falls=lambda state: False):
    """Return, disagreement per step and survival of one path."""
    total, disagreed = 0.0, 0.0
    for _ in range(STEPS):
        action = np.tanh(-state)
        change, reward = WEIGHTS[member].T @ [state, action]
        disagreement = abs(change - (WEIGHTS[other].T @ [state, action])[0]) / 2.0
        total, disagreed, state = total + reward / 2.0 - cost * disagreement, disagreed + disagreement, state + change
        if falls(state):
            return total, disagreed / STEPS, 0.0
    return total, disagreed / STEPS, 1.0


def test_returns_are_sums_of_rewards_to_the_end(linear_pool):
    falls = lambda before, action, after: after[..., 0] > 1.2  # noqa: E731
    found = run(world_of(members_alike(linear_pool), termination=falls))
    for i in range(3):
        for j, start in enumerate(STARTS[:, 0]):
            total, _, alive = by_hand(i, i, float(start), 0.0, lambda state: state > 1.2)
            assert float(found.returns[i, j]) == pytest.approx(total, rel=1e-4)
            assert float(found.survival[i, j]) == alive
    assert 0.0 < float(found.survival.mean()) < 1.0
    np.testing.assert_array_equal(found.disagreement, 0.0)


def test_disagreement_with_another_member_is_paid_for(linear_pool):
    found = run(world_of(members_alike(linear_pool)), cost=0.7)
    choices = []
    for shift in (1, 2):
        paths = [[by_hand(i, (i + shift) % 3, float(s), 0.7) for s in STARTS[:, 0]] for i in range(3)]
        expected = np.array(paths)
        choices.append(
            np.allclose(found.returns, expected[..., 0], rtol=1e-4)
            and np.allclose(found.disagreement, expected[..., 1])
        )
    assert sum(choices) == 1, "the other member is one, never the member itself, and the same in all steps"


def test_members_that_agree_cost_nothing(linear_pool):
    same = linear_pool(np.repeat(WEIGHTS[:1], 3, axis=0), np.zeros((3, 2)))
    free, dear = (run(world_of(same), cost=cost) for cost in (0.0, 100.0))
    np.testing.assert_allclose(dear.returns, free.returns, rtol=1e-5)
    alone = linear_pool(WEIGHTS[:1], np.zeros((1, 2)))
    np.testing.assert_array_equal(run(world_of(alone), cost=1.0, members=(0, 0)).disagreement, 0.0)


def test_all_members_meet_the_same_noise(linear_pool):
    same = linear_pool(np.repeat(WEIGHTS[:1], 3, axis=0), np.zeros((3, 2)), log_std=-1.0)

    def shaken(key, observations):
        return jnp.tanh(jax.random.normal(key, observations.shape[1:]) - observations)

    one, other = (run(world_of(same), noise="shared", policy=shaken, seed=seed, cost=1.0) for seed in (0, 1))
    np.testing.assert_allclose(one.returns[0], one.returns[1], rtol=1e-5)
    np.testing.assert_allclose(one.disagreement, 0.0, atol=1e-6)
    assert np.all(np.abs(one.returns - other.returns) > 1e-3)


@pytest.mark.parametrize("rule", [lambda before, action, after: after[..., 0] > 5.0, "none"])
def test_nothing_is_imagined_after_the_end(linear_pool, rule):
    """A member in which all numbers grow tenfold at every step would soon reach infinity, and infinity times 0."""
    pool = linear_pool([[[9.0, 0.0], [0.0, 0.0]]] * 2, np.zeros((2, 2)))
    world = world_of(pool, termination=rule, width=4.0 if rule == "none" else 1e6, floor=-3.0)
    found = run(world, cost=1.0, members=(0, 1), steps=200, starts=jnp.ones((1, 1)))
    np.testing.assert_allclose(found.returns, -3.0 if rule == "none" else 0.0, atol=1e-5)
