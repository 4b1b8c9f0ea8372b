"""The networks of the library in plain NumPy and float64, for references that share no code with it."""

import jax.numpy as jnp
import numpy as np

from phyb.data.dataset import Rows
from phyb.data.log import Log

OBSERVATIONS, ACTIONS, COUNT = 3, 2, 6


def relu(rows):
    return np.maximum(rows, 0.0)


def mlp(network, rows, member=None, activation=relu):
    """The output of an MLP, or of one member of a stack of them."""
    layers = [
        tuple(np.asarray(x if member is None else x[member], np.float64) for x in pair)
        for pair in zip(network.weights, network.biases, strict=True)
    ]
    rows = np.asarray(rows, np.float64)
    for weight, bias in layers[:-1]:
        rows = activation(rows @ weight + bias)
    return rows @ layers[-1][0] + layers[-1][1]


def mean_action(actor, observations):
    """tanh of the first half of the actor's outputs."""
    return np.tanh(mlp(actor.trunk, observations)[..., : mlp(actor.trunk, observations).shape[-1] // 2])


def both_values(critics, observations, actions):
    """Both critics' values, (2, rows)."""
    rows = np.concatenate([np.asarray(observations, np.float64), np.asarray(actions, np.float64)], axis=-1)
    return np.stack([mlp(critics.networks, rows, member)[..., 0] for member in range(2)])


def some_rows(seed=0, count=COUNT):
    """A batch with one terminal row."""
    generator = np.random.default_rng(seed)

    def draw(*shape):
        return jnp.asarray(generator.normal(size=shape), jnp.float32)

    here, actions, rewards = draw(count, OBSERVATIONS), jnp.tanh(draw(count, ACTIONS)), draw(count)
    return Rows(here, actions, rewards, draw(count, OBSERVATIONS), jnp.asarray(np.arange(count) == 1, jnp.float32))


def log_of(rows, length=5):
    """A log of these rows, in episodes of one length that were cut off or, at a terminal row, end with it."""
    observations, actions, rewards, successors, terminated = (np.asarray(column) for column in rows)
    terminals, bound = terminated.astype(bool), np.ones(actions.shape[1], np.float32)
    cut = (np.arange(len(rewards)) % length == length - 1) & ~terminals
    return Log(observations, actions, rewards, successors, terminals, cut, -bound, bound)
