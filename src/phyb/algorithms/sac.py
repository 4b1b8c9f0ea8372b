"""Soft actor-critic with a learned temperature (Haarnoja et al., 2018): makes logs, and lies under offline algorithms.

One update, in the order of the code: critics towards the soft target, actor towards the soft maximum of the critics,
temperature towards the target entropy, target critics a little towards the critics. It never sees a time limit: only
`terminated` stops the bootstrap.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.data.dataset import Rows
from phyb.fields import Count, Layers, Positive, Share
from phyb.networks import gradient_step, move_towards, start_optimizer
from phyb.policy.actor import Actor, squash
from phyb.policy.critics import Critics
from phyb.policy.registry import make_actor

Metrics = dict[str, Array]
ActorObjective = Callable[[Actor, Critics, Array, PRNGKeyArray, Array], tuple[Array, Array]]
"""(actor, critics, temperature, key, observations) to a loss and the log-densities of the actions drawn for it."""


@dataclasses.dataclass(frozen=True)
class SACConfig:
    """Settings of the online learner; the defaults are those of the SAC paper."""

    hidden: Layers = (256, 256)
    """Units of each hidden layer of actor and critics. Larger can do more and is slower."""
    learning_rate: Positive = 3e-4
    """Of actor, critics and temperature. Higher learns faster and may become unstable."""
    discount: Share = 0.99
    """gamma. Lower cares less about the future and learns faster."""
    target_rate: Share = 5e-3
    """How far the target critics follow the critics in one update. Lower is steadier and slower."""
    batch_size: Count = 256
    """Rows of one update. Larger is steadier and slower."""
    initial_temperature: Positive = 1.0
    """Worth of entropy at the start; it is learned from there on."""
    target_entropy: float | None = None
    """Entropy of the actions, scaled to [-1, 1], that the temperature steers to; None is minus the number of action
    columns. Higher keeps the policy more random."""


class SACState(NamedTuple):
    """All that learning changes."""

    actor: Actor
    critics: Critics
    target_critics: Critics
    log_temperature: Float[Array, ""]
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState
    temperature_optimizer: optax.OptState


class Optimizers(NamedTuple):
    """One optimiser for each thing that is learned."""

    actor: optax.GradientTransformation
    critics: optax.GradientTransformation
    temperature: optax.GradientTransformation


def init(config: SACConfig, key: PRNGKeyArray, observations: int, actions: int) -> SACState:
    """Fresh networks of the online learner for observations and actions of these sizes."""
    return start(_optimizers(config), key, observations, actions, config.hidden, config.initial_temperature)


def start(
    optimizers: Optimizers,
    key: PRNGKeyArray,
    observations: int,
    actions: int,
    hidden: Sequence[int],
    initial_temperature: float = 1.0,
    kind: str = "tanh-gaussian",
    count: int = 2,
) -> SACState:
    """Fresh networks for observations and actions of these sizes; `kind` names the actor, `count` critics."""
    actor_key, critic_key = jax.random.split(key)
    actor = make_actor(kind, actor_key, observations, actions, hidden)
    critics = Critics(critic_key, observations, actions, hidden, count=count)
    log_temperature = jnp.log(jnp.asarray(initial_temperature, jnp.float32))
    return SACState(
        actor=actor,
        critics=critics,
        target_critics=critics,
        log_temperature=log_temperature,
        actor_optimizer=start_optimizer(optimizers.actor, actor),
        critic_optimizer=start_optimizer(optimizers.critics, critics),
        temperature_optimizer=start_optimizer(optimizers.temperature, log_temperature),
    )


def draw(
    actor: Actor, key: PRNGKeyArray, observations: Float[Array, "rows obs"], count: int
) -> tuple[Float[Array, "rows count act"], Float[Array, "rows count"]]:
    """`count` actions in (-1, 1) per row, drawn from the policy, and their log-densities.

    The action is a = tanh(u) with u Gaussian, hence `log pi(a) = log N(u) - sum log(1 - tanh(u)^2)`.
    """
    gaussian = actor(observations)
    draws = gaussian.sample(key, count)
    return squash(draws), gaussian.log_density(draws) - log_slope(draws)


def log_slope(draws: Float[Array, "*rows act"]) -> Float[Array, "*rows"]:
    """`sum log(1 - tanh(u)^2)`, written so that it stays exact where the tanh is flat."""
    return jnp.sum(2.0 * (jnp.log(2.0) - draws - jax.nn.softplus(-2.0 * draws)), axis=-1)


def act(
    actor: Actor, key: PRNGKeyArray, observations: Float[Array, "rows obs"]
) -> tuple[Float[Array, "rows act"], Float[Array, " rows"]]:
    """One action in (-1, 1) per row, drawn from the policy, and its log-density."""
    actions, log_density = draw(actor, key, observations, 1)
    return actions[:, 0], log_density[:, 0]


def soft_target(
    rewards: Float[Array, " rows"],
    terminated: Float[Array, " rows"],
    next_values: Float[Array, "critics rows"],
    next_log_density: Float[Array, " rows"],
    temperature: Float[Array, ""],
    discount: float,
) -> Float[Array, " rows"]:
    """What critics learn: `y = r + gamma (1 - terminated) (min_j Q_j(s', a') - alpha log pi(a' | s'))`, a' ~ pi."""
    soft_value = jnp.min(next_values, axis=0) - temperature * next_log_density
    return rewards + discount * (1.0 - terminated) * soft_value


