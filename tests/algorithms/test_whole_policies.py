"""PhyB that judges whole policies by whole episodes: what it learns, and what it pays for."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_sides import CONFIG, world_of_two_sides

from phyb.algorithms.phyb import PhyB
from phyb.algorithms.pmdb import PMDBConfig
from phyb.algorithms.problem import make_problem
from phyb.belief.backup import BeliefConfig
from phyb.data.log import Log
from phyb.policy.policy import Policy

WHOLE = dataclasses.replace(
    CONFIG,
    belief=dataclasses.replace(CONFIG.belief, noise="none"),
    judge="episodes",
    policy_candidates=16,
    policy_directions=3,
    policy_spread=0.3,
    episode_steps=4,
    action_noise=0.1,
    step_size_scope="state",
    reference_rate=0.3,
    evaluation_steps=1,
)
PLACES = np.array([[-0.8], [0.0], [0.8]], np.float32)


@pytest.fixture(scope="module")
def algorithm():
    return PhyB(WHOLE, total_steps=1000)


@pytest.fixture(scope="module")
def update(algorithm):
    return jax.jit(algorithm.update)


@pytest.fixture(scope="module")
def sure(linear_pool):
    return world_of_two_sides(linear_pool, doubt=0.0, ends=0.0)


@pytest.fixture(scope="module")
def start(algorithm, sure):
    return algorithm.init(jax.random.key(0), sure)


def after(update, state, problem, count):
    told = {}
    for _ in range(count):
        state, told = update(state, problem)
    return state, told


def test_an_update_is_a_function_of_its_arguments(update, start, sure):
    one, other = update(start, sure), update(start, sure)
    assert eqx.tree_equal(one, other)
    assert int(one[0].step) == 1


def test_metrics_are_finite_and_tell_of_the_belief(update, start, linear_pool):
    _, told = after(update, start, world_of_two_sides(linear_pool, doubt=0.1, ends=0.2), 2)
    assert all(np.all(np.isfinite(value)) for value in told.values())
    np.testing.assert_allclose(told["weight_by_rank"].sum(), 1.0, rtol=1e-5)
    assert told["weight_by_rank"][2] == 0.0
    assert told["pessimism"] > 0
    assert told["doubt"] > 0


def test_the_evaluation_phase_leaves_the_policy_alone(algorithm, update, start, sure):
    evaluated, _ = update(start, sure)
    improved, _ = update(evaluated, sure)
    first, second, third = (algorithm.policy(state, sure).act(PLACES) for state in (start, evaluated, improved))
    np.testing.assert_allclose(second, first, atol=1e-6)
    assert np.any(np.abs(third - second) > 1e-3)


def test_the_policy_moves_to_the_better_action_and_only_its_last_layer_changes(algorithm, update, start, sure):
    state, _ = after(update, start, sure, 60)
    before, later = (algorithm.policy(s, sure).act(PLACES) for s in (start, state))
    assert np.all(later > before + 0.2)
    assert eqx.tree_equal(state.actor.trunk.weights[:-1], start.actor.trunk.weights[:-1])
    assert eqx.tree_equal((state.critics, state.value), (start.critics, start.value))


def test_a_step_goes_as_far_as_its_divergence(update, start, sure):
    state, told = after(update, start, sure, 3)
    assert float(told["divergence"]) == pytest.approx(WHOLE.target_divergence, rel=0.05)
    _, shy = update(state._replace(boldness=jnp.asarray(0.25)), sure)
    assert float(shy["divergence"]) == pytest.approx(0.25 * WHOLE.target_divergence, rel=0.05)


def trap(linear_pool, *, members):
    """Larger actions are paid at once; beyond a state of 2 an episode ends. A clone that does 0 stays at 0."""
    rng, bound, rows = np.random.default_rng(0), np.ones(1, np.float32), 300
    states = rng.uniform(-1, 1, (rows, 1)).astype(np.float32)
    actions = rng.normal(0, 0.3, (rows, 1)).clip(-1, 1).astype(np.float32)
    ends = np.arange(rows) % 10 == 9
    log = Log(states, actions, 1 + actions[:, 0], states + actions, np.zeros(rows, bool), ends, -bound, bound)
    pool = linear_pool(members, np.tile([0.0, 1.0], (len(members), 1)))
    falls = lambda before, action, after: after[..., 0] > 2.0  # noqa: E731
    return make_problem(log, pool, discount=0.5, horizon=30, termination=falls)


def mean_action(state, problem):
    policy = Policy(state.reference.average, problem.standardizer, problem.action_low, problem.action_high)
    return float(np.mean(policy.act(np.asarray(problem.starts))))


def test_an_end_that_lies_far_beyond_the_discount_is_felt(linear_pool):
    """s' = s + a and r = 1 + a: ten steps of 0.2 pay 12 and end there, thirty of 0 in the end pay 30."""
    members = [[[0.0, 0.0], [1.0, 1.0]]] * 3
    config = dataclasses.replace(WHOLE, episode_steps=30, action_noise=0.0, target_divergence=1.0, doubt_cost=0.0)
    problem = trap(linear_pool, members=members)
    lived = {}
    for steps in (2, 30):
        algorithm = PhyB(dataclasses.replace(config, episode_steps=steps), total_steps=1000)
        state, _ = after(jax.jit(algorithm.update), algorithm.init(jax.random.key(0), problem), problem, 40)
        policy, here = algorithm.policy(state, problem), np.asarray(problem.starts)
        alive = np.ones(len(here), bool)
        for _ in range(30):
            here = here + policy.act(here)
            alive &= here[:, 0] <= 2.0
        lived[steps] = alive.mean()
    assert lived[2] == 0.0, "who sees two steps takes what is paid at once"
    assert lived[30] > 0.9, "who sees the whole episode does not fall"


def test_doubt_keeps_the_policy_where_members_agree(linear_pool):
    """All members pay for larger actions, and differ in where these lead the more the larger they are."""
    members = [[[-1.0, 0.0], [drift, 1.0]] for drift in (-1.0, 0.0, 1.0)]
    problem = trap(linear_pool, members=members)
    found = {}
    for cost in (0.0, 5.0):
        config = dataclasses.replace(WHOLE, doubt_cost=cost, belief=BeliefConfig(3, 3, noise="none"))
        algorithm = PhyB(config, total_steps=1000)
        state, _ = after(jax.jit(algorithm.update), algorithm.init(jax.random.key(0), problem), problem, 40)
        found[cost] = mean_action(state, problem)
    assert found[0.0] > 0.6
    assert abs(found[5.0]) < 0.25


def test_pmdb_has_no_rollouts_that_could_stray():
    with pytest.raises(ValueError, match="stray_probability"):
        PMDBConfig(judge="episodes", stray_probability=0.1)
