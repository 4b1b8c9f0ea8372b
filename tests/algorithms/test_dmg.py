"""DMG against a reference in NumPy, its two limits, and where its parts may be mixed up."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_networks import ACTIONS, OBSERVATIONS, both_values, log_of, mean_action, mlp, some_rows

from phyb.algorithms import td3
from phyb.algorithms.base import logged_rows
from phyb.algorithms.bc import cloning_error
from phyb.algorithms.dmg import DMG, DMGConfig, actor_loss
from phyb.algorithms.problem import make_problem
from phyb.algorithms.settings import preset
from phyb.errors import UsageError
from phyb.networks import move_towards
from phyb.policy.critics import Critics

CONFIG = DMGConfig(
    policy_hidden=(5,), batch_size=16, target_noise=0.0, actor_every=1, largest_weight=0.5, target_rate=0.5
)


@pytest.fixture(scope="module")
def problem():
    return make_problem(log_of(some_rows(count=40)), None, discount=0.9, horizon=5)


@pytest.fixture(scope="module")
def steps(problem):
    """Some state, the rows of its update, and what the update makes of it."""
    algorithm = DMG(CONFIG, steps=100)
    state = algorithm.init(jax.random.key(0), problem)
    # Target critics of their own, so that taking one for the other shows.
    other = Critics(jax.random.key(5), OBSERVATIONS, ACTIONS, (5,))
    state = state._replace(td3=state.td3._replace(target_critics=other))
    after, told = jax.jit(algorithm.update)(state, problem)
    return state, logged_rows(jax.random.split(state.td3.key)[1], problem, CONFIG), after, told


def test_one_update_has_the_losses_of_the_paper(steps):
    state, rows, after, told = steps
    logged = both_values(state.td3.target_critics, rows.observations, rows.actions).min(axis=0)
    gaps = logged - mlp(state.value.network, rows.observations)[:, 0]
    assert float(told["value_loss"]) == pytest.approx(np.mean(np.abs(0.7 - (gaps < 0)) * gaps**2), rel=1e-4)

    # The value comes first: critics and weights use what it has become.
    policy = mean_action(state.td3.target_actor, rows.next_observations)
    beyond = both_values(state.td3.target_critics, rows.next_observations, policy).min(axis=0)
    within = mlp(after.value.network, rows.next_observations)[:, 0]
    alive = 1.0 - np.asarray(rows.terminated)
    target = np.asarray(rows.rewards) + 0.9 * alive * (0.25 * beyond + 0.75 * within)
    errors = both_values(state.td3.critics, rows.observations, rows.actions) - target
    assert float(told["critic_loss"]) == pytest.approx(np.sum(np.mean(errors**2, axis=1)), rel=1e-4)

    advantage = logged - mlp(after.value.network, rows.observations)[:, 0]
    weights = np.minimum(np.exp(3.0 * advantage), 0.5)
    assert weights.min() < weights.max() == 0.5
    assert float(told["imitation_weight"]) == pytest.approx(weights.mean(), rel=1e-4)
    assert float(told["advantage"]) == pytest.approx(advantage.mean(), rel=1e-4)


def test_the_actors_loss_is_that_of_the_paper(steps):
    state, rows, *_ = steps
    actor, critics = state.td3.actor, state.td3.critics
    weights = np.random.default_rng(0).uniform(0.0, 3.0, len(rows.rewards)).astype(np.float32)
    actions = mean_action(actor, rows.observations)
    both = both_values(critics, rows.observations, actions)
    values = both.min(axis=0)
    assert not np.array_equal(values, both[0]), "the normaliser is of the smaller critic, not of the first"
    imitation = np.mean(weights[:, None] * (actions - np.asarray(rows.actions)) ** 2)
    expected = -values.mean() / np.abs(values).mean() + 0.7 * imitation
    assert float(actor_loss(0.7, actor, critics, rows, jnp.asarray(weights))) == pytest.approx(expected, rel=1e-4)


def test_the_scale_of_values_is_a_number_and_not_a_function_of_the_policy(steps):
    """The gradient is that of the mean of the smaller critic, which may be either, divided by a constant."""
    state, rows, *_ = steps
    actor, critics = state.td3.actor, state.td3.critics

    def smaller(actor):
        return jnp.min(critics(rows.observations, actor.mode(rows.observations)), axis=0)

    scale = float(jnp.mean(jnp.abs(smaller(actor))))
    ours = jax.grad(lambda actor: actor_loss(0.0, actor, critics, rows, jnp.ones(16)))(actor)
    theirs = jax.grad(lambda actor: -jnp.mean(smaller(actor)) / scale)(actor)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7)


def test_with_equal_weights_its_imitation_is_behaviour_cloning(steps):
    state, rows, *_ = steps
    loss = [float(actor_loss(nu, state.td3.actor, state.td3.critics, rows, jnp.ones(16))) for nu in (0.0, 1.0)]
    assert loss[1] - loss[0] == pytest.approx(float(cloning_error(state.td3.actor, rows)), rel=1e-4)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_its_limits_are_the_targets_of_iql_and_of_td3(share, steps, problem):
    state, rows, *_ = steps
    algorithm = DMG(dataclasses.replace(CONFIG, propagation=share), steps=100)
    after, told = jax.jit(algorithm.update)(state, problem)
    if share == 0.0:
        later = mlp(after.value.network, rows.next_observations)[:, 0]
        target = np.asarray(rows.rewards) + 0.9 * (1.0 - np.asarray(rows.terminated)) * later
    else:
        given = (state.td3.target_actor, state.td3.target_critics, jnp.zeros(rows.actions.shape), rows, 0.9)
        target = np.asarray(td3.smoothed_target(CONFIG, *given))
    errors = both_values(state.td3.critics, rows.observations, rows.actions) - target
    assert float(told["critic_loss"]) == pytest.approx(np.sum(np.mean(errors**2, axis=1)), rel=1e-4)


def test_slow_copies_wait_for_the_actor(steps, problem):
    state, *_ = steps
    algorithm = DMG(dataclasses.replace(CONFIG, actor_every=3), steps=100)
    after, _ = jax.jit(algorithm.update)(state, problem)
    pairs = zip(jax.tree.leaves(after.td3.target_critics), jax.tree.leaves(state.td3.target_critics), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)
    moved = move_towards(state.td3.target_critics, steps[2].td3.critics, 0.5)
    for one, other in zip(jax.tree.leaves(steps[2].td3.target_critics), jax.tree.leaves(moved), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_logs_of_experts_are_imitated_more():
    weights = {name: preset("paper", "dmg", dataset=name).agent.imitation for name in DMG.datasets}
    assert {name for name, weight in weights.items() if weight == 10.0} == {n for n in weights if "expert" in n}
    assert set(weights.values()) == {0.1, 10.0}
    assert len(weights) == 18


@pytest.mark.parametrize("change", [{"propagation": 1.1}, {"imitation": -1.0}, {"expectile": 0.0}])
def test_settings_of_dmg_that_make_no_sense_are_refused(change):
    with pytest.raises(UsageError, match=next(iter(change))):
        DMG(**change)
