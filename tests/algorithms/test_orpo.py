"""ORPO: what each of the two policies is paid for the same imagined step, and who learns from what."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.algorithms import td3
from phyb.algorithms.model_sac import ModelSAC
from phyb.algorithms.orpo import ORPO, ORPOConfig, disagreement
from phyb.algorithms.problem import make_problem
from phyb.algorithms.settings import preset
from phyb.errors import UsageError

SMALL = ORPOConfig(policy_hidden=(4,), batch_size=20, rollout_starts=16, rollout_length=2, optimist_length=1,
                   rollout_every=2, real_fraction=0.1, own_fraction=0.4, bonus=0.5, uncertainty_weight=2.0,
                   reward_units="range")  # fmt: skip


@pytest.fixture(scope="module")
def problem(linear_log, linear_pool):
    """Three members that differ, the worst of them the most; two are followed."""
    generator = np.random.default_rng(0)
    weights, biases = 0.3 * generator.normal(size=(3, 4, 4)), 0.3 * generator.normal(size=(3, 4))
    biases[0] += 2.0
    pool = linear_pool(weights, biases, log_std=-1.0, holdout_nll=[2.0, 0.0, 1.0])
    return make_problem(linear_log(episodes=40, steps=5), pool, discount=0.9, horizon=5, termination="none")


@pytest.fixture(scope="module")
def algorithm():
    return ORPO(dataclasses.replace(SMALL, elites=2), steps=10)


@pytest.fixture(scope="module")
def filled(algorithm, problem):
    """The state after one round of rollouts."""
    state = jax.jit(algorithm.init)(jax.random.key(0), problem)
    return jax.jit(lambda state: algorithm.imagine(jax.random.key(1), state, problem))(state)


def expected_disagreement(world, rows):
    means = np.asarray(world.predict(jnp.arange(3), rows.observations, rows.actions).next_mean, np.float64)
    return np.sqrt(np.mean(np.var(means, axis=0), axis=-1))


def test_uncertainty_is_the_spread_of_the_means_of_all_members(problem):
    world, rows = problem.learned_world(), problem.rows
    found = disagreement(world, rows.observations, rows.actions)
    np.testing.assert_allclose(found, expected_disagreement(world, rows), rtol=1e-4)


def test_members_that_agree_leave_nothing_to_be_optimistic_or_pessimistic_about(linear_log, linear_pool):
    alike = linear_pool(np.zeros((2, 4, 4)), np.ones((2, 4)), log_std=1.0)
    problem = make_problem(linear_log(episodes=10, steps=5), alike, discount=0.9, horizon=5, termination="none")
    np.testing.assert_array_equal(disagreement(problem.learned_world(), *problem.rows[:2]), 0.0)


def test_both_buffers_hold_the_reward_of_the_models_and_one_uncertainty(problem, filled):
    assert (int(filled.own.filled), int(filled.others.filled)) == (16 * 2, 16 * 1)
    for buffer in (filled.own, filled.others):
        rows, uncertainty = jax.tree.map(lambda leaf, count=int(buffer.filled): leaf[:count], buffer.rows)
        np.testing.assert_allclose(uncertainty, expected_disagreement(problem.learned_world(), rows), rtol=1e-3)
    own, others = (np.asarray(buffer.rows[0].observations[:16]) for buffer in (filled.own, filled.others))
    np.testing.assert_array_equal(own, others)  # from the same states


def test_own_rollouts_follow_the_mean_action_with_noise(algorithm, problem, filled):
    rows, _ = filled.own.rows
    mode = filled.actor.mode(problem.standardizer(rows.observations))
    noise = np.asarray(rows.actions - mode)
    assert 0.02 < np.std(noise) < 0.2  # 0.1, cut off at the bounds
    assert np.all(np.abs(rows.actions) <= 1.0)


def test_the_two_are_paid_apart_by_both_weights_times_the_uncertainty(algorithm, problem, filled):
    imagined = filled.own.rows
    bonus, penalty = (algorithm.paid(problem, imagined, weight).rewards for weight in (0.5, -2.0))
    expected = (0.5 + 2.0) * imagined[1] / problem.reward_scale
    np.testing.assert_allclose(bonus - penalty, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(algorithm.paid(problem, imagined, 0.0).rewards, imagined[0].rewards, rtol=1e-6)


@pytest.fixture(scope="module")
def batches(algorithm, problem, filled):
    """The batches that the optimist and the pessimist learn from in one update."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ModelSAC,
            "learn",
            lambda self, agent, key, rows, problem: (agent, {"entropy": rows, "temperature": jnp.zeros(())}),
        )
        patch.setattr(td3, "learn", lambda c, o, state, key, rows, *more: (state, {"q_logged": 0.0, "rows": rows}))
        _, told = jax.jit(lambda state: algorithm.update(state, problem))(filled._replace(step=jnp.ones((), int)))
    return told["entropy"], told["rows"]


