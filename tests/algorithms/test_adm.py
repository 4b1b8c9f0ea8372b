"""ADM: what an imagined step earns, at which temperature, and which models and settings it takes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.algorithms.adm import ADM, ADMConfig
from phyb.algorithms.problem import make_problem
from phyb.algorithms.settings import preset
from phyb.dynamics.any_step import look_back
from phyb.dynamics.fit import PoolConfig, fit_pool
from phyb.errors import UsageError
from phyb.world.history import History, spread

POOL = PoolConfig(model="any-step", model_window=3, pool_size=2, model_hidden=(6,), model_steps=20,
                  model_check_every=10)  # fmt: skip
SMALL = ADMConfig(policy_hidden=(4,), batch_size=10, rollout_starts=32, rollout_length=2, rollout_every=2, elites=1)


@pytest.fixture(scope="module")
def problem(linear_log):
    log = linear_log(episodes=20, steps=5)
    return make_problem(log, fit_pool(log, POOL, 0)[0], discount=0.9, horizon=5, termination="none")


def imagined(problem, **changes):
    algorithm = ADM(dataclasses.replace(SMALL, **changes), steps=10)
    state = algorithm.init(jax.random.key(0), problem)
    return jax.jit(lambda key: algorithm.imagine(key, state, problem))(jax.random.key(1))


@pytest.fixture(scope="module")
def priced(problem):
    """A round of rollouts in which nothing counts but the price of uncertainty."""
    return imagined(problem, uncertainty_weight=1e6)


def test_a_step_earns_less_by_the_spread_of_what_looking_back_predicts(problem, priced):
    rows, counts = priced
    assert bool(jnp.all(counts[0]))
    price = -rows.rewards[0] * problem.reward_scale
    logged, begun = np.asarray(problem.rows.observations), np.asarray(rows.observations[0])
    chosen = np.array([np.flatnonzero(np.all(logged == start, axis=1))[0] for start in begun])
    history, world = History.before(problem, jnp.asarray(chosen), 3), problem.world
    taken = world.env_action(history.actions.at[:, -1].set(rows.actions[0]))
    best = jnp.argmin(world.pool.holdout_nll)
    told = jax.jit(look_back)(world.pool, best, history.observations, taken)
    expected = 1e6 * spread(told.next_mean, jnp.arange(3)[:, None] < history.length)
    np.testing.assert_allclose(price, expected, rtol=1e-3, atol=100.0)
    starts = np.asarray(history.length) == 1
    assert starts.any(), "some begin where nothing came before"
    np.testing.assert_allclose(expected[starts], 0.0, atol=10.0)
    assert float(np.min(expected[~starts])) > 1000.0


def test_units_left_out_in_rollouts_change_them(problem, priced):
    one, other = priced[0], imagined(problem, rollout_dropout=True)[0]
    np.testing.assert_array_equal(one.observations[0], other.observations[0])
    assert float(jnp.max(jnp.abs(one.next_observations - other.next_observations))) > 1e-3


def test_the_temperature_is_fixed_by_default():
    for name in ("cpu", "paper"):
        assert preset(name, "adm").agent.temperature_learning_rate == 0.0


def test_models_of_single_steps_are_refused_before_they_are_trained():
    with pytest.raises(UsageError, match="any-step"):
        ADM(model="gaussian")


def test_published_settings_follow_the_dataset_down_to_the_model():
    cheetah = preset("paper", "adm", dataset="halfcheetah-medium-expert-v2")
    assert (cheetah.pool.model_window, cheetah.pool.model_hidden) == (2, (400, 400, 400))  # pyright: ignore[reportOptionalMemberAccess]
    assert (cheetah.agent.uncertainty_weight, cheetah.agent.rollout_length) == (9.16, 20)
    hopper = preset("paper", "adm", dataset="hopper-random")
    assert (hopper.pool.model_window, hopper.training.steps) == (5, 3_000_000)  # pyright: ignore[reportOptionalMemberAccess]
    assert preset("paper", "adm", dataset="hopper-full-replay").agent.real_fraction == 0.5  # as medium-replay


def test_a_longer_window_needs_more_memory():
    assert ADM(model_window=9).memory(11, 3) > ADM().memory(11, 3)
