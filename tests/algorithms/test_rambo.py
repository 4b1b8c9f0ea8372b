"""RAMBO's adversary: its density, its advantage, and which outcomes become less likely."""

import dataclasses
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_networks import ACTIONS, OBSERVATIONS, both_values, mean_action, some_rows
from scipy.stats import norm

from phyb.algorithms import sac
from phyb.algorithms.model_sac import ModelSAC
from phyb.algorithms.problem import make_problem
from phyb.algorithms.rambo import RAMBO, RAMBOConfig, advantages, log_loss, mixture_log_density
from phyb.networks import Standardizer

SMALL = RAMBOConfig(policy_hidden=(8,), batch_size=8, rollout_starts=16, rollout_length=2, rollout_every=4, elites=2,
                    clone_steps=0, adversary_batch_size=64)  # fmt: skip


@pytest.fixture(scope="module")
def problem(linear_log, linear_pool):
    generator = np.random.default_rng(0)
    weights, biases = 0.3 * generator.normal(size=(3, 4, 4)), 0.3 * generator.normal(size=(3, 4))
    stds = np.log(generator.uniform(0.5, 2.0, (3, 4)))
    pool = linear_pool(weights, biases, log_std=stds, holdout_nll=[2.0, 0.0, 1.0])
    scale = jnp.array([1.0, 0.5, 0.0, 2.0])  # the third number of a state never changes
    pool = dataclasses.replace(pool, outputs=Standardizer(jnp.array([0.1, 0.0, 0.0, 0.3]), scale))
    return make_problem(linear_log(episodes=30, steps=5), pool, discount=0.9, horizon=5, termination="none")


def test_the_density_is_that_of_the_mixture_and_not_the_mean_of_logarithms(problem):
    rows, pool = jax.tree.map(lambda leaf: leaf[:5], problem.rows), problem.world.pool
    told = pool.predict(jnp.arange(3), rows.observations, problem.world.env_action(rows.actions))
    density = np.zeros((3, 5))
    for member in range(3):
        of_state = norm.pdf(rows.next_observations, told.next_mean[member], np.maximum(told.next_std[member], 1e-30))
        of_reward = norm.pdf(rows.rewards * problem.reward_scale, told.reward_mean[member], told.reward_std[member])
        density[member] = of_state[:, 0] * of_state[:, 1] * of_reward
    expected = np.log(density.mean(axis=0)) + np.log(1.0 * 0.5 * 2.0)  # of numbers divided by their scales
    np.testing.assert_allclose(mixture_log_density(problem.world, rows), expected, rtol=1e-3, atol=1e-4)
    assert np.max(np.abs(np.log(density).mean(axis=0) - np.log(density.mean(axis=0)))) > 0.1


def test_advantages_are_standardised_temporal_differences():
    agent, rows = sac.init(sac.SACConfig(hidden=(5,)), jax.random.key(0), OBSERVATIONS, ACTIONS), some_rows()
    then = both_values(agent.critics, rows.next_observations, mean_action(agent.actor, rows.next_observations))
    now = both_values(agent.critics, rows.observations, rows.actions).min(axis=0)
    raw = np.asarray(rows.rewards) + 0.9 * (1 - np.asarray(rows.terminated)) * then.min(axis=0) - now
    np.testing.assert_allclose(advantages(agent, rows, 0.9), (raw - raw.mean()) / raw.std(), rtol=1e-3, atol=1e-4)


