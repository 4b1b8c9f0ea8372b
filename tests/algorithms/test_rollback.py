"""Whether a policy has lost: exact in a known world, and by witnesses that must agree."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_sides import CONFIG, world_of_two_sides

from phyb.algorithms.phyb import PhyB
from phyb.algorithms.problem import make_problem
from phyb.algorithms.rollback import GAIN, LOSS, SHARED_ERROR, evidence, gains, member_returns
from phyb.belief.backup import BeliefConfig
from phyb.data.log import Log
from phyb.networks import SlowAverage
from phyb.policy.actor import Actor

BELIEF = BeliefConfig(ensemble_size=2, subset_size=1)


class Always(Actor):
    """Does the same everywhere."""

    action: float

    def __init__(self, action):
        super().__init__(jax.random.key(0), 1, 1, (2,))
        self.action = action

    def mode(self, observations):
        return jnp.full((*observations.shape[:-1], 1), self.action)


@pytest.fixture(scope="module")
def problem(linear_pool):
    """s' = -s and r = w a, with a wage w of each member's own, in episodes of six steps."""
    rng, bound, rows = np.random.default_rng(0), np.ones(1, np.float32), 60
    states, actions = rng.uniform(-1, 1, (2, rows, 1)).astype(np.float32)
    ends = np.arange(rows) % 6 == 5
    log = Log(states, actions, actions[:, 0], -states, np.zeros(rows, bool), ends, -bound, bound)
    weights = np.repeat([[[-2.0, 0.0], [0.0, 0.0]]], 3, axis=0)
    weights[:, 1, 1] = [1.0, 2.0, -1.0]
    pool = linear_pool(weights, np.zeros((3, 2)), log_std=-40.0)
    return make_problem(log, pool, discount=0.5, horizon=6, termination="none")


def test_what_a_policy_earns_in_each_member_is_known_exactly(problem):
    earned = member_returns(jax.random.key(0), Always(0.5), problem, BELIEF, problem.starts)
    np.testing.assert_allclose(earned * problem.reward_scale, [3.0, 6.0, -3.0], rtol=1e-4)


def test_gains_are_those_of_the_new_policy_in_whole_episodes(problem):
    found, before = gains(jax.random.key(0), Always(0.5), Always(-0.5), problem, BELIEF, 0.0)
    np.testing.assert_allclose(found * problem.reward_scale, [6.0, 12.0, -6.0], rtol=1e-4)
    np.testing.assert_allclose(before * problem.reward_scale, [-3.0, -6.0, 3.0], rtol=1e-4)


@pytest.mark.parametrize(
    ("gains", "expected"),
    [([1.0, 1.2, 0.8], 1), ([-1.0, -1.2, -0.8], -1), ([1.0, -1.2, 0.1], 0), ([1.0, 2.0, 0.2], 0), ([0.0, 0.0, 0.0], 0)],
)
def test_members_are_witnesses(gains, expected):
    found = float(evidence(jnp.asarray(gains), jnp.zeros(3)))
    assert (found > GAIN) - (found < LOSS) == expected


def test_evidence_is_in_standard_errors():
    none = jnp.zeros(2)
    np.testing.assert_allclose(evidence(jnp.asarray([1.0, 3.0]), none), 2.0 / 1.0, rtol=1e-5)
    np.testing.assert_allclose(evidence(jnp.asarray([-4.0, -2.0]), none), -3.0 / 1.0, rtol=1e-5)


def test_witnesses_who_agree_may_all_be_wrong_by_some_per_cent():
    gain = jnp.asarray([0.3, 0.3, 0.3])
    for returns, expected in (([10.0, -10.0, 10.0], 0.3 / (10.0 * SHARED_ERROR)), ([0.0, 0.0, 0.0], 3e8)):
        np.testing.assert_allclose(evidence(gain, jnp.asarray(returns)), expected, rtol=1e-3)


def leaning(actor, shift):
    """The same actor with its mean moved before the tanh."""
    size = actor.trunk.outputs // 2
    return eqx.tree_at(lambda a: a.trunk.biases[-1], actor, actor.trunk.biases[-1].at[:size].add(shift))


def members_who_pay(linear_pool, problem, wages):
    """s' = -s as before, and one member for each wage of an action."""
    weights = np.repeat([[[-2.0, 1.0], [0.0, 0.0]]], len(wages), axis=0)
    weights[:, 1, 1] = wages
    pool = linear_pool(weights, np.zeros((len(wages), 2)), log_std=-40.0)
    return eqx.tree_at(lambda p: p.world.pool, problem, pool)


@pytest.mark.parametrize(
    ("wages", "verdict"),
    [
        ([0.5, 0.5, 0.5, 0.5, 0.5], "gained"),
        ([-0.5, -0.5, -0.5, -0.5, -0.5], "lost"),
        ([-0.5, -0.4, -0.6, -0.4, 0.1], "lost"),
        ([-0.5, 0.4, -0.6, 0.4, -0.1], "open"),  # a loss, but the witnesses do not agree
    ],
)
def test_a_run_rolls_back_if_the_models_agree_that_it_has_lost(linear_pool, wages, verdict):
    """The new policy takes larger actions than the one before."""
    problem = members_who_pay(linear_pool, world_of_two_sides(linear_pool, doubt=0.0, ends=0.0), wages)
    algorithm = PhyB(dataclasses.replace(CONFIG, rollback=True), steps=10)
    start = algorithm.init(jax.random.key(0), problem)
    moved = leaning(start.actor, 1.0)
    late = start._replace(actor=moved, reference=SlowAverage.start(moved))
    after = jax.jit(algorithm.before_evaluation)(late, problem)
    for policy in (after.reference.average, after.actor):
        assert eqx.tree_equal(policy, start.actor if verdict == "lost" else moved)
    assert eqx.tree_equal(after.incumbent.actor, moved if verdict == "gained" else start.actor)
    assert float(after.incumbent.trust_region_scale) == (0.5 if verdict == "lost" else 1.0)
    assert (
        float(algorithm.before_evaluation(start, problem).incumbent.trust_region_scale) == 1.0
    )  # nothing has been tried yet
    assert eqx.tree_equal(PhyB(CONFIG, steps=10).before_evaluation(late, problem), late)
    last = jax.jit(algorithm.before_evaluation)(late._replace(step=jnp.asarray(10)), problem)
    assert eqx.tree_equal(last.reference.average, moved if verdict == "gained" else start.actor)
    before = late._replace(step=jnp.asarray(10), incumbent=late.incumbent._replace(improved=jnp.ones((), bool)))
    last = jax.jit(algorithm.before_evaluation)(before, problem)
    assert eqx.tree_equal(last.reference.average, start.actor if verdict == "lost" else moved), "it gained before"


def test_one_model_is_no_witness_and_the_start_is_deployed(linear_pool):
    problem = members_who_pay(linear_pool, world_of_two_sides(linear_pool, doubt=0.0, ends=0.0), [0.5])
    algorithm = PhyB(dataclasses.replace(CONFIG, rollback=True), steps=10)
    start = algorithm.init(jax.random.key(0), problem)
    late = start._replace(reference=SlowAverage.start(leaning(start.actor, 1.0)))
    on_the_way, last = (
        algorithm.before_evaluation(late._replace(step=jnp.asarray(step)), problem).reference.average
        for step in (5, 10)
    )
    assert eqx.tree_equal(on_the_way, late.reference.average)
    assert eqx.tree_equal(last, start.actor)
