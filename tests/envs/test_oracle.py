import numpy as np
import pytest
from scipy.special import ndtr

from phyb.envs.liquidation import DEFAULT_SPEC, ENV_ID, LiquidationSpec
from phyb.envs.oracle import expected_return, interpolant_weights, rule_return, solve, stopping_return
from phyb.envs.rules import RULES, as_policy
from phyb.envs.tasks import find_task, normalized_score
from phyb.errors import UsageError
from phyb.evaluation.returns import episode_returns, summarize

EPISODES = 40_000


def test_weights_integrate_a_function_with_jumps():
    grid = np.array([0.0, 0.4, 1.0, 2.0])
    lower, upper = np.array([1.0, -2.0, 3.0]), np.array([2.0, 0.5, 3.5])
    for mean in (-0.3, 0.7, 2.5):
        left, right = interpolant_weights(np.array([mean]), 0.6, grid)
        expected = lower[0] * ndtr((grid[0] - mean) / 0.6) + upper[-1] * ndtr((mean - grid[-1]) / 0.6)
        for a, b, low, high in zip(grid[:-1], grid[1:], lower, upper, strict=True):
            x, gauss_weights = np.polynomial.legendre.leggauss(40)
            x = a + (b - a) * (x + 1.0) / 2.0
            piece = low + (high - low) * (x - a) / (b - a)
            density = np.exp(-0.5 * ((x - mean) / 0.6) ** 2) / (0.6 * np.sqrt(2.0 * np.pi))
            expected += (b - a) / 2.0 * np.sum(gauss_weights * piece * density)
        assert (left @ lower + right @ upper)[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("discount", "reference"),
    [(1.0, (1.925, 1.852, 1.762, 1.635, 1.502)), (0.99, (1.592, 1.542, 1.475, 1.370, 1.250))],
)
def test_thresholds_agree_with_an_independent_computation(discount, reference):
    thresholds = solve(discount).thresholds
    # The reference numbers are the first point of a coarse price grid at which selling wins.
    np.testing.assert_allclose(thresholds[[0, 5, 10, 15, 18]], reference, atol=3e-3)
    assert np.all(np.diff(thresholds) < 0.0)
    assert thresholds[-1] == 0.0


@pytest.mark.parametrize("discount", [1.0, 0.99, 0.97])
def test_the_last_decision_has_a_closed_form(discount):
    # One step before the end, selling wins if p >= discount (p + reversion (long_run - p)).
    drift = DEFAULT_SPEC.reversion * DEFAULT_SPEC.long_run_price
    threshold = discount * drift / (1.0 - discount * (1.0 - DEFAULT_SPEC.reversion))
    assert solve(discount).thresholds[-2] == pytest.approx(threshold, abs=1e-6)


def test_optimal_return_and_score():
    oracle, task = solve(), find_task(ENV_ID)
    assert oracle.optimal_return == pytest.approx(137.48, abs=0.005)
    assert task is not None
    assert normalized_score(task, oracle.optimal_return) == pytest.approx(101.835, abs=0.005)
    assert stopping_return(oracle.thresholds) == pytest.approx(oracle.optimal_return, abs=1e-3)


def test_the_grid_is_fine_enough():
    coarse, fine = solve(grid_points=501), solve()
    assert coarse.optimal_return == pytest.approx(fine.optimal_return, abs=0.003)
    np.testing.assert_allclose(coarse.thresholds, fine.thresholds, atol=2e-4)


@pytest.mark.parametrize("discount", [1.0, 0.99])
def test_simulation_of_the_optimum_earns_its_value(discount):
    oracle = solve(discount)
    summary = summarize(episode_returns(oracle.action, ENV_ID, EPISODES, seed=1))
    assert abs(summary.mean - stopping_return(oracle.thresholds)) < 4.0 * summary.std_error


@pytest.mark.parametrize("name", RULES)
def test_simulation_of_each_rule_earns_its_value(name):
    summary = summarize(episode_returns(as_policy(RULES[name], 0), ENV_ID, EPISODES, seed=2))
    sliver_loss = 0.1
    assert abs(summary.mean - rule_return(RULES[name])) < 4.0 * summary.std_error + sliver_loss


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sell at once", 100.0),
        ("wait to the end", 131.95),
        ("equal slices", 118.25),
        ("fixed fraction 0.2", 106.85),
        ("threshold 1.5", 134.96),
        ("uniform random", 106.14),
        ("behaviour", 98.94),
    ],
)
def test_rules_have_known_values_below_the_optimum(name, expected):
    assert rule_return(RULES[name]) == pytest.approx(expected, abs=0.01)
    assert rule_return(RULES[name]) < solve().optimal_return


def test_waiting_earns_the_mean_of_the_last_price():
    # Without the clip of the price, E p_19 = 1.5 - 0.5 * 0.95^19 = 1.3113; the floor at 0 lifts it a little.
    unclipped = 100.0 * (1.5 - 0.5 * 0.95**19)
    assert 0.0 < rule_return(RULES["wait to the end"]) - unclipped < 1.5


def test_waiting_in_a_market_without_a_floor_is_exact():
    calm = LiquidationSpec(volatility=0.05)
    value = expected_return(RULES["wait to the end"].mean_fraction, spec=calm)
    assert value == pytest.approx(100.0 * (1.5 - 0.5 * 0.95**19), abs=1e-6)


def test_breaks_beyond_the_price_range_do_no_harm():
    never = np.full(20, 99.0)
    assert stopping_return(never) == pytest.approx(0.0)


def test_actions_of_states():
    oracle = solve()
    observations = np.array(
        [[0, 100, 1.0], [0, 50, 2.5], [18, 10, 1.49], [18, 10, 1.51], [19, 10, 0.2], [20, 10, 0.2]],
        np.float32,
    )
    actions = oracle.action(observations)
    assert actions.dtype == np.float32
    np.testing.assert_array_equal(actions[:, 0], [0, 1, 0, 1, 1, 1])


def test_impatience_sells_at_once():
    oracle = solve(0.0)
    np.testing.assert_array_equal(oracle.thresholds, np.zeros(20))
    assert oracle.optimal_return == pytest.approx(100.0, abs=1e-3)


@pytest.mark.parametrize("discount", [-0.1, 1.1, float("nan")])
def test_a_discount_outside_the_unit_interval_is_refused(discount):
    with pytest.raises(UsageError, match="discount"):
        solve(discount)
