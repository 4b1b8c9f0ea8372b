"""Cloning recovers the policy that made the log, fitted returns its values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.data.dataset import make_dataset
from phyb.data.log import Log
from phyb.policy.actor import Actor, squash
from phyb.policy.cloning import clone, fit_returns
from phyb.policy.critics import Critics, ValueNetwork


@pytest.fixture(scope="module")
def linear_policy():
    """Draws with mean 0.8 x0 - 0.4 x1 and deviation 0.3, before the tanh."""
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(4000, 2)).astype(np.float32)
    mean = observations @ np.array([0.8, -0.4], np.float32)
    draws = mean + 0.3 * rng.normal(size=4000)
    return observations, np.tanh(draws)[:, None].astype(np.float32), mean


@pytest.fixture(scope="module")
def actor():
    return Actor(jax.random.key(0), 2, 1, (16,))


@jax.jit
def run(key, actor, observations, actions):
    return clone(key, actor, observations, actions, steps=800, learning_rate=1e-2, batch_size=128)


def test_cloning_recovers_mean_and_spread_of_a_linear_policy(linear_policy, actor):
    observations, actions, mean = linear_policy
    cloned = run(jax.random.key(1), actor, observations, actions)
    pi = cloned(observations)
    ordinary = np.abs(observations).max(axis=1) < 2
    assert np.sqrt(np.mean((pi.mean[:, 0] - mean)[ordinary] ** 2)) < 0.06
    assert float(jnp.median(jnp.exp(pi.log_std))) == pytest.approx(0.3, rel=0.1)
    again = run(jax.random.key(1), actor, observations, actions)
    np.testing.assert_array_equal(again(observations).mean, pi.mean)


def test_actions_at_the_bounds_do_not_break_cloning(linear_policy, actor):
    observations = linear_policy[0]
    actions = np.sign(observations[:, :1])
    chosen = squash(run(jax.random.key(1), actor, observations, actions)(observations).mean)
    assert np.all(np.isfinite(chosen))
    assert float(jnp.mean(jnp.sign(chosen) == actions)) > 0.95


def test_actions_beyond_the_largest_count_as_the_largest(linear_policy, actor):
    observations = jnp.asarray(linear_policy[0])
    told = {"steps": 200, "learning_rate": 1e-2, "batch_size": 128}
    at_bound, inside = (
        clone(jax.random.key(1), actor, observations, share * jnp.sign(observations[:, :1]), **told, largest_action=0.9)
        for share in (1.0, 0.9)
    )
    np.testing.assert_array_equal(at_bound.trunk.weights[0], inside.trunk.weights[0])


def test_a_censored_clone_finds_the_controller_behind_clipped_actions(linear_policy, actor):
    """Half of the draws lie beyond the bounds: what is recorded of them is the bound, the mean lies further out."""
    observations, _, mean = linear_policy
    rng = np.random.default_rng(3)
    clipped = np.clip(np.tanh(2.0 * mean + 0.3 * rng.normal(size=len(mean))), -0.7, 0.7)[:, None].astype(np.float32)
    told = {"steps": 800, "learning_rate": 1e-2, "batch_size": 128, "largest_action": 0.7}
    columns = jnp.asarray(observations), jnp.asarray(clipped)
    taken_at_word, censored = (clone(jax.random.key(1), actor, *columns, **told, censored=on) for on in (False, True))
    further_out = (np.abs(2.0 * mean) > 1.2) & (np.abs(2.0 * mean) < 2.0)
    found = np.sign(mean) * np.asarray(censored(observations).mean[:, 0])
    assert np.median(found[further_out]) > 1.2
    assert np.max(np.abs(taken_at_word(observations).mean)) < 1.2
    inside = np.abs(2.0 * mean) < 0.5
    assert np.sqrt(np.mean((censored(observations).mean[:, 0] - 2.0 * mean)[inside] ** 2)) < 0.06
    spread = float(jnp.median(jnp.exp(censored(observations).log_std)[inside]))
    assert spread == pytest.approx(0.3, rel=0.15)


def test_rows_that_are_left_out_are_not_learned_from(linear_policy, actor):
    observations, actions, mean = linear_policy
    spoilt = np.where(np.arange(len(actions))[:, None] % 2, actions, -actions)
    told = {"steps": 800, "learning_rate": 1e-2, "batch_size": 128}
    odd = jnp.arange(1, len(actions), 2)
    cloned = clone(jax.random.key(1), actor, jnp.asarray(observations), jnp.asarray(spoilt), **told, only=odd)
    ordinary = np.abs(observations).max(axis=1) < 2
    assert np.sqrt(np.mean((cloned(observations).mean[:, 0] - mean)[ordinary] ** 2)) < 0.06


def test_no_steps_leave_the_actor_as_it_was(linear_policy, actor):
    observations, actions = (jnp.asarray(x) for x in linear_policy[:2])
    same = clone(jax.random.key(0), actor, observations, actions, steps=0, learning_rate=1.0, batch_size=2)
    np.testing.assert_array_equal(same.trunk.weights[0], actor.trunk.weights[0])


def test_fitted_returns_are_the_values_of_state_and_of_action():
    rng = np.random.default_rng(1)
    observations, actions = rng.uniform(-1, 1, (2, 3000, 1)).astype(np.float32)
    returns = 50.0 + 10.0 * observations[:, 0] + 5.0 * actions[:, 0]
    ends, bound = np.ones(3000, bool), np.ones(1, np.float32)  # each row is an episode
    log = Log(observations, actions, returns, observations, ends, ~ends, -bound, bound)
    dataset = make_dataset(log, discount=1.0, horizon=1)
    keys = jax.random.split(jax.random.key(2), 3)
    networks = Critics(keys[0], 1, 1, (32,)), ValueNetwork(keys[1], 1, (32,))
    critics, value = jax.jit(
        lambda: fit_returns(keys[2], *networks, dataset, steps=1500, learning_rate=1e-2, batch_size=128)
    )()
    inputs = dataset.standardizer(jnp.asarray(observations))
    q, v = (values * dataset.reward_scale for values in (critics(inputs, dataset.rows.actions), value(inputs)))
    assert np.sqrt(np.mean((q - returns) ** 2)) < 1.0
    # The state alone does not tell the action, whose mean is 0.
    assert np.sqrt(np.mean((v - 50.0 - 10.0 * observations[:, 0]) ** 2)) < 1.0
