"""Behaviour cloning: fit an actor to the logged actions by maximum likelihood."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.networks import gradient_step, start_optimizer
from phyb.policy.actor import Actor, unsquash


def clone(
    key: PRNGKeyArray,
    actor: Actor,
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows act"],
    *,
    steps: int,
    learning_rate: float,
    batch_size: int,
) -> Actor:
    """Fit the actor to (standardised observation, action in [-1, 1]) pairs by `steps` of Adam on the log-likelihood."""
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, max(steps, 1)))

    def loss(actor: Actor, rows: Array) -> Array:
        return -jnp.mean(actor(observations[rows]).log_density(unsquash(actions[rows])[:, None]))

    def step(carry: tuple[Actor, optax.OptState], key: PRNGKeyArray) -> tuple[tuple[Actor, optax.OptState], None]:
        actor, state = carry
        rows = jax.random.randint(key, (batch_size,), 0, observations.shape[0])
        return gradient_step(optimizer, jax.grad(loss)(actor, rows), state, actor), None

    (actor, _), _ = jax.lax.scan(step, (actor, start_optimizer(optimizer, actor)), jax.random.split(key, steps))
    return actor
