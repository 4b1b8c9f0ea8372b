"""FQL, flow Q-learning: a flow imitates the log, a one-step policy imitates the flow and follows critics (Park, 2025).

The policy a = g(s, z) takes noise z from N(0, I) and may have as many modes as the log. One update goes down the sum of

    flow:     mean (v(s, x_t, t) - (a - z))^2,    x_t = (1 - t) z + t a
    policy:   alpha mean (g(s, z) - flow(s, z))^2 - mean_j mean Q_j(s, clip g(s, z))
    critics:  mean_j mean (Q_j(s, a) - r - gamma (1 - terminated) mean_j Q'_j(s', clip g(s', z')))^2

in which no gradient passes through flow(s, z), the Euler steps of the flow from z, and none into the critics from the
policy's loss. What is deployed is g(s, 0); `policy.actor.sample` draws.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms.base import (
    PAPER_TRAINING,
    Algorithm,
    CriticConfig,
    Metrics,
    decaying,
    locomotion_tasks,
    logged_rows,
    reward_factor,
    update_bytes,
)
from phyb.algorithms.problem import Problem
from phyb.algorithms.sac import critic_loss
from phyb.data.dataset import Rows
from phyb.fields import Count, Layers, Positive
from phyb.networks import gradient_step, move_towards, start_optimizer
from phyb.policy.critics import Critics, Vote, one_of
from phyb.policy.flow import Flow, OneStep, flow_loss


@dataclasses.dataclass(frozen=True)
class FQLConfig(CriticConfig):
    """Settings of FQL; the defaults are the published ones. None were published for locomotion."""

    actor: Literal["one-step-flow"] = "one-step-flow"
    """Its own kind of policy."""
    policy_hidden: Layers = (512, 512, 512, 512)
    distillation: Positive = 10.0
    """alpha, the weight of imitating the flow beside values. Higher stays closer to the log. It has to fit the task:
    0.03 to 10 if values are normalised, else in proportion to them."""
    normalize_values: bool = False
    """Divide the critics' values in the policy's loss by their mean size, so that alpha means the same whatever the
    rewards' units. Off in the published runs."""
    critic_vote: Vote = "mean"
    """Value of a successor: the mean of both critics, or the smaller (least), which is more careful."""
    flow_steps: Count = 10
    """Euler steps from noise to an action of the flow. More follow it more exactly and cost time."""


class Draws(NamedTuple):
    """What is random in one update."""

    flow: Float[Array, "rows act"]
    times: Float[Array, "rows 1"]
    here: Float[Array, "rows act"]
    """Noise of the policy at s."""
    there: Float[Array, "rows act"]
    """Noise of the policy at s'."""


class FQLState(NamedTuple):
    """Everything that changes in training."""

    flow: Flow
    actor: OneStep
    critics: Critics
    target_critics: Critics
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState
    key: PRNGKeyArray


def draw(key: PRNGKeyArray, rows: int, actions: int) -> Draws:
    """Noise from N(0, I) and times from U(0, 1)."""
    keys = jax.random.split(key, 4)
    noise = [jax.random.normal(key, (rows, actions)) for key in keys[:3]]
    return Draws(noise[0], jax.random.uniform(keys[3], (rows, 1)), *noise[1:])


def backup_target(
    actor: OneStep,
    target_critics: Critics,
    rows: Rows,
    noise: Float[Array, "rows act"],
    config: FQLConfig,
    discount: float,
) -> Float[Array, " rows"]:
    """`y = r + gamma (1 - terminated) mean_j Q'_j(s', clip g(s', z'))`, or the smaller of both."""
    later = target_critics(rows.next_observations, actor(rows.next_observations, noise))
    return rows.rewards + discount * (1.0 - rows.terminated) * one_of(later, config.critic_vote)


