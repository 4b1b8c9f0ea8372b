"""Small worlds simple enough to work out by hand; `conftest.py` makes them known to all tests."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.data.log import Log
from phyb.dynamics.model import GaussianModel
from phyb.dynamics.pool import Pool
from phyb.networks import Standardizer


def make_pool(weights, biases, log_std=-40.0, done_weights=None, done_bias=-40.0, holdout_nll=None):
    """A pool without hidden layers: member i says `(change, reward) = (obs, act) @ weights[i] + biases[i]`"""
    weights, biases = jnp.asarray(weights, jnp.float32), jnp.asarray(biases, jnp.float32)
    members, inputs, outputs = weights.shape
    done = jnp.zeros((members, inputs)) if done_weights is None else jnp.asarray(done_weights, jnp.float32)
    wide = jnp.concatenate([weights, jnp.zeros_like(weights), done[..., None]], axis=-1)
    spread = jnp.broadcast_to(jnp.asarray(log_std, jnp.float32), biases.shape)
    end = jnp.broadcast_to(jnp.asarray(done_bias, jnp.float32), (members, 1))
    one = jax.eval_shape(lambda: GaussianModel(jax.random.key(0), inputs, outputs, ()))
    models = eqx.tree_at(
        lambda m: (m.trunk.weights[0], m.trunk.biases[0], m.min_log_std, m.max_log_std),
        one,
        # Bounds so wide that the soft clamp of the log-std is no clamp.
        (
            wide,
            jnp.concatenate([biases, spread, end], axis=-1),
            jnp.full_like(biases, -60.0),
            jnp.full_like(biases, 60.0),
        ),
    )
    nll = jnp.zeros(members) if holdout_nll is None else jnp.asarray(holdout_nll, jnp.float32)
    plain, plain_out = (Standardizer(jnp.zeros(size), jnp.ones(size)) for size in (inputs, outputs))
    return Pool(models, plain, plain_out, nll)


def truth(state, action):
    """Mean and deviation of the next state, and mean reward, of the system that `linear_log` records."""
    first, second, drive = state[:, 0], state[:, 1], action[:, 0]
    mean = np.stack([0.9 * first + 0.2 * drive, 0.7 * second - 0.3 * first + 0.1, state[:, 2]], axis=1)
    return mean, np.array([0.05, 0.3, 0.0]), 0.5 * first - second + 0.2 * drive


def record(episodes=300, steps=10, seed=0):
    """Episodes of that system; its third number is always 3, and x0 + a > 1.2 ends an episode."""
    rng = np.random.default_rng(seed)
    state = np.concatenate([rng.normal(size=(episodes, 2)), np.full((episodes, 1), 3.0)], axis=1)
    alive, parts = np.ones(episodes, bool), []
    for step in range(steps):
        action = rng.uniform(-1.0, 1.0, (episodes, 1))
        mean, std, reward = truth(state, action)
        after = mean + std * rng.normal(size=mean.shape)
        reward = reward + 0.1 * rng.normal(size=episodes)
        ends = state[:, 0] + action[:, 0] > 1.2
        cut = ~ends & (step == steps - 1)
        parts.append((np.arange(episodes), alive, state, action, reward, after, ends, cut))
        state, alive = after, alive & ~ends
    number, kept, *fields = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.flatnonzero(kept)[np.argsort(number[kept], kind="stable")]
    as_stored = (field[order].astype(bool if field.dtype == bool else np.float32) for field in fields)
    return Log(*as_stored, action_low=np.full(1, -1, np.float32), action_high=np.full(1, 1, np.float32))


@pytest.fixture(scope="session")
def linear_pool():
    return make_pool


@pytest.fixture(scope="session")
def linear_log():
    return record


@pytest.fixture(scope="session")
def linear_system():
    return truth
