import numpy as np
import pytest

from phyb.envs.rules import RULES, as_policy, behaviour_actions


def observations(time: float, prices) -> np.ndarray:
    prices = np.asarray(prices, np.float32)
    return np.stack([np.full_like(prices, time), np.full_like(prices, 50.0), prices], axis=1)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("time", [0, 10, 19, 20])
def test_rules_give_float32_actions_within_bounds(name, time):
    actions = RULES[name](observations(time, [0.0, 1.0, 5.0]), np.random.default_rng(0))
    assert actions.shape == (3, 1)
    assert actions.dtype == np.float32
    assert np.all(np.abs(actions) <= 1.0)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("time", [0, 18, 19])
def test_the_mean_fraction_is_what_the_rule_sells_on_average(name, time):
    prices = np.repeat(np.array([0.7, 1.4, 1.6]), 20_000)
    sold = np.clip(RULES[name](observations(time, prices), np.random.default_rng(0)), 0.0, 1.0)
    expected = RULES[name].mean_fraction(time, np.array([0.7, 1.4, 1.6]))
    np.testing.assert_allclose(sold.reshape(3, -1).mean(axis=1), expected, atol=0.01)


def test_a_policy_is_deterministic_in_its_seed():
    batch = observations(0, np.ones(100))
    first, again, other = (as_policy(RULES["behaviour"], seed)(batch) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_hold_encodings_share_their_trades():
    negative = behaviour_actions(np.random.default_rng(0), (1000,), 0.8, "negative")
    zero = behaviour_actions(np.random.default_rng(0), (1000,), 0.8, "zero")
    np.testing.assert_array_equal(np.maximum(negative, 0.0), zero)
    assert negative.min() < -0.9
