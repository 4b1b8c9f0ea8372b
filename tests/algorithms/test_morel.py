"""MOReL's pessimistic world: how far models lie apart, where rollouts halt, and what that costs."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.algorithms.model_sac import ModelSAC
from phyb.algorithms.morel import MOReL, MOReLConfig, discrepancy
from phyb.algorithms.problem import make_problem
from phyb.algorithms.settings import preset
from phyb.errors import UsageError
from phyb.world.rollout import ROWS, rollout

SMALL = MOReLConfig(policy_hidden=(4,), batch_size=8, rollout_starts=8, rollout_length=2, critics=3, elites=1)


@pytest.fixture(scope="module")
def problem(linear_log, linear_pool):
    """Three members whose noise is large and whose means differ; the best of them is followed."""
    generator = np.random.default_rng(0)
    weights, biases = 0.3 * generator.normal(size=(3, 4, 4)), 0.3 * generator.normal(size=(3, 4))
    pool = linear_pool(weights, biases, log_std=1.0, holdout_nll=[2.0, 0.0, 1.0])
    return make_problem(linear_log(episodes=40, steps=5), pool, discount=0.9, horizon=5, termination="none")


@pytest.fixture(scope="module")
def state(problem):
    return jax.jit(MOReL(SMALL, steps=10).init)(jax.random.key(0), problem)


def test_it_is_the_largest_distance_of_two_members_on_the_same_row(problem):
    world, rows = problem.learned_world(), problem.rows
    found = discrepancy(world, rows.observations, rows.actions)
    means = np.asarray(world.predict(jnp.arange(3), rows.observations, rows.actions).next_mean, np.float64)
    pairs = [np.linalg.norm(means[i] - means[j], axis=-1) for i, j in itertools.combinations(range(3), 2)]
    np.testing.assert_allclose(found, np.max(pairs, axis=0), rtol=1e-4)
    # Neither a mean over pairs, nor a distance between what is expected of different rows.
    assert np.all(np.asarray(found) > np.mean(pairs, axis=0))
    alone = discrepancy(world, rows.observations[:1], rows.actions[:1])
    np.testing.assert_allclose(found[:1], alone, rtol=1e-5)


def test_members_that_agree_never_halt_a_rollout(linear_log, linear_pool, state):
    alike = linear_pool(np.zeros((2, 4, 4)), np.ones((2, 4)), log_std=1.0)
    problem = make_problem(linear_log(episodes=10, steps=5), alike, discount=0.9, horizon=5, termination="none")
    np.testing.assert_array_equal(discrepancy(problem.learned_world(), *problem.rows[:2]), 0.0)
    rows, _ = halting(problem, state, 1.0)
    np.testing.assert_array_equal(rows.terminated, 0.0)


@pytest.fixture(scope="module")
def middle(problem):
    """The threshold that half of the log is below."""
    found = discrepancy(problem.learned_world(), *problem.rows[:2])
    return float(jnp.median(found) / jnp.max(found))


def halting(problem, state, threshold, kind: type[ModelSAC] = MOReL):
    """One step from logged rows with actions of the log, and how likely each rollout goes on."""
    algorithm = kind(dataclasses.replace(SMALL, halt_threshold=threshold), steps=10)
    state = state._replace(known=MOReL(algorithm.config, steps=10).prepare(problem))
    step = eqx.filter_jit(algorithm.step)
    rows = problem.rows
    moved = step(jax.random.key(1), state, problem, rows.observations, rows.actions, jnp.ones(len(rows.rewards)))
    return moved.row, np.asarray(moved.survival)


def test_the_threshold_is_a_share_of_the_largest_discrepancy_of_the_log(problem, state, middle):
    found = np.asarray(discrepancy(problem.learned_world(), *problem.rows[:2]))
    assert float(state.known) == pytest.approx(found.max(), rel=1e-5)
    halted = []
    for threshold in (0.0, middle, 1.1):
        rows, survival = halting(problem, state, threshold)
        np.testing.assert_array_equal(rows.terminated > 0, found > threshold * found.max())
        np.testing.assert_array_equal(survival, 1.0 - rows.terminated)
        halted.append(float(jnp.mean(rows.terminated)))
    assert halted == pytest.approx([1.0, 0.5, 0.0], abs=0.01)


def test_halting_is_terminal_and_earns_less_than_any_logged_step(problem, state, middle):
    (rows, _), (plain, _) = halting(problem, state, middle), halting(problem, state, middle, ModelSAC)
    halts = np.asarray(rows.terminated) > 0
    assert 0 < halts.sum() < len(halts)
    lowest = float(jnp.min(problem.rows.rewards) * problem.reward_scale)
    np.testing.assert_allclose(rows.rewards[halts] * problem.reward_scale, lowest - 200.0, rtol=1e-5)
    np.testing.assert_array_equal(rows.rewards[~halts], plain.rewards[~halts])
    np.testing.assert_array_equal(rows.next_observations, plain.next_observations)


def test_a_rollout_that_halted_counts_no_further(problem, state, middle):
    algorithm = MOReL(dataclasses.replace(SMALL, halt_threshold=middle), steps=10)
    state = state._replace(known=algorithm.prepare(problem))

    @eqx.filter_jit
    def roll(problem):
        def step(key, observations, actions, alive):
            return algorithm.step(key, state, problem, observations, actions, alive)

        actions = jnp.zeros((3, 100, 1))
        starts = problem.rows.observations[:100]
        return rollout(jax.random.key(0), starts, actions, step, length=3, record=ROWS, hold=False).kept

    rows, counts = roll(problem)
    ends = np.asarray(rows.terminated) > 0
    before = np.cumsum(np.pad(ends, ((1, 0), (0, 0)))[:-1], axis=0)
    np.testing.assert_array_equal(counts, before == 0)
    assert 0 < np.sum(~counts) < counts.size


def test_the_least_of_all_critics_counts(state):
    assert state.sac.critics(jnp.zeros((5, 3)), jnp.zeros((5, 1))).shape == (3, 5)


@pytest.mark.parametrize("change", [{"halt_offset": 1.0}, {"halt_threshold": -1.0}])
def test_settings_of_morel_that_make_no_sense_are_refused(change):
    with pytest.raises(UsageError, match=next(iter(change))):
        MOReL(**change)


def test_the_one_published_threshold_is_that_of_its_dataset():
    assert preset("paper", "morel", dataset="hopper-medium").agent.halt_threshold == pytest.approx(1 / 3)
    assert preset("paper", "morel", dataset="hopper-expert").agent.halt_threshold == 1.0
