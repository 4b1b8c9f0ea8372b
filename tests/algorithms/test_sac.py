import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.algorithms import sac
from phyb.algorithms.sac import SACConfig
from phyb.data.dataset import Rows

CONFIG = SACConfig(hidden=(16,), batch_size=8)
OBSERVATIONS, ACTIONS, COUNT = 3, 2, 8

update = jax.jit(sac.update, static_argnums=0)


def some_rows(count=COUNT, terminated=0.0):
    generator = np.random.default_rng(0)
    shapes = ((count, OBSERVATIONS), (count, ACTIONS), (count,), (count, OBSERVATIONS))
    observations, actions, rewards, successors = (
        jnp.asarray(generator.normal(size=shape), jnp.float32) for shape in shapes
    )
    return Rows(observations, jnp.tanh(actions), rewards, successors, jnp.full(count, terminated))


@pytest.fixture(scope="module")
def state():
    return sac.init(CONFIG, jax.random.key(0), OBSERVATIONS, ACTIONS)


def test_the_target_by_hand():
    rewards, terminated = jnp.array([1.0, 1.0]), jnp.array([0.0, 1.0])
    values, log_density = jnp.array([[10.0, 10.0], [8.0, 8.0]]), jnp.array([-2.0, -2.0])
    target = sac.soft_target(rewards, terminated, values, log_density, jnp.array(0.5), 0.9)
    # The smaller critic, 8, plus the worth of the entropy, 0.5 * 2; a terminal row earns its reward and no more.
    np.testing.assert_allclose(target, [1.0 + 0.9 * (8.0 + 1.0), 1.0], rtol=1e-6)


def test_the_update_hands_critics_a_target_that_stops_at_terminated_rows_only(state):
    _, going_on = update(CONFIG, state, jax.random.key(1), some_rows(terminated=0.0))
    _, stopping = update(CONFIG, state, jax.random.key(1), some_rows(terminated=1.0))
    rewards = float(jnp.mean(some_rows().rewards))
    assert float(stopping["target"]) == pytest.approx(rewards, abs=1e-6)
    assert abs(float(going_on["target"]) - rewards) > 0.1


def test_log_densities_are_those_of_the_squashed_actions(state):
    actor = sac.init(CONFIG, jax.random.key(3), OBSERVATIONS, 1).actor
    observation = jnp.ones((1, OBSERVATIONS))
    actions, log_density = jax.vmap(lambda key: sac.act(actor, key, observation))(
        jax.random.split(jax.random.key(4), 200_000)
    )
    actions, density = np.asarray(actions)[:, 0, 0], np.exp(np.asarray(log_density)[:, 0])
    assert np.all(np.abs(actions) <= 1.0)
    counts, edges = np.histogram(actions, 10, (-1.0, 1.0))
    inside = np.digitize(actions, edges[1:-1])
    for cell in np.flatnonzero(counts > 5000):
        share = counts[cell] / len(actions)
        # E[1 / density] over the draws inside a cell, times the cell's probability, is the length of the cell.
        assert share * np.mean(1.0 / density[inside == cell]) == pytest.approx(0.2, rel=0.05)


def test_log_densities_stay_finite_where_the_tanh_is_flat(state):
    far = jax.tree.map(lambda leaf: 30.0 * leaf, state.actor)
    _, log_density = sac.act(far, jax.random.key(0), 100.0 * jnp.ones((4, OBSERVATIONS)))
    assert jnp.isfinite(log_density).all()


@pytest.mark.parametrize(("log_density", "rises"), [(5.0, True), (-5.0, False)])
def test_the_temperature_rises_when_the_policy_is_too_sure(log_density, rises):
    gradient = jax.grad(sac.temperature_loss)(jnp.array(0.3), jnp.full(4, log_density), -2.0)
    assert (float(gradient) < 0) == rises  # a step of descent goes against the gradient
    assert abs(float(gradient)) == pytest.approx(abs(log_density - 2.0))


def test_the_target_entropy_is_minus_the_number_of_action_columns(state):
    default, _ = update(CONFIG, state, jax.random.key(1), some_rows())
    asked = SACConfig(hidden=(16,), batch_size=8, target_entropy=-2.0)
    explicit, _ = update(asked, state, jax.random.key(1), some_rows())
    high = SACConfig(hidden=(16,), batch_size=8, target_entropy=50.0)
    higher, _ = update(high, state, jax.random.key(1), some_rows())
    assert float(default.log_temperature) == float(explicit.log_temperature)
    assert float(higher.log_temperature) > float(state.log_temperature)


def test_target_critics_follow_at_the_target_rate(state):
    new, _ = update(CONFIG, state, jax.random.key(1), some_rows())
    expected = jax.tree.map(
        lambda old, critic: old + CONFIG.target_rate * (critic - old), state.target_critics, new.critics
    )
    for ours, theirs in zip(jax.tree.leaves(new.target_critics), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
    assert any(bool(jnp.any(a != b)) for a, b in zip(*map(jax.tree.leaves, (state.critics, new.critics)), strict=True))


def test_the_actor_moves_to_actions_that_the_critics_prefer(state):
    """With no worth of entropy, steps on the actor's loss raise the value of its actions."""
    observations, key = some_rows(64).observations, jax.random.key(2)
    gradient = jax.jit(jax.value_and_grad(sac.actor_loss, has_aux=True))
    actor = state.actor
    losses = []
    for _ in range(20):
        (loss, _), change = gradient(actor, state.critics, jnp.array(0.0), key, observations)
        actor = jax.tree.map(lambda leaf, slope: leaf - 0.05 * slope, actor, change)
        losses.append(float(loss))
    assert losses[-1] < losses[0]


def test_several_updates_in_one_call_are_the_updates_one_by_one(state):
    batches = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[some_rows() for _ in range(3)])
    together, _ = sac.updates(CONFIG, state, jax.random.key(5), batches)
    one_by_one = state
    for key in jax.random.split(jax.random.key(5), 3):
        one_by_one, _ = update(CONFIG, one_by_one, key, some_rows())
    for ours, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(one_by_one), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_critics_learn_the_value_of_a_known_world():
    """One state, every step earns 1 and the world goes on: without entropy, Q is 1 / (1 - gamma)."""
    config = SACConfig(hidden=(16,), learning_rate=3e-3, discount=0.5, target_rate=0.1, initial_temperature=1e-6)
    state = sac.init(config, jax.random.key(0), 1, 1)
    generator = np.random.default_rng(0)
    actions = jnp.asarray(generator.uniform(-1, 1, (600, 32, 1)), jnp.float32)
    ones, zeros = jnp.ones((600, 32)), jnp.zeros((600, 32))
    state, _ = sac.updates(
        config, state, jax.random.key(1), Rows(ones[..., None], actions, ones, ones[..., None], zeros)
    )
    values = state.critics(jnp.ones((5, 1)), jnp.linspace(-1, 1, 5)[:, None])
    np.testing.assert_allclose(values, 2.0, atol=0.1)
