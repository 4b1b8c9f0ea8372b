"""The flow that imitates a log of two kinds of actions, and the one-step policy as it is deployed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

from phyb.networks import gradient_step, start_optimizer
from phyb.policy.flow import Flow, OneStep, flow_loss

LOGGED = jnp.asarray(np.random.default_rng(0).choice([-0.6, 0.6], (512, 1), p=[0.7, 0.3]), jnp.float32)
LOGGED += 0.05 * jax.random.normal(jax.random.key(9), LOGGED.shape)


@pytest.fixture(scope="module")
def fitted():
    optimizer, flow = optax.adam(3e-3), Flow(jax.random.key(0), 1, 1, (32, 32))

    def step(carry, key):
        flow, state = carry
        noise_key, time_key = jax.random.split(key)
        noise, times = jax.random.normal(noise_key, LOGGED.shape), jax.random.uniform(time_key, LOGGED.shape)
        gradient = jax.grad(flow_loss)(flow, jnp.zeros_like(LOGGED), LOGGED, noise, times)
        return gradient_step(optimizer, gradient, state, flow), None

    (flow, _), _ = jax.jit(lambda carry, keys: jax.lax.scan(step, carry, keys))(
        (flow, start_optimizer(optimizer, flow)), jax.random.split(jax.random.key(1), 600)
    )
    return flow


def test_it_draws_both_kinds_of_actions_where_a_gaussian_would_draw_neither(fitted):
    noise = jax.random.normal(jax.random.key(2), (4000, 1))
    draws = np.asarray(fitted.carry(jnp.zeros((4000, 1)), noise, 10))[:, 0]
    logged = np.asarray(LOGGED)[:, 0]
    gaussian = np.random.default_rng(1).normal(logged.mean(), logged.std(), 4000)
    distance = scipy.stats.wasserstein_distance
    assert distance(draws, logged) < 0.4 * distance(gaussian, logged)
    assert np.mean(draws > 0.0) == pytest.approx(np.mean(logged > 0.0), abs=0.08)


def linear(of_point, of_time, constant):
    """A flow of velocity `of_point x + of_time t + constant`."""
    parts = lambda flow: (flow.network.weights, flow.network.biases)  # noqa: E731
    weights = [jnp.array([[0.0], [of_point], [of_time]])]
    return eqx.tree_at(parts, Flow(jax.random.key(0), 1, 1, ()), (weights, [jnp.array([constant])]))


def carried(flow, noise, steps):
    return float(flow.carry(jnp.zeros((1, 1)), jnp.full((1, 1), noise), steps)[0, 0])


@pytest.mark.parametrize("steps", [1, 2, 10])
def test_as_many_steps_of_euler_as_asked_for(steps):
    """For the velocity 1 + x a step multiplies 1 + x by 1 + 1 / n."""
    assert carried(linear(1.0, 0.0, 1.0), -0.8, steps) == pytest.approx(0.2 * (1 + 1 / steps) ** steps - 1.0, rel=1e-5)


def test_times_are_those_at_the_start_of_each_step_and_actions_keep_to_their_bounds():
    assert carried(linear(0.0, 1.0, 0.0), 0.0, 10) == pytest.approx(0.45)
    assert carried(linear(0.0, 0.0, 1.0), 5.0, 10) == 1.0


def test_the_mode_is_the_action_of_no_noise_and_draws_differ():
    actor, observations = OneStep(jax.random.key(0), 3, 2, (8,)), jax.random.normal(jax.random.key(1), (50, 3))
    np.testing.assert_array_equal(actor.mode(observations), actor(observations, jnp.zeros((50, 2))))
    one, other = (actor.sample(jax.random.key(seed), observations) for seed in (0, 1))
    assert one.shape == (50, 2)
    assert not np.array_equal(one, other)
    assert float(jnp.abs(one).max()) <= 1.0
    assert float(jnp.abs(actor.unclipped(observations, 9.0 * jnp.ones((50, 2)))).max()) > 1.0
