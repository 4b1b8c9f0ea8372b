"""TD3, the deterministic actor-critic (Fujimoto et al., 2018), as offline algorithms build on it.

One update, in the order of the code: critics towards a target whose action is smoothed by noise; every other time the
actor, towards an objective that the algorithm brings, and the slow copies of both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.algorithms.base import CriticConfig, Metrics, decaying
from phyb.data.dataset import Rows
from phyb.fields import Count, NonNegative, not_if
from phyb.networks import gradient_step, move_towards, start_optimizer
from phyb.policy.actor import Actor
from phyb.policy.critics import Critics
from phyb.policy.registry import make_actor

ActorLoss = Callable[[Actor, Critics, Rows], Array]
Backup = Callable[[Array, Rows], Array]
"""(values of the successors by TD3, rows) to the values that are backed up."""


@dataclasses.dataclass(frozen=True)
class TD3Config(CriticConfig):
    """Settings of TD3; the defaults are those of its paper."""

    target_noise: NonNegative = 0.2
    """Noise on the target's actions, which lie in [-1, 1]. Higher smooths the critics over neighbouring actions."""
    target_noise_clip: Annotated[NonNegative, not_if("target_noise", 0.0)] = 0.5
    """Largest such noise."""
    actor_every: Count = 2
    """Updates of the critics between updates of actor and target networks. Higher lets the critics settle first."""


class TD3State(NamedTuple):
    """Everything that changes in training."""

    actor: Actor
    target_actor: Actor
    critics: Critics
    target_critics: Critics
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState
    key: PRNGKeyArray
    step: Int[Array, ""]


class Optimizers(NamedTuple):
    """One optimiser for each thing that is learned."""

    actor: optax.GradientTransformation
    critics: optax.GradientTransformation


def make_optimizers(config: TD3Config, steps: int) -> Optimizers:
    """The optimisers of a run of so many updates."""
    return Optimizers(
        decaying(config.actor_learning_rate, config.actor_decay, steps // config.actor_every),
        decaying(config.critic_learning_rate, 1.0, steps),
    )


def start(config: TD3Config, optimizers: Optimizers, key: PRNGKeyArray, observations: int, actions: int) -> TD3State:
    """Fresh networks for observations and actions of these sizes."""
    actor_key, critic_key, key = jax.random.split(key, 3)
    actor = make_actor(config.actor, actor_key, observations, actions, config.policy_hidden)
    critics = Critics(critic_key, observations, actions, config.policy_hidden)
    return TD3State(
        actor=actor,
        target_actor=actor,
        critics=critics,
        target_critics=critics,
        actor_optimizer=start_optimizer(optimizers.actor, actor),
        critic_optimizer=start_optimizer(optimizers.critics, critics),
        key=key,
        step=jnp.zeros((), jnp.int32),
    )


def smoothed_target(
    config: TD3Config,
    target_actor: Actor,
    target_critics: Critics,
    noise: Float[Array, "rows act"],
    rows: Rows,
    discount: float,
    backup: Backup = lambda values, rows: values,
) -> Float[Array, " rows"]:
    """`y = r + gamma (1 - terminated) v`, where `backup` may change the values

    v = min_j Q'_j(s', clip(pi'(s') + clip(sigma noise, -c, c), -1, 1)).
    """
    limit = config.target_noise_clip
    actions = target_actor.mode(rows.next_observations) + jnp.clip(config.target_noise * noise, -limit, limit)
    values = target_critics(rows.next_observations, jnp.clip(actions, -1.0, 1.0))
    return rows.rewards + discount * (1.0 - rows.terminated) * backup(jnp.min(values, axis=0), rows)


def critic_loss(critics: Critics, rows: Rows, target: Float[Array, " rows"]) -> Float[Array, ""]:
    """`sum_j mean (Q_j(s, a) - y)^2`."""
    return jnp.sum(jnp.mean((critics(rows.observations, rows.actions) - target) ** 2, axis=-1))


def learn(
    config: TD3Config,
    optimizers: Optimizers,
    state: TD3State,
    key: PRNGKeyArray,
    rows: Rows,
    discount: float,
    actor_loss: ActorLoss,
    backup: Backup = lambda values, rows: values,
) -> tuple[TD3State, Metrics]:
    """One update on a batch of rows; the actor goes down `actor_loss(actor, critics, rows)`, see `smoothed_target`."""
    key, noise_key = jax.random.split(key)
    noise = jax.random.normal(noise_key, rows.actions.shape)
    target = smoothed_target(config, state.target_actor, state.target_critics, noise, rows, discount, backup)
    loss, gradient = jax.value_and_grad(critic_loss)(state.critics, rows, target)
    critics, critic_optimizer = gradient_step(optimizers.critics, gradient, state.critic_optimizer, state.critics)

    def improve(state: TD3State) -> TD3State:
        gradient = jax.grad(actor_loss)(state.actor, critics, rows)
        actor, actor_optimizer = gradient_step(optimizers.actor, gradient, state.actor_optimizer, state.actor)
        return state._replace(
            actor=actor,
            actor_optimizer=actor_optimizer,
            target_actor=move_towards(state.target_actor, actor, config.target_rate),
            target_critics=move_towards(state.target_critics, critics, config.target_rate),
        )

    due = (state.step + 1) % config.actor_every == 0
    state = jax.lax.cond(due, improve, lambda state: state, state)
    state = state._replace(critics=critics, critic_optimizer=critic_optimizer, key=key, step=state.step + 1)
    return state, {"critic_loss": loss, "q_logged": jnp.mean(target)}
