"""Starting from the log: an actor fitted to its actions, critics and a value fitted to its returns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.networks import Standardizer, gradient_step, start_optimizer
from phyb.policy.actor import LARGEST_ACTION, Actor
from phyb.policy.critics import Critics, ValueNetwork


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
    count = observations.shape[0] if only is None else only.shape[0]
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, max(steps, 1)))

    def loss(actor: Actor, rows: Array) -> Array:
        drawn = observations[rows] if standardizer is None else standardizer(observations[rows])
        return -jnp.mean(actor(drawn).log_likelihood(actions[rows], largest_action, censored=censored))

    def step(carry: tuple[Actor, optax.OptState], key: PRNGKeyArray) -> tuple[tuple[Actor, optax.OptState], None]:
        actor, state = carry
        rows = jax.random.randint(key, (batch_size,), 0, count)
        rows = rows if only is None else only[rows]
        return gradient_step(optimizer, jax.grad(loss)(actor, rows), state, actor), None

    (actor, _), _ = jax.lax.scan(step, (actor, start_optimizer(optimizer, actor)), jax.random.split(key, steps))
    return actor


Networks = tuple[Critics, ValueNetwork]


def fit_returns(
    key: PRNGKeyArray,
    critics: Critics,
    value: ValueNetwork,
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows act"],
    returns: Float[Array, " rows"],
    *,
    steps: int,
    learning_rate: float,
    batch_size: int,
    standardizer: Standardizer | None = None,
) -> tuple[Critics, ValueNetwork]:
    """Fit critics and value to the logged returns by `steps` of Adam on the squared error: the behaviour's values.

    Backups alone move values by about `(1 - gamma)` times the rate of the slow copies per update: with a long horizon
    values that start from nothing would be wrong for ten thousands of updates.
    """
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, max(steps, 1)))

    def loss(networks: Networks, rows: Array) -> Array:
        drawn = observations[rows] if standardizer is None else standardizer(observations[rows])
        q, v = networks[0](drawn, actions[rows]), networks[1](drawn)
        return jnp.mean((q - returns[rows]) ** 2) + jnp.mean((v - returns[rows]) ** 2)

    def step(carry: tuple[Networks, optax.OptState], key: PRNGKeyArray) -> tuple[tuple[Networks, optax.OptState], None]:
        networks, state = carry
        rows = jax.random.randint(key, (batch_size,), 0, observations.shape[0])
        return gradient_step(optimizer, jax.grad(loss)(networks, rows), state, networks), None

    networks = (critics, value)
    first = (networks, start_optimizer(optimizer, networks))
    (networks, _), _ = jax.lax.scan(step, first, jax.random.split(key, steps))
    return networks
