"""Critics and the value network."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from phyb.networks import take
from phyb.policy.critics import Critics, ValueNetwork


def test_both_critics_see_observation_and_action_and_differ():
    critics = Critics(jax.random.key(0), 3, 2, (8,))
    observations, actions = (
        jax.random.normal(jax.random.key(1), (7, 3)),
        jax.random.normal(jax.random.key(2), (7, 2)),
    )
    q = critics(observations, actions)
    assert q.shape == (2, 7)
    assert float(jnp.abs(q[0] - q[1]).max()) > 0.1
    for number in range(2):
        alone = take(critics.networks, number)(jnp.concatenate([observations, actions], axis=-1))[:, 0]
        np.testing.assert_allclose(q[number], alone, rtol=1e-5, atol=1e-6)
    slope = jax.grad(lambda o, a: jnp.sum(critics(o, a)), argnums=(0, 1))(observations, actions)
    assert all(np.all(np.any(part != 0, axis=-1)) for part in slope)


def test_judge_takes_the_smaller_critic_or_the_mean_for_each_of_several_actions():
    critics = Critics(jax.random.key(0), 3, 2, (8,))
    observations, actions = (
        jax.random.normal(jax.random.key(1), (7, 3)),
        jax.random.normal(jax.random.key(2), (7, 5, 2)),
    )
    least, mean = (critics.of_candidates(observations, actions, vote) for vote in ("least", "mean"))
    assert least.shape == (7, 5)
    for column in range(5):
        both = critics(observations, actions[:, column])
        np.testing.assert_allclose(least[:, column], both.min(axis=0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(mean[:, column], both.mean(axis=0), rtol=1e-5, atol=1e-6)
    chosen = np.asarray(jnp.argmin(critics(jnp.repeat(observations[:, None], 5, 1), actions), axis=0))
    assert set(chosen.ravel().tolist()) == {0, 1}, "each critic is the smaller one somewhere"


def test_a_change_of_one_critic_leaves_the_other_alone():
    critics = Critics(jax.random.key(0), 3, 2, (8,))
    moved = eqx.tree_at(lambda c: c.networks.biases[-1], critics, critics.networks.biases[-1].at[1].add(3.0))
    rows = jnp.ones((4, 3)), jnp.ones((4, 2))
    np.testing.assert_allclose(moved(*rows) - critics(*rows), [[0.0] * 4, [3.0] * 4], atol=1e-5)


def test_the_value_network_gives_one_number_per_row_on_any_batch():
    value = ValueNetwork(jax.random.key(0), 3, (8,))
    rows = jax.random.normal(jax.random.key(1), (4, 5, 3))
    assert value(rows).shape == (4, 5)
    np.testing.assert_allclose(value(rows)[2], value(rows[2]), rtol=1e-5, atol=1e-6)


def test_more_critics_of_any_activation_with_normalised_layers():
    critics = Critics(jax.random.key(0), 3, 2, (8, 8), count=5, activation=jnp.tanh, layer_norm=True)
    observations, actions = jnp.ones((4, 3)), jnp.linspace(-1, 1, 8).reshape(4, 2)
    q = critics(observations, actions)
    assert q.shape == (5, 4)
    np.testing.assert_allclose(
        critics.of_candidates(observations, actions[:, None], "least")[:, 0], q.min(axis=0), rtol=1e-6
    )
    far = critics(1e4 * observations, 1e4 * actions)
    assert float(jnp.abs(far).max()) < 30.0, "normalised layers keep values bounded however far the input lies"
    plain = Critics(jax.random.key(0), 3, 2, (8, 8), count=5)(1e4 * observations, 1e4 * actions)
    assert float(jnp.abs(plain).max()) > 300.0