def source(rows, problem, buffer):
    """For each row of a batch, where in the buffer it is, or -1."""
    known = np.asarray(problem.standardizer(buffer.rows[0].next_observations))
    same = np.all(np.abs(np.asarray(rows.next_observations)[:, None] - known[None]) < 1e-5, axis=-1)
    return np.where(same.any(axis=1), same.argmax(axis=1), -1)


def test_batches_mix_the_log_and_both_kinds_of_rollouts(problem, filled, batches):
    optimist, pessimist = batches
    np.testing.assert_array_equal(source(optimist, problem, filled.others) >= 0, np.arange(20) >= 2)
    np.testing.assert_array_equal(
        source(pessimist, problem, filled.own) >= 0, (np.arange(20) >= 2) & (np.arange(20) < 10)
    )
    np.testing.assert_array_equal(source(pessimist, problem, filled.others) >= 0, np.arange(20) >= 10)


def test_the_pessimist_never_sees_the_bonus_and_the_log_is_paid_as_it_is(problem, filled, batches):
    optimist, pessimist = batches
    logged = np.asarray(problem.rows.rewards)
    for rows, weight, buffers in ((optimist, 0.5, [filled.others]), (pessimist, -2.0, [filled.own, filled.others])):
        found = np.asarray(rows.rewards)
        assert np.all(np.min(np.abs(found[:2, None] - logged), axis=1) < 1e-6)
        for buffer in buffers:
            place = source(rows, problem, buffer)
            (stored, uncertainty), there = buffer.rows, place >= 0
            expected = stored.rewards + weight * uncertainty / problem.reward_scale
            np.testing.assert_allclose(found[there], np.asarray(expected)[place[there]], rtol=1e-4, atol=1e-6)


def test_both_policies_learn_and_the_pessimist_is_deployed(algorithm, problem, filled):
    step = jax.jit(lambda state: algorithm.update(state, problem))
    state, told = step(filled)
    state, told = step(state)

    def moved(before, after):
        return any(
            not np.array_equal(one, other) for one, other in zip(*map(jax.tree.leaves, (before, after)), strict=True)
        )

    assert moved(filled.optimist.actor, state.optimist.actor)  # which the released code forgets
    assert moved(filled.pessimist.actor, state.pessimist.actor)
    assert state.actor is state.pessimist.actor
    assert float(told["charge"]) > 0.0
    assert int(state.others.filled) == 32  # a round at the first of these two updates, and none at the second


@pytest.mark.parametrize("change", [{"bonus": -1.0}, {"uncertainty_weight": -1.0}, {"own_fraction": 1.5}])
def test_settings_of_orpo_that_make_no_sense_are_refused(change):
    with pytest.raises(UsageError, match=next(iter(change))):
        ORPO(**change)


def test_there_are_never_more_own_rows_than_imagined_ones():
    assert dataclasses.replace(SMALL, own_fraction=1.0).own_rows == 18
    assert dataclasses.replace(SMALL, own_fraction=0.0).own_rows == 0


def test_published_settings_of_orpo_follow_the_dataset():
    def of(dataset):
        agent = preset("paper", "orpo", dataset=dataset).agent
        return agent.uncertainty_weight, agent.rollout_length, agent.optimist_length

    assert of("halfcheetah-random") == (6.64, 5, 5)
    assert of("walker2d-full-replay") == of("walker2d-medium-replay") == (2.48, 1, 1)
