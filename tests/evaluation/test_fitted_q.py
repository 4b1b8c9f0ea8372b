"""Fitted Q evaluation in worlds whose discounted values are known exactly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.algorithms.problem import make_problem
from phyb.data.log import Log
from phyb.errors import DivergenceError, UsageError
from phyb.evaluation.fitted_q import FittedQConfig, fit_q, steps_of_fit
from phyb.networks import Standardizer
from phyb.policy.actor import Actor
from phyb.policy.policy import Policy

CONFIG = FittedQConfig(
    fit_steps=1000, fit_networks=2, fit_hidden=(32, 32), fit_batch_size=64, fit_learning_rate=3e-3, fit_target_rate=0.05
)
BOUND = np.ones(1, np.float32)


def constant(action: float) -> Policy:
    actor = jax.tree.map(jnp.zeros_like, Actor(jax.random.key(0), 1, 1, (4,)))
    actor = eqx.tree_at(lambda a: a.trunk.biases[-1], actor, jnp.array([np.arctanh(action), 0.0], jnp.float32))
    return Policy(actor, Standardizer(jnp.zeros(1), jnp.ones(1)), -jnp.ones(1), jnp.ones(1))


def chain(episodes=200, pay=1.0):
    """States 0, 1, 2 one after the other, then the end; a step in state x pays x + a. Actions are uniform."""
    state = np.tile(np.arange(3, dtype=np.float32), episodes)[:, None]
    action = np.random.default_rng(0).uniform(-1, 1, (len(state), 1)).astype(np.float32)
    ends = state[:, 0] == 2
    rewards = pay * (state + action)[:, 0]
    return Log(state, action, rewards, state + 1, ends, np.zeros_like(ends), -BOUND, BOUND)


def treadmill(episodes=200):
    """No episode ends, each is cut by the clock; a step pays its action and leads to some other state."""
    rng = np.random.default_rng(0)
    state, after, action = rng.uniform(-1, 1, (3, 3 * episodes, 1)).astype(np.float32)
    cut = np.arange(len(state)) % 3 == 2
    return Log(state, action, action[:, 0], after, np.zeros_like(cut), cut, -BOUND, BOUND)


def values(log, policy, config=CONFIG, seed=0):
    problem = make_problem(log, None, discount=0.8, horizon=1000)
    return fit_q(jax.random.key(seed), policy, problem, np.asarray(problem.starts), config)


def test_a_short_chain_has_the_value_of_its_discounted_rewards():
    for action in (0.5, -0.5):
        exact = action + 0.8 * (1 + action) + 0.64 * (2 + action)
        found = values(chain(), constant(action))
        np.testing.assert_allclose(found.values.mean(axis=1), exact, atol=0.1)  # of rewards between -1 and 3
        assert abs(found.drift) < 0.1


def test_an_episode_cut_by_the_clock_goes_on_in_value():
    # a / (1 - gamma); without the bootstrap at truncated rows it would be a.
    found = values(treadmill(), constant(0.6))
    np.testing.assert_allclose(found.values.mean(axis=1), 3.0, atol=0.25)


def test_better_policies_have_higher_values():
    found = [values(treadmill(), constant(action)).values.mean() for action in (-0.7, 0.0, 0.7)]
    assert found[0] < found[1] - 1.0 < found[2] - 2.0


def test_values_are_in_the_units_of_the_log():
    small, large = (values(chain(pay=pay), constant(0.5)).values for pay in (1.0, 1000.0))
    np.testing.assert_allclose(large, 1000.0 * small, rtol=0.01)


def test_values_keep_to_what_the_rewards_allow():
    assert np.all(values(chain(pay=0.0), constant(0.5)).values == 0.0)


def test_the_same_policy_and_key_give_the_same_numbers_and_another_key_others():
    first, again, other = (values(chain(), constant(0.5), seed=seed).values for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[0], first[1])  # the networks have weights and batches of their own


def test_the_fitted_value_is_that_of_the_networks_at_any_shape():
    found = values(chain(), constant(0.5))
    raw = jnp.linspace(-1.0, 3.0, 6)[:, None]
    valued = eqx.filter_jit(found.q)(found.q.standardizer(raw).reshape(2, 3, 1))
    np.testing.assert_allclose(valued.reshape(6), eqx.filter_jit(found.q.each)(raw).mean(axis=0), rtol=1e-5, atol=1e-6)


def test_a_longer_reach_takes_more_steps():
    def steps(discount, horizon, **settings):
        problem = make_problem(chain(), None, discount=discount, horizon=horizon)
        return steps_of_fit(FittedQConfig(**settings), problem)

    assert steps(1.0, 20) == 5000
    assert steps(0.99, 1000) == 20_000
    assert steps(0.99, 1000, fit_target_rate=0.04) == 10_000
    assert steps(0.99, 50) == 10_000  # an episode is over before the discount counts
    assert steps(0.99, 1000, fit_steps=7) == 7


@pytest.mark.parametrize(
    "wrong", [{"fit_steps": 0}, {"fit_hidden": (8, 0)}, {"fit_learning_rate": 0.0}, {"fit_target_rate": 1.5}]
)
def test_settings_that_cannot_be_used_are_named(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        values(chain(), constant(0.5), FittedQConfig(**wrong))


def test_a_fit_that_diverges_is_reported():
    broken = eqx.tree_at(lambda p: p.actor.trunk.biases[-1], constant(0.5), jnp.full(2, jnp.nan, jnp.float32))
    with pytest.raises(DivergenceError, match="--fit-learning-rate"):
        values(chain(), broken)