def actor_loss(
    networks: tuple[Flow, OneStep], critics: Critics, rows: Rows, draws: Draws, config: FQLConfig
) -> tuple[Float[Array, ""], Metrics]:
    """The losses of flow and policy, summed; see the top of this file."""
    flow, actor = networks
    imitation = flow_loss(flow, rows.observations, rows.actions, draws.flow, draws.times)
    wanted = jax.lax.stop_gradient(flow.carry(rows.observations, draws.here, config.flow_steps))
    actions = actor.unclipped(rows.observations, draws.here)
    distance = jnp.mean((actions - wanted) ** 2)
    values = jnp.mean(critics(rows.observations, jnp.clip(actions, -1.0, 1.0)), axis=0)
    size = jnp.maximum(jnp.mean(jnp.abs(values)), 1e-8) if config.normalize_values else jnp.ones(())
    loss = imitation + config.distillation * distance - jnp.mean(values) / jax.lax.stop_gradient(size)
    return loss, {"flow_loss": imitation, "distillation_error": distance, "q_policy": jnp.mean(values)}


class FQL(Algorithm[FQLConfig, FQLState]):
    """Flow Q-learning."""

    name = "fql"
    config_class = FQLConfig
    presets: ClassVar = {
        "cpu": {
            "agent": {
                "policy_hidden": (64, 64),
                "batch_size": 128,
                "actor_learning_rate": 1e-3,
                "actor_decay": 0.05,
                "critic_learning_rate": 1e-3,
                "distillation": 0.1,
                "normalize_values": True,
            },
            "training": {"steps": 30_000},
        },
        "paper": {"training": {**PAPER_TRAINING, "steps": 1_000_000}},
    }
    tasks = locomotion_tasks(
        FQLConfig, presets, steps=12_000, policy_hidden=(256, 256), distillation=1.0, normalize_values=True
    )

    def setup(self) -> None:
        """The optimisers."""
        cfg = self.config
        self._actor_optimizer = decaying(cfg.actor_learning_rate, cfg.actor_decay, self.total_steps)
        self._critic_optimizer = optax.adam(cfg.critic_learning_rate)

    def memory(self, observation_size: int, action_size: int) -> int:
        """Bytes of the networks and of what one update keeps of them for its gradients."""
        cfg = self.config
        numbers = 12 * cfg.batch_size * sum(cfg.policy_hidden)
        return update_bytes(observation_size, action_size, cfg.policy_hidden, numbers)

    def init(self, key: PRNGKeyArray, problem: Problem) -> FQLState:
        """Fresh networks."""
        sizes = (problem.observation_size, problem.action_size, self.config.policy_hidden)
        flow_key, actor_key, critic_key, key = jax.random.split(key, 4)
        flow, actor = Flow(flow_key, *sizes), OneStep(actor_key, *sizes)
        critics = Critics(critic_key, *sizes, activation=jax.nn.gelu, layer_norm=True)
        return FQLState(
            flow=flow,
            actor=actor,
            critics=critics,
            target_critics=critics,
            actor_optimizer=start_optimizer(self._actor_optimizer, (flow, actor)),
            critic_optimizer=start_optimizer(self._critic_optimizer, critics),
            key=key,
        )

    def update(self, state: FQLState, problem: Problem) -> tuple[FQLState, Metrics]:
        """One gradient step of flow, policy and critics, all three from where they stood before it."""
        cfg = self.config
        key, batch_key, draw_key = jax.random.split(state.key, 3)
        rows = logged_rows(batch_key, problem, cfg)
        draws = draw(draw_key, *rows.actions.shape)

        target = backup_target(state.actor, state.target_critics, rows, draws.there, cfg, problem.discount)
        loss, gradient = jax.value_and_grad(critic_loss)(state.critics, rows, target)
        critics, critic_optimizer = gradient_step(
            self._critic_optimizer, gradient, state.critic_optimizer, state.critics
        )
        networks = (state.flow, state.actor)
        gradient, told = jax.grad(actor_loss, has_aux=True)(networks, state.critics, rows, draws, cfg)
        (flow, actor), actor_optimizer = gradient_step(self._actor_optimizer, gradient, state.actor_optimizer, networks)
        after = FQLState(
            flow=flow,
            actor=actor,
            critics=critics,
            target_critics=move_towards(state.target_critics, critics, cfg.target_rate),
            actor_optimizer=actor_optimizer,
            critic_optimizer=critic_optimizer,
            key=key,
        )
        unit = problem.reward_scale / reward_factor(problem, cfg.reward_units)
        told["q_policy"] *= unit
        return after, told | {"critic_loss": loss, "q_logged": jnp.mean(target) * unit}
