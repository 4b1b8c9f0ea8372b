"""Starting from the log: an actor fitted to its actions, critics and a value fitted to its returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.data.dataset import Dataset
from phyb.networks import Standardizer, gradient_step, start_optimizer
from phyb.policy.actor import LARGEST_ACTION, Actor
from phyb.policy.critics import Critics, ValueNetwork

Model = TypeVar("Model")


def clone(
    key: PRNGKeyArray,
    actor: Actor,
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows act"],
    *,
    steps: int,
    learning_rate: float,
    batch_size: int,
    standardizer: Standardizer | None = None,
    largest_action: float = LARGEST_ACTION,
    censored: bool = False,
    only: Int[Array, " some"] | None = None,
) -> Actor:
    """Fit the actor to pairs of observation and action in [-1, 1] by `steps` of Adam on the log-likelihood.

    With a `standardizer`, observations are standardised as they are drawn: the log may be larger than memory. Actions
    beyond `largest_action` count as that or, if `censored`, as anything beyond it. With `only`, no other rows than
    these are learned from.
    """

    def loss(actor: Actor, rows: Array) -> Array:
        rows = rows if only is None else only[rows]
        drawn = observations[rows] if standardizer is None else standardizer(observations[rows])
        return -jnp.mean(actor(drawn).log_likelihood(actions[rows], largest_action, censored=censored))

    count = observations.shape[0] if only is None else only.shape[0]
    return _descend(key, loss, actor, count, steps, learning_rate, batch_size)


def fit_returns(
    key: PRNGKeyArray,
    critics: Critics,
    value: ValueNetwork,
    dataset: Dataset,
    *,
    steps: int,
    batch_size: int,
    learning_rate: float = 1e-3,
) -> tuple[Critics, ValueNetwork]:
    """Fit critics and value to the logged returns by `steps` of Adam on the squared error: the behaviour's values.

    Backups alone move values by about `(1 - gamma)` times the rate of the slow copies per update: with a long horizon
    values that start from nothing would be wrong for ten thousands of updates.
    """

    def loss(networks: tuple[Critics, ValueNetwork], rows: Array) -> Array:
        observations, returns = dataset.standardizer(dataset.rows.observations[rows]), dataset.returns[rows]
        q, v = networks[0](observations, dataset.rows.actions[rows]), networks[1](observations)
        return jnp.mean((q - returns) ** 2) + jnp.mean((v - returns) ** 2)

    return _descend(key, loss, (critics, value), dataset.returns.shape[0], steps, learning_rate, batch_size)


def _descend(
    key: PRNGKeyArray,
    loss: Callable[[Model, Array], Array],
    model: Model,
    count: int,
    steps: int,
    learning_rate: float,
    batch_size: int,
) -> Model:
    """The model after `steps` of Adam down a loss on batches of row numbers below `count`; the rate falls to 0."""
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, max(steps, 1)))

    def step(carry: tuple[Model, optax.OptState], key: PRNGKeyArray) -> tuple[tuple[Model, optax.OptState], None]:
        model, state = carry
        rows = jax.random.randint(key, (batch_size,), 0, count)
        return gradient_step(optimizer, jax.grad(loss)(model, rows), state, model), None

    (model, _), _ = jax.lax.scan(step, (model, start_optimizer(optimizer, model)), jax.random.split(key, steps))
    return model
