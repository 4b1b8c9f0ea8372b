"""The smallest counterexamples found, kept: each breaks a statement as the paper words it."""

import math

import numpy as np
import pytest

from phyb.theory import Hybrid, evaluate, make_mdp, policy_iteration

ONE = np.ones


def aggregate(q, temperature):
    weights = np.exp(-(np.asarray(q) - np.min(q)) / temperature)
    return float((weights * q).sum() / weights.sum())


def test_raising_a_value_can_lower_the_belief_below_the_temperature():
    """Isotonicity needs lambda >= Delta: a higher value gets less weight."""
    assert aggregate([0.0, 5.0], 1.0) < aggregate([0.0, 2.0], 1.0)
    assert aggregate([0.0, 5.0], 5.0) > aggregate([0.0, 2.0], 5.0)


def test_the_operator_is_no_gamma_contraction():
    change = abs(aggregate([1.0, 4.0], 1.0) - aggregate([2.0, 3.0], 1.0))
    assert change > 1.0 * (1.0 + 1e-3)


def test_two_fixed_points():
    """One state that costs 0.15 a step; one model leaves it, the other stays. Hope and despair both hold."""
    mdp = make_mdp([[-0.15], [0.0]], [[[[0, 1]], [[0, 1]]], [[[1, 0]], [[0, 1]]]], 0.99, [1, 0])
    hope = evaluate(mdp, ONE((2, 1)), Hybrid(2, 1.0)).values[0]

    def backup(value):
        return -0.15 + 0.99 * aggregate([0.0, value], 1.0)

    despair = -15.0
    for _ in range(3000):
        despair = backup(despair)
    assert backup(hope) == pytest.approx(hope, abs=1e-12)
    assert backup(despair) == pytest.approx(despair, abs=1e-9)
    assert hope > -0.4
    assert despair < -14.9


def test_the_bound_of_theorem_1_breaks_with_more_than_probability_delta():
    """30 models, all kept, small lambda: with probability 0.096 no model is bad, the belief is far from its mean."""
    models, bad, gamma, delta, ratio = 30, 0.075, 0.1, 0.05, 0.05
    none_bad = (1 - bad) ** models
    probability = [math.comb(models, j) * bad**j * (1 - bad) ** (models - j) for j in range(models + 1)]
    value = [aggregate([0.0] * j + [1.0] * (models - j), ratio) for j in range(models + 1)]
    mean = sum(c * v for c, v in zip(probability, value, strict=True))
    bound = math.sqrt(0.5 / models * math.log(6 / delta)) / (1 - gamma)
    assert none_bad > delta
    assert 1.0 - mean > bound


def test_theorem_2_fails_for_small_discounts():
    """The only model stays in the good state, the truth leaves it: the gap is 2 gamma / (1 - gamma)."""
    gamma = 0.2
    believed = make_mdp([[1.0], [-1.0]], [[[[1, 0]], [[0, 1]]]], gamma, [1, 0])
    truth = make_mdp([[1.0], [-1.0]], [[[[0, 1]], [[0, 1]]]], gamma, [1, 0])
    belief, real = (float(evaluate(m, ONE((2, 1)), Hybrid(1, 1.0)).objective) for m in (believed, truth))
    gap = belief - real
    assert gap == pytest.approx(2 * gamma / (1 - gamma))
    assert gap > 2 * gamma**2 / (1 - gamma) ** 3


def test_holding_the_truth_gives_no_lower_bound():
    """Two models, both kept: the belief lies above the worse one, which may be the truth."""
    mdp = make_mdp(
        [[0.0], [1.0], [0.0]],
        [[[[0, 0, 1]], [[0, 1, 0]], [[0, 0, 1]]], [[[0, 1, 0]], [[0, 1, 0]], [[0, 0, 1]]]],
        0.5,
        [1, 0, 0],
    )
    assert evaluate(mdp, ONE((3, 1)), Hybrid(2, 10.0)).objective > 0.4
    assert evaluate(mdp, ONE((3, 1)), Hybrid(1, 10.0)).objective == 0.0


def test_more_kept_models_can_lower_a_value():
    """State 1 has the value 2.2, and 2.34 once the third model counts; at the start it then gets less weight.

    States: start, 1, nothing for ever, 14 in all, 1.5 in all. At the start the third model predicts so much that it
    hardly counts when it is kept.
    """
    to = np.eye(5)
    models = [
        [[to[2]], [to[2]], [to[2]], [to[3]], [to[4]]],
        [[to[1]], [to[2]], [to[2]], [to[3]], [to[4]]],
        [[to[3]], [to[4]], [to[2]], [to[3]], [to[4]]],
    ]
    mdp = make_mdp([[0.0], [2.2], [0.0], [1.4], [0.15]], models, 0.9, to[0])
    fewer, more = (evaluate(mdp, ONE((5, 1)), Hybrid(k, 1.0)).q[:, 0] for k in (2, 3))
    assert more[1] > fewer[1] + 0.1
    assert more[0] < fewer[0] - 0.01


def test_more_drawn_models_can_raise_the_expectation():
    """A pool of three, of which two agree; two against three are drawn, and two are kept."""
    habit = [[[0, 1, 0, 0]], [[0, 1, 0, 0]], [[0, 0, 1, 0]], [[0, 0, 1, 0]]]
    other = [[[0, 0, 1, 0]], [[0, 1, 0, 0]], [[0, 0, 0, 1]], [[0, 0, 0, 1]]]

    def start_value(*chosen):
        mdp = make_mdp([[0.0], [0.0], [1.1], [0.0]], list(chosen), 0.98, [1, 0, 0, 0])
        return float(evaluate(mdp, ONE((4, 1)), Hybrid(2, 2.0)).objective)

    both, mixed, mostly = start_value(other, other), start_value(habit, other), start_value(habit, other, other)
    alone, all_three = start_value(habit, habit), start_value(other, other, other)
    little = start_value(habit, habit, other)
    two_drawn = (alone + 4 * mixed + 4 * both) / 9
    three_drawn = (alone + 6 * little + 12 * mostly + 8 * all_three) / 27
    assert three_drawn > two_drawn + 1e-3


def test_an_improved_policy_can_have_a_lower_value():
    """State 1 pays 2 or 6 a step by choice; at the start, a model that predicts more of it gets less weight."""
    models = [[[[0, 0, 1]] * 2, [[0, 0, 1]] * 2, [[0, 0, 1]] * 2], [[[0, 1, 0]] * 2, [[0, 0, 1]] * 2, [[0, 0, 1]] * 2]]
    mdp = make_mdp([[0.0, 0.0], [2.0, 6.0], [0.0, 0.0]], models, 0.9, [1, 0, 0])
    policy = [[0.5, 0.5], [0.9, 0.1], [0.5, 0.5]]
    policies, objectives = policy_iteration(mdp, policy, Hybrid(2, 1.0), step_size=0.1, omega=0.9, iterations=1)
    assert policies[1][1, 1] > 0.9
    assert objectives[1] < 0.5 * objectives[0]


def test_the_euclidean_formula_leaves_the_simplex():
    """Omega = 0 without the constraint p >= 0: mu + (q - mean q) / beta."""
    assert np.min(np.array([0.5, 0.5]) + np.array([1.0, -1.0]) / 1.0) < 0
