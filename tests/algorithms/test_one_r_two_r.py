"""1R2R's choice among outcomes: how often each is followed, and when it is no choice at all."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from phyb.algorithms import sac
from phyb.algorithms.model_sac import ModelSAC, ModelState
from phyb.algorithms.one_r_two_r import OneRTwoR, OneRTwoRConfig, choose, choose_pooled
from phyb.algorithms.problem import make_problem
from phyb.algorithms.settings import preset

ROWS = 20_000


def shares(risk, amount, count=10):
    """How often the outcome of each rank is chosen; the worst comes first."""
    values = jax.random.normal(jax.random.key(0), (count, ROWS))
    chosen = choose(jax.random.key(1), values, risk, amount)
    rank = np.argsort(np.argsort(values, axis=0), axis=0)[np.asarray(chosen), np.arange(ROWS)]
    return np.bincount(rank, minlength=count) / ROWS


@pytest.mark.parametrize(("amount", "tail"), [(0.1, 1), (0.5, 5), (0.7, 7), (0.9, 9), (1.0, 10)])
def test_cvar_follows_each_of_the_worst_outcomes_equally_often(amount, tail):
    found = shares("cvar", amount)
    np.testing.assert_allclose(found[:tail], 1 / tail, atol=0.015)
    assert np.all(found[tail:] < 1e-3)


@pytest.mark.parametrize("amount", [0.0, 0.5, 0.75])
def test_wang_follows_outcomes_by_the_distorted_distribution(amount):
    grid = norm.cdf(norm.ppf(np.arange(11) / 10) + amount)
    np.testing.assert_allclose(shares("wang", amount), np.diff(grid), atol=0.015)


@pytest.mark.parametrize(("risk", "amount"), [("cvar", 1.0), ("wang", 0.0), ("neutral", 0.3)])
def test_without_caution_every_outcome_is_as_likely(risk, amount):
    np.testing.assert_allclose(shares(risk, amount), 0.1, atol=0.015)


def test_pooled_outcomes_are_drawn_once_each_from_the_tails_of_those_that_live():
    values = jax.random.normal(jax.random.key(0), (10, 400))
    alive = jnp.arange(400) % 4 != 0
    outcome, row, counts = choose_pooled(jax.random.key(1), values, alive, 0.3)
    assert int(jnp.sum(counts)) == 300
    outcome, row = np.asarray(outcome)[:300], np.asarray(row)[:300]
    rank = np.argsort(np.argsort(values, axis=0), axis=0)[outcome, row]
    assert set(rank.tolist()) == {0, 1, 2}
    assert np.all(row % 4 != 0)
    assert len(set(zip(outcome.tolist(), row.tolist(), strict=True))) == 300
    times = np.bincount(row, minlength=400)[np.asarray(alive)]
    assert times.max() == 3  # some states go on more than once
    assert np.mean(times == 0) == pytest.approx((2 / 3) ** 3, abs=0.06)  # and others not at all


@pytest.fixture(scope="module")
def setting(linear_log, linear_pool):
    """Two members that differ in the reward alone, by -1 and 1, and a terminal rule on the second number."""
    pool = linear_pool(np.zeros((2, 4, 4)), [[0.0, 0.0, 0.0, -1.0], [0.0, 0.0, 0.0, 1.0]])
    problem = make_problem(linear_log(episodes=200, steps=5), pool, discount=0.9, horizon=5, termination="none")
    agent = sac.init(sac.SACConfig(hidden=(5,)), jax.random.key(0), 3, 1)
    return problem, agent


def stepped(setting, kind: type[ModelSAC] = OneRTwoR, **changes):
    problem, agent = setting
    state = ModelState(agent, *[None] * 3)  # pyright: ignore[reportArgumentType]
    algorithm = kind(dataclasses.replace(OneRTwoRConfig(), **changes), steps=10)
    observations = jnp.tile(problem.rows.observations[:300], (2, 1))
    actions = jnp.tile(problem.rows.actions[:300], (2, 1))
    step = eqx.filter_jit(algorithm.step)
    rows, weight, *_ = step(jax.random.key(3), state, problem, observations, actions, jnp.ones(600))
    np.testing.assert_array_equal(weight, 1.0)
    return rows, float(jnp.mean(rows.rewards) * problem.reward_scale)


def test_outcomes_of_one_state_come_from_several_members(setting):
    # One member for all ten outcomes of a state would leave nothing to choose: the mean reward would stay 0.
    assert stepped(setting, risk_amount=0.1)[1] == pytest.approx(-1.0, abs=0.01)
    assert stepped(setting, risk_amount=0.5)[1] == pytest.approx(-0.75, abs=0.15)


@pytest.mark.parametrize("changes", [{"risk_amount": 1.0}, {"risk": "wang", "risk_amount": 0.0}])
def test_without_caution_a_step_is_that_of_a_plain_rollout(setting, changes):
    cautious, plain = stepped(setting, **changes)[1], stepped(setting, ModelSAC)[1]
    assert cautious == pytest.approx(plain, abs=0.15)
    assert cautious == pytest.approx(0.0, abs=0.12)


def test_pooled_rows_are_whole_transitions(setting):
    rows, mean = stepped(setting, risk_amount=0.5, tail="pooled")
    np.testing.assert_allclose(rows.next_observations, rows.observations, atol=1e-5)  # nothing moves in this world
    assert mean < -0.5


def test_values_stop_at_the_end_of_an_episode_and_ask_the_learning_critics(setting):
    problem, agent = setting
    algorithm = OneRTwoR(OneRTwoRConfig(reward_units="range"), steps=10)
    rows = jax.tree.map(lambda leaf: leaf[None, :50], problem.rows)
    rows = rows._replace(terminated=jnp.ones((1, 50)))
    found = algorithm.outcome_values(jax.random.key(0), agent, problem, rows)
    np.testing.assert_allclose(found, rows.rewards, rtol=1e-6)
    rows = rows._replace(terminated=jnp.zeros((1, 50)))
    up = agent._replace(
        critics=eqx.tree_at(lambda c: c.networks.biases[-1], agent.critics, replace_fn=lambda b: b + 2.0)
    )
    before, after = (algorithm.outcome_values(jax.random.key(0), each, problem, rows) for each in (agent, up))
    np.testing.assert_allclose(after - before, 0.9 * 2.0, rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"risk_amount": 0.0}, "risk_amount"),
        ({"risk": "wang", "risk_amount": -1.0}, "risk_amount"),
        ({"risk": "wang", "tail": "pooled"}, "tail"),
    ],
)
def test_settings_of_1r2r_that_make_no_sense_are_refused(changes, word):
    with pytest.raises(ValueError, match=word):
        OneRTwoRConfig(**changes)


def test_published_settings_of_1r2r_follow_the_dataset():
    agent = preset("paper", "1r2r", dataset="hopper-medium-replay-v2").agent
    assert (agent.risk_amount, agent.rollout_length) == (0.5, 1)