def test_outcomes_above_the_average_become_less_likely(linear_log, linear_pool):
    # Member 0 says that everything pays 1, member 1 that it pays -1; nothing else happens.
    pool = linear_pool(np.zeros((2, 4, 4)), [[0, 0, 0, 1.0], [0, 0, 0, -1.0]], log_std=np.log(0.5))
    problem = make_problem(linear_log(episodes=30, steps=5), pool, discount=0.9, horizon=5, termination="none")
    algorithm = RAMBO(dataclasses.replace(SMALL, adversary_weight=1e6), steps=100)  # the log has no say
    state = algorithm.init(jax.random.key(0), problem)
    silent = jax.tree.map(jnp.zeros_like, state.agent.sac.critics)  # values of 0: the reward alone is the advantage
    agent = state.agent._replace(sac=state.agent.sac._replace(critics=silent))
    state = state._replace(agent=agent)
    after = state
    attack = jax.jit(lambda state: algorithm.attack(state, problem)[0])
    for _ in range(20):
        after = attack(after)

    rows = jax.tree.map(lambda leaf: leaf[:2], problem.rows)
    rows = rows._replace(next_observations=rows.observations, rewards=jnp.array([1.0, -1.0]) / problem.reward_scale)
    before, later = (
        mixture_log_density(algorithm.against(s.members, problem).world, rows)  # pyright: ignore[reportArgumentType]
        for s in (state, after)
    )
    good, bad = np.asarray(later - before)
    assert good < 0.0 < bad
    told = algorithm.against(after.members, problem).world.pool.predict(  # pyright: ignore[reportOptionalMemberAccess]
        jnp.arange(2), rows.observations, rows.actions
    )
    assert float(jnp.mean(told.reward_mean)) < 0.0


def test_without_weight_the_models_only_fit_the_log_better(problem):
    algorithm = RAMBO(dataclasses.replace(SMALL, adversary_weight=0.0, adversary_learning_rate=3e-3), steps=100)
    state = algorithm.init(jax.random.key(0), problem)
    step = jax.jit(lambda state: algorithm.attack(state, problem)[0])
    after = state
    for _ in range(100):
        after = step(after)
    before, later = (
        log_loss(algorithm.against(s.members, problem).world, problem.rows)  # pyright: ignore[reportArgumentType]
        for s in (state, after)
    )
    assert np.all(np.asarray(later) < np.asarray(before))


def first_bias(members):
    return members.trunk.biases[0]


def test_the_elites_learn_in_turn_with_the_policy_and_the_pool_stays(problem):
    algorithm = RAMBO(dataclasses.replace(SMALL, adversary_every=2), steps=100)
    states, told = [algorithm.init(jax.random.key(0), problem)], {}
    biases = first_bias(problem.world.pool.members)
    np.testing.assert_array_equal(first_bias(states[0].members), biases[jnp.array([1, 2])])
    update = jax.jit(lambda state: algorithm.update(state, problem))
    for _ in range(4):
        state, told = update(states[-1])
        states.append(state)
    models = [np.asarray(first_bias(state.members)) for state in states]
    assert [bool(np.any(a != b)) for a, b in itertools.pairwise(models)] == [False, True, False, True]
    policies = [np.asarray(state.actor.trunk.biases[0]) for state in states]
    assert all(np.any(a != b) for a, b in itertools.pairwise(policies))
    assert set(told) >= {"model_loss", "adversary_loss", "q_logged", "q_imagined"}
    np.testing.assert_array_equal(first_bias(problem.world.pool.members), biases)


def test_rollouts_follow_the_models_as_they_are_now(problem):
    algorithm = RAMBO(SMALL, steps=100)
    members = jax.tree.map(lambda leaf: leaf[:2], problem.world.pool.members)
    moved = eqx.tree_at(lambda m: m.trunk.biases[0], members, replace_fn=lambda bias: bias.at[:, 0].add(7.0))
    rows = jax.tree.map(lambda leaf: leaf[:6], problem.rows)
    agent: Any = None  # rollouts of this algorithm do not ask it

    @eqx.filter_jit
    def step(problem):
        alive = jnp.ones(6)
        return ModelSAC(algorithm.settings).step(
            jax.random.key(0), agent, problem, rows.observations, rows.actions, alive
        )

    one, two = (step(algorithm.against(each, problem))[0].next_observations for each in (members, moved))
    np.testing.assert_allclose(two[:, 0] - one[:, 0], 7.0, rtol=1e-4)