def critic_loss(
    critics: Critics, rows: Rows, target: Float[Array, " rows"], weights: Float[Array, " rows"] | float = 1.0
) -> Float[Array, ""]:
    """`sum_j mean w (Q_j(s, a) - y)^2 / 2`."""
    error = critics(rows.observations, rows.actions) - target
    return 0.5 * jnp.sum(jnp.mean(weights * error**2, axis=-1))


def actor_loss(
    actor: Actor,
    critics: Critics,
    temperature: Float[Array, ""],
    key: PRNGKeyArray,
    observations: Float[Array, "rows obs"],
) -> tuple[Float[Array, ""], Float[Array, " rows"]]:
    """`mean(alpha log pi(a | s) - min_j Q_j(s, a))` with a ~ pi, and the log-densities."""
    actions, log_density = act(actor, key, observations)
    values = jnp.min(critics(observations, actions), axis=0)
    return jnp.mean(temperature * log_density - values), log_density


def temperature_loss(
    log_temperature: Float[Array, ""], log_density: Float[Array, " rows"], target_entropy: float
) -> Float[Array, ""]:
    """`-log alpha mean(log pi + target entropy)`: alpha rises while the policy's entropy is below the target."""
    return -log_temperature * jnp.mean(log_density + target_entropy)


def learn(
    optimizers: Optimizers,
    state: SACState,
    key: PRNGKeyArray,
    rows: Rows,
    *,
    discount: float,
    target_rate: float,
    target_entropy: float | None = None,
    backup_entropy: bool = True,
    lowest_target: Array | None = None,
    penalty: Callable[[Critics], Array] | None = None,
    actor_objective: ActorObjective = actor_loss,
    row_weights: Float[Array, " rows"] | float = 1.0,
) -> tuple[SACState, Metrics]:
    """One gradient step of critics, actor and temperature on a batch of rows with actions in [-1, 1].

    Args:
        optimizers: one for each of the three.
        state: before the step.
        key: random key.
        rows: the batch.
        discount: gamma.
        target_rate: how far the target critics follow.
        target_entropy: entropy the temperature steers to; None is minus the number of action columns.
        backup_entropy: whether the successor's value counts its entropy.
        lowest_target: targets below it count as it.
        penalty: added to the critics' loss `sum_j mean (Q_j - y)^2 / 2`, and told as "penalty".
        actor_objective: in place of `actor_loss`.
        row_weights: what the critics' error on each row counts.
    """
    target_key, actor_key = jax.random.split(key)
    temperature = jnp.exp(state.log_temperature)

    next_actions, next_log_density = act(state.actor, target_key, rows.next_observations)
    next_values = state.target_critics(rows.next_observations, next_actions)
    entropy_price = temperature if backup_entropy else jnp.zeros(())
    target = soft_target(rows.rewards, rows.terminated, next_values, next_log_density, entropy_price, discount)
    target = target if lowest_target is None else jnp.maximum(target, lowest_target)

    def objective(critics: Critics) -> tuple[Array, Metrics]:
        error = critic_loss(critics, rows, target, row_weights)
        if penalty is None:
            return error, {"critic_loss": error}
        extra = penalty(critics)
        return error + extra, {"critic_loss": error, "penalty": extra}

    gradient, losses = jax.grad(objective, has_aux=True)(state.critics)
    critics, critic_optimizer = gradient_step(optimizers.critics, gradient, state.critic_optimizer, state.critics)

    value_and_gradient = jax.value_and_grad(actor_objective, has_aux=True)
    (loss_of_actor, log_density), gradient = value_and_gradient(
        state.actor, critics, temperature, actor_key, rows.observations
    )
    actor, actor_optimizer = gradient_step(optimizers.actor, gradient, state.actor_optimizer, state.actor)

    wanted = -float(rows.actions.shape[-1]) if target_entropy is None else target_entropy
    gradient = jax.grad(temperature_loss)(state.log_temperature, log_density, wanted)
    log_temperature, temperature_optimizer = gradient_step(
        optimizers.temperature, gradient, state.temperature_optimizer, state.log_temperature
    )

    state = SACState(
        actor=actor,
        critics=critics,
        target_critics=move_towards(state.target_critics, critics, target_rate),
        log_temperature=log_temperature,
        actor_optimizer=actor_optimizer,
        critic_optimizer=critic_optimizer,
        temperature_optimizer=temperature_optimizer,
    )
    told = losses | {
        "actor_loss": loss_of_actor,
        "entropy": -jnp.mean(log_density),
        "temperature": temperature,
        "target": jnp.mean(target),
    }
    return state, told


def update(config: SACConfig, state: SACState, key: PRNGKeyArray, rows: Rows) -> tuple[SACState, Metrics]:
    """One update of the online learner on a batch of rows with actions in [-1, 1]."""
    return learn(
        _optimizers(config),
        state,
        key,
        rows,
        discount=config.discount,
        target_rate=config.target_rate,
        target_entropy=config.target_entropy,
    )


@functools.partial(jax.jit, static_argnums=0)
def updates(config: SACConfig, state: SACState, key: PRNGKeyArray, batches: Rows) -> tuple[SACState, Metrics]:
    """One update per batch along the first axis, in one compiled call; the metrics are those of the last."""

    def one(state: SACState, given: tuple[PRNGKeyArray, Rows]) -> tuple[SACState, Metrics]:
        return update(config, state, *given)

    state, told = jax.lax.scan(one, state, (jax.random.split(key, batches.rewards.shape[0]), batches))
    return state, {name: values[-1] for name, values in told.items()}


def _optimizers(config: SACConfig) -> Optimizers:
    optimizer = optax.adam(config.learning_rate)
    return Optimizers(optimizer, optimizer, optimizer)
