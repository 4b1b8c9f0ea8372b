"""The model of the logged actions: its loss by hand, several modes, and the policy that stays near it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

from phyb.networks import MLP, gradient_step, start_optimizer
from phyb.policy.vae import VAE, PerturbedDecoder, prior_latents, vae_loss


@pytest.fixture(scope="module")
def two_humps():
    """One observation that says which side is more common, and actions near -0.6 or 0.6."""
    rng = np.random.default_rng(0)
    observations = rng.choice([-1.0, 1.0], (800, 1))
    side = np.where(rng.random((800, 1)) < 0.5 + 0.3 * observations, 1.0, -1.0)
    actions = np.clip(0.6 * side + 0.05 * rng.normal(size=side.shape), -1, 1)
    return jnp.asarray(observations, jnp.float32), jnp.asarray(actions, jnp.float32)


@pytest.fixture(scope="module")
def fitted(two_humps):
    optimizer, vae = optax.adam(3e-3), VAE(jax.random.key(0), 1, 1, (32, 32), 2)

    def step(carry, key):
        vae, state = carry
        loss, gradient = jax.value_and_grad(vae_loss)(vae, key, *two_humps, 0.1)
        return gradient_step(optimizer, gradient, state, vae), loss

    (vae, _), losses = jax.jit(lambda carry, keys: jax.lax.scan(step, carry, keys))(
        (vae, start_optimizer(optimizer, vae)), jax.random.split(jax.random.key(1), 400)
    )
    assert losses[-1] < 0.5 * losses[0]
    return vae


def test_the_loss_by_hand():
    zero = jax.tree.map(jnp.zeros_like, VAE(jax.random.key(0), 1, 1, (), 1))
    rows = jnp.zeros((3, 1)), jnp.full((3, 1), 0.5)
    # Everything is 0: the action is tanh(0), the latent N(0, 1), up to the soft clamp at exp(-4).
    assert float(vae_loss(zero, jax.random.key(1), *rows, 7.0)) == pytest.approx(0.25, abs=5e-3)
    # N(3, e^2): KL = (9 + e^2 - 1) / 2 - 1
    moved = eqx.tree_at(lambda vae: vae.encoder.biases[0], zero, jnp.array([3.0, 1.0]))
    expected = 0.25 + 2.0 * ((9.0 + np.e**2 - 1.0) / 2.0 - 1.0)
    assert float(vae_loss(moved, jax.random.key(1), *rows, 2.0)) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_it_draws_two_humps_where_a_gaussian_would_draw_one(fitted, two_humps, side):
    """Closer to the logged actions, in earth mover's distance, than the best Gaussian, and little in between."""
    observations, actions = (np.asarray(part) for part in two_humps)
    logged = actions[observations[:, 0] == side, 0]
    draws = fitted.decode(jnp.full((4000, 1), side), prior_latents(jax.random.key(2), 4000, 2, jnp.inf))[:, 0]
    gaussian = np.random.default_rng(1).normal(logged.mean(), logged.std(), 4000)
    distance = scipy.stats.wasserstein_distance
    assert distance(np.asarray(draws), logged) < 0.5 * distance(gaussian, logged)
    assert np.mean(np.abs(draws) < 0.3) < 0.5 * np.mean(np.abs(gaussian) < 0.3)


def test_it_knows_an_action_again(fitted, two_humps):
    observations, actions = two_humps
    again = fitted.decode(observations, fitted.encode(observations, actions).mean)
    assert float(jnp.mean((again - actions) ** 2)) < 0.1 * float(jnp.var(actions))


def test_clipped_latents_stay_within_their_bound():
    latents = prior_latents(jax.random.key(0), 1000, 3, 0.5)
    assert latents.shape == (1000, 3)
    assert float(jnp.max(latents)) == 0.5
    assert float(jnp.min(latents)) == -0.5
    assert 0.3 < float(jnp.mean(jnp.abs(latents) < 0.5)) < 0.45, "P(|N(0, 1)| < 0.5) = 0.383"


@pytest.mark.parametrize("reach", [0.0, 0.25, 3.0])
def test_the_policy_stays_within_reach_of_the_log(reach):
    vae = VAE(jax.random.key(0), 3, 2, (8,), 4)
    push = MLP(jax.random.key(1), (5, 8, 2))
    policy = PerturbedDecoder(vae.decoder, push, jnp.asarray(reach))
    observations, latents = (
        jax.random.normal(jax.random.key(2), (200, 3)),
        prior_latents(jax.random.key(3), 200, 4, 2.0),
    )
    decoded, actions = vae.decode(observations, latents), policy(observations, latents)
    distance = np.abs(np.asarray(actions - decoded))
    assert np.all(distance <= reach + 1e-6)
    assert np.all(np.abs(actions) <= 1.0)
    assert distance.max() > 0.5 * min(reach, 1.0) or reach == 0.0
    assert policy.latent == 4
    zero = policy(observations, jnp.zeros((200, 4)))
    np.testing.assert_array_equal(policy.mode(observations), zero)


def test_an_action_at_its_bound_can_come_back():
    """Values are clipped, gradients are not."""
    decoder, push = MLP(jax.random.key(0), (2, 1)), MLP(jax.random.key(1), (2, 1))
    push = eqx.tree_at(lambda net: net.biases[0], push, jnp.array([0.8]))

    def action(push):
        return PerturbedDecoder(decoder, push, jnp.asarray(3.0))(jnp.zeros((1, 1)), jnp.zeros((1, 1)))[0, 0]

    value, slope = jax.value_and_grad(action)(push)
    assert float(value) == 1.0
    assert float(slope.biases[0][0]) > 0.1
