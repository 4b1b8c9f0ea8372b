"""TD3+BC against a reference in NumPy, and its two limits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from plain_networks import ACTIONS, OBSERVATIONS, both_values, mean_action, some_rows

from phyb.algorithms import td3
from phyb.algorithms.bc import cloning_error
from phyb.algorithms.td3bc import TD3BC, TD3BCConfig, actor_loss
from phyb.errors import UsageError

CONFIG = TD3BCConfig(policy_hidden=(5,), target_noise=1.0, target_noise_clip=0.3)
OPTIMIZERS = td3.Optimizers(optax.adam(1e-2), optax.adam(1e-2))


@pytest.fixture(scope="module")
def state():
    return td3.start(CONFIG, OPTIMIZERS, jax.random.key(0), OBSERVATIONS, ACTIONS)


def test_the_actors_loss_is_that_of_the_paper(state):
    rows = some_rows()
    actions = mean_action(state.actor, rows.observations)
    values = both_values(state.critics, rows.observations, actions)[0]
    expected = -2.5 / np.mean(np.abs(values)) * np.mean(values) + np.mean((actions - np.asarray(rows.actions)) ** 2)
    assert float(actor_loss(2.5, state.actor, state.critics, rows)) == pytest.approx(expected, rel=1e-5)


def test_the_target_is_that_of_the_paper(state):
    rows, noise = some_rows(), np.random.default_rng(1).normal(size=(len(some_rows().rewards), ACTIONS))
    found = td3.smoothed_target(CONFIG, state.target_actor, state.target_critics, jnp.asarray(noise), rows, 0.9)
    actions = mean_action(state.target_actor, rows.next_observations) + np.clip(noise, -0.3, 0.3)
    values = both_values(state.target_critics, rows.next_observations, np.clip(actions, -1.0, 1.0))
    expected = np.asarray(rows.rewards) + 0.9 * (1.0 - np.asarray(rows.terminated)) * values.min(axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    errors = both_values(state.critics, rows.observations, rows.actions) - expected
    assert float(td3.critic_loss(state.critics, rows, found)) == pytest.approx(np.sum(np.mean(errors**2, 1)), rel=1e-4)


def test_the_scale_of_values_does_not_move_the_actor(state):
    last = lambda critics: (critics.networks.weights[-1], critics.networks.biases[-1])  # noqa: E731
    larger = eqx.tree_at(last, state.critics, tuple(1000.0 * leaf for leaf in last(state.critics)))
    gradient = jax.grad(lambda actor, critics: actor_loss(2.5, actor, critics, some_rows()))
    for one, other in zip(
        jax.tree.leaves(gradient(state.actor, state.critics)),
        jax.tree.leaves(gradient(state.actor, larger)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_without_improvement_it_is_behaviour_cloning(state):
    ours = jax.grad(lambda actor: actor_loss(0.0, actor, state.critics, some_rows()))(state.actor)
    cloning = jax.grad(lambda actor: cloning_error(actor, some_rows()))(state.actor)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(cloning), strict=True):
        np.testing.assert_array_equal(one, other)


def test_actor_and_slow_copies_move_every_other_time(state):
    def loss(actor, critics, rows):
        return actor_loss(2.5, actor, critics, rows)

    learn = jax.jit(lambda state: td3.learn(CONFIG, OPTIMIZERS, state, state.key, some_rows(), 0.9, loss)[0])
    first = learn(state)
    second = learn(first)

    def moved(name, before, after):
        pairs = zip(jax.tree.leaves(getattr(before, name)), jax.tree.leaves(getattr(after, name)), strict=True)
        return any(not np.array_equal(one, other) for one, other in pairs)

    waiting = ("actor", "target_actor", "target_critics")
    assert moved("critics", state, first)
    assert not any(moved(name, state, first) for name in waiting)
    assert all(moved(name, first, second) for name in ("critics", *waiting))


@pytest.mark.parametrize("change", [{"improvement": -1.0}, {"actor_every": 0}, {"target_noise": -0.1}])
def test_settings_of_td3bc_that_make_no_sense_are_refused(change):
    with pytest.raises(UsageError, match=next(iter(change))):
        TD3BC(**change)
