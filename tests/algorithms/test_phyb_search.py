"""The search over whole policies: what it learns, what it pays for, and what it refuses."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_sides import world_of_two_sides

from phyb.algorithms.phyb_search import PhyBSearch, PhyBSearchConfig
from phyb.algorithms.problem import make_problem
from phyb.belief.backup import BeliefConfig
from phyb.data.log import Log
from phyb.policy.policy import Policy

CONFIG = PhyBSearchConfig(
    belief=BeliefConfig(ensemble_size=3, subset_size=2, noise_samples=1, noise="none"),
    target_divergence=0.5,
    final_divergence=1.0,
    policy_candidates=16,
    policy_directions=3,
    policy_spread=0.3,
    episode_steps=4,
    action_noise=0.1,
    policy_hidden=(8,),
    reference_rate=0.3,
    clone_steps=200,
    rollback=False,
)
PLACES = np.array([[-0.8], [0.0], [0.8]], np.float32)


@pytest.fixture(scope="module")
def algorithm():
    return PhyBSearch(CONFIG, steps=1000)


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
    assert told["disagreement"] > 0


def test_the_policy_moves_to_the_better_action_and_only_its_last_layer_changes(algorithm, update, start, sure):
    state, _ = after(update, start, sure, 60)
    before, later = (algorithm.policy(s, sure).act(PLACES) for s in (start, state))
    assert np.all(later > before + 0.2)
    assert eqx.tree_equal(state.actor.trunk.weights[:-1], start.actor.trunk.weights[:-1])


def test_a_step_goes_as_far_as_its_divergence(update, start, sure):
    state, told = after(update, start, sure, 3)
    assert float(told["divergence"]) == pytest.approx(CONFIG.target_divergence, rel=0.05)
    _, shy = update(state._replace(incumbent=state.incumbent._replace(trust_region_scale=jnp.asarray(0.25))), sure)
    assert float(shy["divergence"]) == pytest.approx(0.25 * CONFIG.target_divergence, rel=0.05)


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
    config = dataclasses.replace(
        CONFIG, episode_steps=30, action_noise=0.0, target_divergence=1.0, disagreement_penalty=0.0
    )
    problem = trap(linear_pool, members=members)
    lived = {}
    for steps in (2, 30):
        algorithm = PhyBSearch(dataclasses.replace(config, episode_steps=steps), steps=1000)
        state, _ = after(jax.jit(algorithm.update), algorithm.init(jax.random.key(0), problem), problem, 40)
        policy, here = algorithm.policy(state, problem), np.asarray(problem.starts)
        alive = np.ones(len(here), bool)
        for _ in range(30):
            here = here + policy.act(here)
            alive &= here[:, 0] <= 2.0
        lived[steps] = alive.mean()
    assert lived[2] == 0.0, "who sees two steps takes what is paid at once"
    assert lived[30] > 0.9, "who sees the whole episode does not fall"


def test_the_disagreement_penalty_keeps_the_policy_where_members_agree(linear_pool):
    """All members pay for larger actions, and differ in where these lead the more the larger they are."""
    members = [[[-1.0, 0.0], [drift, 1.0]] for drift in (-1.0, 0.0, 1.0)]
    problem = trap(linear_pool, members=members)
    found = {}
    for cost in (0.0, 5.0):
        config = dataclasses.replace(
            CONFIG, disagreement_penalty=cost, belief=BeliefConfig(3, 3, noise_samples=1, noise="none")
        )
        algorithm = PhyBSearch(config, steps=1000)
        state, _ = after(jax.jit(algorithm.update), algorithm.init(jax.random.key(0), problem), problem, 40)
        found[cost] = mean_action(state, problem)
    assert found[0.0] > 0.6
    assert abs(found[5.0]) < 0.25


def test_the_divergence_falls_over_a_run(start, sure):
    algorithm = PhyBSearch(dataclasses.replace(CONFIG, final_divergence=0.2), steps=10)
    _, told = algorithm.update(start._replace(step=jnp.asarray(10)), sure)
    assert float(told["divergence"]) == pytest.approx(0.2 * CONFIG.target_divergence, rel=0.05)


def test_a_run_without_a_clear_gain_goes_back_to_its_start_and_uses_no_key_twice(linear_pool):
    problem = world_of_two_sides(linear_pool, doubt=0.0, ends=0.0)
    algorithm = PhyBSearch(dataclasses.replace(CONFIG, rollback=True), steps=10)
    start = algorithm.init(jax.random.key(0), problem)
    state, _ = algorithm.update(start, problem)
    weak = state._replace(reference=start.reference, step=jnp.asarray(10))
    ended = algorithm.before_evaluation(weak, problem)
    assert eqx.tree_equal(ended.reference.average, start.actor)
    assert eqx.tree_equal(ended.actor, start.actor)
    assert not np.array_equal(jax.random.key_data(ended.key), jax.random.key_data(weak.key))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"policy_candidates": 15}, "policy_candidates must be even"),
        ({"belief": BeliefConfig(3, 2, noise_samples=1, noise="private")}, "common random numbers"),
        ({"belief": BeliefConfig(3, 2, noise_samples=2)}, "noise_samples must be 1"),
    ],
)
def test_settings_that_the_search_cannot_respect_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(CONFIG, **change)
