import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from phyb.envs.liquidation import (
    DEFAULT_SPEC,
    ENV_ID,
    LiquidationEnv,
    LiquidationSpec,
    LiquidationVectorEnv,
    has_ended,
    initial_states,
    register,
    transition,
)


def make_vector(num_envs: int) -> LiquidationVectorEnv:
    env = gymnasium.make_vec(ENV_ID, num_envs=num_envs, vectorization_mode="vector_entry_point")
    assert isinstance(env, LiquidationVectorEnv)
    return env


class ReplayedNoise(np.random.Generator):
    """A generator that hands out given standard-normal numbers, or rows of them."""

    def __init__(self, numbers):
        super().__init__(np.random.PCG64(0))
        self._numbers = iter(numbers)

    def standard_normal(self, size=None, *args, **kwargs):  # pyright: ignore[reportIncompatibleMethodOverride]
        return np.atleast_1d(next(self._numbers))


def one_step(state, action, noise=0.0, spec=DEFAULT_SPEC):
    states, rewards, terminated = transition(
        np.array([state], np.float32), np.array([[action]], np.float32), np.array([noise]), spec
    )
    return states[0], rewards[0], terminated[0]


def test_transition_follows_the_equations():
    state, reward, terminated = one_step((3.0, 80.0, 1.2), 0.25, noise=0.5)
    np.testing.assert_allclose(state, [4.0, 60.0, 1.2 + 0.05 * 0.3 + 0.2 * 0.5], rtol=1e-6)
    assert reward == pytest.approx(0.25 * 80.0 * 1.2)
    assert not terminated


@pytest.mark.parametrize("action", [-1.0, -0.3, -0.0, 0.0])
def test_actions_at_or_below_zero_hold(action):
    state, reward, _ = one_step((0.0, 100.0, 1.0), action)
    assert state[1] == 100.0
    assert reward == 0.0


def test_actions_beyond_one_sell_no_more_than_there_is():
    state, reward, terminated = one_step((0.0, 100.0, 1.0), 7.0)
    assert state[1] == 0.0
    assert reward == 100.0
    assert terminated


@pytest.mark.parametrize(("noise", "price"), [(-100.0, 0.0), (100.0, 5.0)])
def test_prices_are_clipped(noise, price):
    assert one_step((0.0, 100.0, 1.0), 0.0, noise)[0][2] == price


@pytest.mark.parametrize(("time", "ends"), [(17.0, False), (18.0, False), (19.0, True)])
def test_the_horizon_terminates(time, ends):
    assert one_step((time, 100.0, 1.0), 0.0)[2] == ends


@pytest.mark.parametrize(("holding", "ends"), [(0.0999, True), (0.1, False), (0.1001, False)])
def test_a_sliver_terminates(holding, ends):
    assert one_step((0.0, holding, 1.0), 0.0)[2] == ends


def test_constants_can_be_changed():
    spec = LiquidationSpec(horizon=2, volatility=0.0, reversion=1.0, long_run_price=3.0)
    state, _, terminated = one_step((1.0, 100.0, 1.0), 0.0, noise=5.0, spec=spec)
    np.testing.assert_array_equal(state, [2.0, 100.0, 3.0])
    assert terminated


@given(
    time=st.integers(0, 19),
    holding=st.floats(0.125, 100.0, width=32),
    price=st.floats(0.0, 5.0, width=32),
    action=st.floats(-1.0, 1.0, width=32),
    noise=st.floats(-6.0, 6.0),
)
def test_money_is_what_was_sold_times_the_price(time, holding, price, action, noise):
    state, reward, terminated = one_step((time, holding, price), action, noise)
    assert reward == pytest.approx((np.float32(holding) - state[1]) * price, abs=1e-3)
    assert state in LiquidationEnv().observation_space
    assert terminated == has_ended(state)


def test_initial_prices_have_the_given_moments():
    states = initial_states(np.random.default_rng(0).standard_normal(100_000))
    assert states.dtype == np.float32
    np.testing.assert_array_equal(states[:, :2], np.tile([0.0, 100.0], (100_000, 1)))
    assert states[:, 2].mean() == pytest.approx(1.0, abs=1e-3)
    assert states[:, 2].std() == pytest.approx(0.05, abs=1e-3)


def test_passes_the_environment_checker():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(ENV_ID).unwrapped)


def test_registering_twice_changes_nothing():
    before = gymnasium.spec(ENV_ID)
    register()
    assert gymnasium.spec(ENV_ID) is before


def test_thousands_of_episodes_at_once():
    env = make_vector(5000)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    observations, _ = env.reset(seed=0)
    assert observations in env.observation_space
    for _ in range(25):
        observations, rewards, *_ = env.step(env.action_space.sample())
        assert observations in env.observation_space
        assert rewards.shape == (5000,)


def test_vector_and_single_environments_agree_step_by_step():
    count, steps = 6, 60
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((steps + 1, count))
    actions = rng.uniform(-1.0, 0.6, (steps, count, 1)).astype(np.float32)
    vector = gymnasium.make_vec(ENV_ID, num_envs=count, vectorization_mode="sync")
    for env, column in zip(vector.envs, noise.T, strict=True):  # pyright: ignore[reportAttributeAccessIssue]
        env.unwrapped.np_random = ReplayedNoise(column)
    fast = make_vector(count)
    fast.np_random = ReplayedNoise(noise)

    np.testing.assert_array_equal(vector.reset()[0], fast.reset()[0])
    ends = 0
    for action in actions:
        expected, found = vector.step(action), fast.step(action)
        for left, right in zip(expected[:4], found[:4], strict=True):
            np.testing.assert_array_equal(left, right)
        ends += expected[2].sum()
    assert ends > count


def test_next_step_autoreset():
    env = make_vector(2)
    env.reset(seed=0)
    sell_first = np.array([[1.0], [0.0]], np.float32)
    observations, rewards, terminated, truncated, _ = env.step(sell_first)
    np.testing.assert_array_equal(terminated, [True, False])
    np.testing.assert_array_equal(truncated, [False, False])
    assert observations[0, 1] == 0.0
    assert rewards[0] > 80.0
    observations, rewards, terminated, _, _ = env.step(sell_first)
    np.testing.assert_array_equal(observations[:, :2], [[0.0, 100.0], [2.0, 100.0]])
    assert rewards[0] == 0.0
    assert not terminated.any()


def test_the_same_seed_gives_the_same_episodes():
    def trace(seed):
        env = make_vector(3)
        rows = [env.reset(seed=seed)[0]]
        rows += [env.step(np.zeros((3, 1), np.float32))[0] for _ in range(30)]
        return np.stack(rows)

    np.testing.assert_array_equal(trace(5), trace(5))
    assert not np.array_equal(trace(5), trace(6))


def test_returned_observations_belong_to_the_caller():
    env = make_vector(1)
    observations, _ = env.reset(seed=0)
    observations[:] = -1.0
    assert env.step(np.zeros((1, 1), np.float32))[0][0, 0] == 1.0


def test_misuse_is_reported():
    env, vector = LiquidationEnv(), LiquidationVectorEnv(num_envs=2)
    hold = np.zeros(1, np.float32)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(hold)
    with pytest.raises(gymnasium.error.ResetNeeded):
        vector.step(np.zeros((2, 1), np.float32))
    env.reset(seed=0)
    vector.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction, match=r"shape \(1,\), got shape \(2,\)"):
        env.step(np.zeros(2, np.float32))
    with pytest.raises(gymnasium.error.InvalidAction):
        vector.step(np.zeros((1, 1), np.float32))
    env.step(np.ones(1, np.float32))
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(hold)
