"""PhyB that judges by slopes: paths inside the models, a value learned along them, and steps that follow."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_sides import CONFIG, DISCOUNT, world_of_two_sides

from phyb.algorithms.along_paths import STEEPEST, bounded
from phyb.algorithms.phyb import PhyB, PhyBConfig

SLOPE = dataclasses.replace(
    CONFIG,
    belief=dataclasses.replace(CONFIG.belief, noise="none"),
    judge="slope",
    value_of="deployed",
    lookahead=4,
    path_rows=64,
    rollout_length=12,
)


@pytest.fixture(scope="module")
def algorithm():
    return PhyB(SLOPE, total_steps=1000)


@pytest.fixture(scope="module")
def update(algorithm):
    return jax.jit(algorithm.update)


@pytest.fixture(scope="module")
def sure(linear_pool):
    return world_of_two_sides(linear_pool, doubt=0.0, ends=0.0)


@pytest.fixture(scope="module")
def start(algorithm, sure):
    return algorithm.init(jax.random.key(0), sure)


@pytest.fixture(scope="module")
def trained(update, start, sure):
    state = start
    for _ in range(400):
        state, told = update(state, sure)
    return state, told


def test_an_update_is_a_function_of_its_arguments(update, start, sure):
    one, other = update(start, sure), update(start, sure)
    assert eqx.tree_equal(one, other)
    assert int(one[0].step) == 1


def test_metrics_are_finite_and_tell_of_the_belief(update, start, linear_pool):
    _, told = update(start, world_of_two_sides(linear_pool, doubt=0.1, ends=0.2))
    assert all(np.all(np.isfinite(value)) for value in told.values())
    np.testing.assert_allclose(told["weight_by_rank"].sum(), 1.0, rtol=1e-5)
    assert told["weight_by_rank"][2] == told["chosen_by_rank"][2] == 0.0
    assert told["pessimism"] > 0


def test_the_evaluation_phase_teaches_the_value_and_leaves_the_policy_alone(update, start, sure):
    evaluated, _ = update(start, sure)
    improved, _ = update(start._replace(step=jnp.asarray(SLOPE.evaluation_steps)), sure)
    assert eqx.tree_equal(evaluated.actor, start.actor)
    assert not eqx.tree_equal(evaluated.value, start.value)
    assert not eqx.tree_equal(improved.actor, start.actor)
    assert eqx.tree_equal(evaluated.critics, start.critics)


def test_the_policy_moves_to_the_better_action_and_the_value_is_its_own(algorithm, trained, start, sure):
    state, _ = trained
    places = np.array([[-0.8], [0.0], [0.8]], np.float32)
    before, after = (algorithm.policy(s, sure).act(places) for s in (start, state))
    assert np.all(after > before + 0.2)
    # V(s) - V(-s) = 2 s / (1 + gamma) under a policy whose action is the same on both sides.
    learned = state.slow_value(sure.standardizer(jnp.asarray(places)))[:,] * sure.reward_scale
    assert float(learned[2] - learned[0]) == pytest.approx(1.6 / (1 + DISCOUNT), rel=0.15)


def test_rollouts_go_on_along_paths_and_begin_where_episodes_do(update, start, sure):
    state, ages = start, []
    for _ in range(4):
        state, _ = update(state, sure)
        ages.append(np.asarray(state.rollout_age))
    np.testing.assert_array_equal(np.stack(ages)[:, 0], [4, 8, 0, 4])  # twelve steps are the most
    fresh, _ = update(start._replace(rollout_age=jnp.full(SLOPE.rollouts, 11)), sure)
    assert np.all(np.isin(np.asarray(fresh.rollouts), np.asarray(sure.starts)))


def test_slopes_are_bounded_by_their_median_and_nothing_is_made_of_what_is_no_number():
    slopes = jnp.array([[1.0, 0.0], [0.0, -1.0], [1.0, 0.0], [3e4, 4e4], [jnp.nan, 1.0]])
    found = np.asarray(bounded(slopes))
    np.testing.assert_array_equal(found[:3], slopes[:3])
    np.testing.assert_allclose(found[3], [0.6 * STEEPEST, 0.8 * STEEPEST], rtol=1e-6)
    np.testing.assert_array_equal(found[4], 0.0)


@pytest.mark.parametrize("changes", [{"value_of": "mirror"}, {"value_estimator": "direct"}, {"trace": 0.0}])
def test_settings_that_slopes_cannot_have_are_refused(changes):
    with pytest.raises(ValueError, match=r"needs|must"):
        PhyBConfig(**{"judge": "slope", "value_of": "deployed"} | changes)
