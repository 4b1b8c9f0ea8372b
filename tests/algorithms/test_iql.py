"""IQL against a reference in NumPy, and its expectiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_networks import ACTIONS, COUNT, OBSERVATIONS, both_values, log_of, mean_action, mlp, some_rows

from phyb.algorithms.base import logged_rows
from phyb.algorithms.iql import IQL, IQLConfig, expectile_loss, imitation_loss
from phyb.algorithms.problem import make_problem
from phyb.errors import UsageError

CONFIG = IQLConfig(policy_hidden=(5,), batch_size=16, sharpness=2.0, largest_weight=1.5, reward_units="returns")


@pytest.fixture(scope="module")
def problem():
    return make_problem(log_of(some_rows(count=40)), None, discount=0.9, horizon=5)


@pytest.mark.parametrize("expectile", [0.5, 0.7, 0.95])
def test_the_expectile_of_a_fair_coin_is_tau(expectile):
    # tau (1 - m) = (1 - tau) m for a coin that shows 0 or 1.
    coin = jnp.array([0.0, 1.0])
    slope = jax.grad(lambda value: expectile_loss(coin - value, expectile))
    assert float(slope(expectile)) == pytest.approx(0.0, abs=1e-6)
    assert float(slope(expectile - 0.1)) < 0 < float(slope(expectile + 0.1))


def test_at_one_half_the_expectile_is_the_mean():
    numbers = jnp.array([1.0, 2.0, 7.0, -3.0])
    slope = jax.grad(lambda value: expectile_loss(numbers - value, 0.5))
    assert float(slope(float(numbers.mean()))) == pytest.approx(0.0, abs=1e-6)


def test_one_update_has_the_losses_of_the_paper(problem):
    algorithm = IQL(CONFIG, steps=100)
    state = algorithm.init(jax.random.key(0), problem)
    after, told = jax.jit(algorithm.update)(state, problem)
    rows = logged_rows(jax.random.split(state.key)[1], problem, CONFIG)
    # Rewards such that the returns of episodes span 1000.
    spread = 1000.0 * float(problem.reward_scale) / np.ptp(_returns(problem))
    known = np.asarray(problem.rows.rewards) * spread
    assert all(np.isclose(known, float(reward), rtol=1e-4).any() for reward in rows.rewards)

    logged = both_values(state.target_critics, rows.observations, rows.actions).min(axis=0)
    gaps = logged - mlp(state.value.network, rows.observations)[:, 0]
    value_loss = np.mean(np.abs(0.7 - (gaps < 0)) * gaps**2)
    assert float(told["value_loss"]) == pytest.approx(value_loss, rel=1e-4)

    successor = mlp(after.value.network, rows.next_observations)[:, 0]
    target = np.asarray(rows.rewards) + 0.9 * (1.0 - np.asarray(rows.terminated)) * successor
    errors = both_values(state.critics, rows.observations, rows.actions) - target
    assert float(told["critic_loss"]) == pytest.approx(np.sum(np.mean(errors**2, axis=1)), rel=1e-4)

    weights = np.minimum(np.exp(2.0 * (logged - mlp(after.value.network, rows.observations)[:, 0])), 1.5)
    distance = np.asarray(rows.actions) - mean_action(state.actor, rows.observations)
    log_density = np.sum(-0.5 * distance**2 - 0.5 * np.log(2 * np.pi), axis=1)
    assert float(told["actor_loss"]) == pytest.approx(-np.mean(weights * log_density), rel=1e-4)
    assert float(told["imitation_weight"]) == pytest.approx(weights.mean(), rel=1e-4)
    assert weights.max() == 1.5


def _returns(problem):
    return (np.asarray(problem.rows.rewards) * float(problem.reward_scale)).reshape(-1, 5).sum(axis=1)


def test_rows_count_by_their_weight_and_the_gaussian_is_not_squashed(problem):
    actor, rows = IQL(CONFIG, steps=100).init(jax.random.key(0), problem).actor, some_rows()
    only = np.eye(COUNT)[2]
    found = imitation_loss(actor, jnp.full(ACTIONS, -1.0), rows, jnp.asarray(only))
    distance = (np.asarray(rows.actions) - mean_action(actor, rows.observations))[2] / np.exp(-1.0)
    expected = -np.sum(-0.5 * distance**2 + 1.0 - 0.5 * np.log(2 * np.pi)) / COUNT
    assert float(found) == pytest.approx(expected, rel=1e-4)
    assert rows.observations.shape[1] == OBSERVATIONS


@pytest.mark.parametrize("change", [{"expectile": 1.0}, {"sharpness": -1.0}, {"largest_weight": 0.0}])
def test_settings_of_iql_that_make_no_sense_are_refused(change):
    with pytest.raises(UsageError, match=next(iter(change))):
        IQL(**change)
