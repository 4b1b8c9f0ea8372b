"""Quantiles: the loss by hand and at its minimum, a critic that learns a known distribution, risk of known ones."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

from phyb.networks import gradient_step, start_optimizer
from phyb.policy.quantile import QuantileCritic, distort, quantile_huber_loss

LEVELS = jnp.array([0.1, 0.25, 0.5, 0.9])


@pytest.mark.parametrize(
    ("quantile", "target", "expected"),
    [
        (0.0, 5.0, 0.9 * (5.0 - 1.0)),  # below the target: weight tau, beyond the width: linear
        (5.0, 0.0, 0.1 * (5.0 - 1.0)),  # above: weight 1 - tau
        (0.0, 1.0, 0.9 * 1.0 / 4.0),  # within the width: u^2 / (2 * 2)
        (1.0, 0.0, 0.1 * 1.0 / 4.0),
        (0.0, 2.0, 0.9 * 1.0),  # both pieces meet
    ],
)
def test_the_loss_of_one_pair_by_hand(quantile, target, expected):
    loss = quantile_huber_loss(jnp.array([quantile]), jnp.array([0.9]), jnp.array([target]), 2.0)
    assert float(loss) == pytest.approx(expected)


def test_the_loss_is_the_mean_over_rows_and_pairs_and_levels_belong_to_the_quantiles():
    rng = np.random.default_rng(0)
    quantiles, targets = jnp.asarray(rng.normal(size=(3, 4))), jnp.asarray(rng.normal(size=(3, 5)))
    levels = jnp.asarray(rng.uniform(size=(3, 4)))
    single = [
        float(quantile_huber_loss(quantiles[row, i, None], levels[row, i, None], targets[row, j, None], 0.3))
        for row in range(3)
        for i in range(4)
        for j in range(5)
    ]
    loss = float(quantile_huber_loss(quantiles, levels, targets, 0.3))
    assert loss == pytest.approx(np.mean(single), rel=1e-5)
    assert float(quantile_huber_loss(quantiles, levels, targets[:, ::-1], 0.3)) == pytest.approx(loss)
    assert float(quantile_huber_loss(quantiles, levels[:, ::-1], targets, 0.3)) != pytest.approx(loss, rel=1e-2)


@pytest.mark.parametrize("level", [0.1, 0.25, 0.5, 0.9])
def test_the_minimum_is_at_the_quantile_and_with_a_great_width_at_the_expectile(level):
    draws = jnp.asarray(np.random.default_rng(0).exponential(size=2001), jnp.float32)
    grid = jnp.linspace(0.0, 4.0, 801)
    loss = jax.jit(jax.vmap(lambda q, width: quantile_huber_loss(q[None], jnp.array([level]), draws, width), (0, None)))
    assert float(grid[jnp.argmin(loss(grid, 1e-3))]) == pytest.approx(np.quantile(draws, level), abs=0.01)
    expectile = scipy.stats.expectile(np.asarray(draws, np.float64), level)
    assert float(grid[jnp.argmin(loss(grid, 100.0))]) == pytest.approx(expectile, abs=0.01)


def test_the_critic_learns_the_quantiles_of_a_known_distribution():
    """What is earned is N(a, (1 + a / 2)^2): mean and spread depend on the action, and single draws are seen."""
    optimizer, critic = (
        optax.adam(optax.cosine_decay_schedule(5e-3, 600)),
        QuantileCritic(jax.random.key(0), 1, 1, (32,)),
    )

    def step(carry, key):
        critic, state = carry
        action_key, draw_key, level_key = jax.random.split(key, 3)
        actions = jax.random.uniform(action_key, (256, 1), minval=-1.0, maxval=1.0)
        earned = actions + (1.0 + actions / 2.0) * jax.random.normal(draw_key, (256, 1))
        levels = jax.random.uniform(level_key, (256, 8))

        def loss(critic):
            return quantile_huber_loss(critic(jnp.ones((256, 1)), actions, levels), levels, earned, 0.05)

        return gradient_step(optimizer, jax.grad(loss)(critic), state, critic), None

    (critic, _), _ = jax.jit(lambda carry, keys: jax.lax.scan(step, carry, keys))(
        (critic, start_optimizer(optimizer, critic)), jax.random.split(jax.random.key(1), 600)
    )
    actions = jnp.array([[-0.8], [0.0], [0.8]])
    found = np.asarray(critic(jnp.ones((3, 1)), actions, jnp.broadcast_to(LEVELS, (3, 4))))
    expected = scipy.stats.norm.ppf(LEVELS, actions, 1.0 + actions / 2.0)
    np.testing.assert_allclose(found, expected, atol=0.2)
    assert np.all(np.diff(found, axis=-1) > 0)


def test_rows_are_read_apart_with_levels_of_their_own():
    critic = QuantileCritic(jax.random.key(0), 3, 2, (8, 8), cosines=4)
    observations, actions = (jax.random.normal(jax.random.key(n), (5, n)) for n in (3, 2))
    levels = jax.random.uniform(jax.random.key(1), (5, 7))
    together = critic(observations, actions, levels)
    assert together.shape == (5, 7)
    alone = critic(observations[2], actions[2], levels[2, 3:4])
    np.testing.assert_allclose(together[2, 3], alone[0], rtol=1e-5, atol=1e-6)


UNIFORM = (jnp.arange(20_000) + 0.5) / 20_000
"""Midpoints, so that a mean over them is an integral."""


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5, 1.0])
def test_conditional_value_at_risk_of_known_distributions(share):
    levels = np.asarray(distort(UNIFORM, "cvar", share), np.float64)
    assert levels.mean() == pytest.approx(share / 2, rel=1e-4)  # of U(0, 1), whose quantiles are the levels
    z = scipy.stats.norm.ppf(share)
    expected = -scipy.stats.norm.pdf(z) / share
    assert scipy.stats.norm.ppf(levels).mean() == pytest.approx(expected, abs=2e-3)
    lower = scipy.stats.expon.ppf(share)  # of the exponential: E[x | x < c] = 1 - c e^-c / share
    expected = 1.0 - (lower * np.exp(-lower) / share if share < 1.0 else 0.0)
    assert scipy.stats.expon.ppf(levels).mean() == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("amount", [0.0, 0.75, 2.0])
def test_the_wang_measure_of_a_gaussian_is_its_mean_less_some_deviations(amount):
    levels = np.asarray(distort(UNIFORM, "wang", amount), np.float64)
    assert scipy.stats.norm.ppf(levels, 3.0, 2.0).mean() == pytest.approx(3.0 - 2.0 * amount, abs=5e-3)
    assert np.all((levels > 0) & (levels < 1))


def test_caution_never_raises_a_level_and_neutral_changes_nothing():
    np.testing.assert_array_equal(distort(UNIFORM, "neutral", 0.3), UNIFORM)
    for levels in (distort(UNIFORM, "cvar", 0.3), distort(UNIFORM, "wang", 0.5)):
        assert np.all(levels <= UNIFORM)
        assert np.all(np.diff(levels) >= 0)
