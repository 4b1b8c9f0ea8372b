"""DMG, doubly mild generalization: trust critics a little beyond the log, and pass on little of it (Mao et al., 2024).

What is different from TD3 is that critics back up a blend of two values, of actions near the log and of logged actions,

    y = r + gamma (1 - terminated) (lambda min_j Q'_j(s', a~') + (1 - lambda) V(s')),

with a~' the smoothed action of TD3 and V the expectile of IQL; and the actor's loss,

    -mean q(s) / mean |q(s)| + nu mean w (pi(s) - a)^2,    q(s) = min_j Q_j(s, pi(s)),
    w = min(exp(beta (min_j Q'_j(s, a) - V(s))), cap),

where mean |q(s)| is a number, not a function of pi. One update, in the order of the code: V, critics, actor.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms import td3
from phyb.algorithms.base import (
    PAPER_TRAINING,
    Algorithm,
    Metrics,
    locomotion_tasks,
    logged_rows,
    reward_factor,
)
from phyb.algorithms.bc import cloning_error
from phyb.algorithms.iql import expectile_loss
from phyb.algorithms.problem import Problem
from phyb.algorithms.settings import DATASETS
from phyb.algorithms.td3 import TD3Config, TD3State
from phyb.data.dataset import Rows
from phyb.fields import Fraction, NonNegative, OpenFraction, Positive, not_if
from phyb.networks import gradient_step, start_optimizer
from phyb.policy.actor import Actor
from phyb.policy.critics import Critics, ValueNetwork


@dataclasses.dataclass(frozen=True)
class DMGConfig(TD3Config):
    """Settings of DMG; the defaults are those published for locomotion."""

    actor_decay: Fraction = 0.0
    propagation: Fraction = 0.25
    """lambda, the share of the policy's own actions in what is backed up. 0 backs up logged actions only, as IQL does,
    1 the policy's only, as TD3 does: higher can become better than the log, and more wrong."""
    imitation: NonNegative = 0.1
    """nu, the weight of imitation beside values. Higher stays closer to the log."""
    expectile: Annotated[OpenFraction, not_if("propagation", 1.0)] = 0.7
    """Of the values of logged actions. 0.5 values the behaviour itself; towards 1 only the best logged actions
    count."""
    sharpness: Annotated[NonNegative, not_if("imitation", 0.0)] = 3.0
    """beta. 0 imitates all actions alike; higher imitates only those that are better than the value."""
    largest_weight: Annotated[Positive, not_if("imitation", 0.0)] = 3.0
    """Most that one row may count in the imitation. Lower is steadier."""


# Weak on logs of poor or mixed actors, strong on those with an expert; full-replay as medium-replay.
PUBLISHED = {name: {"imitation": 10.0 if name.endswith("expert") else 0.1} for name in DATASETS}


class DMGState(NamedTuple):
    """Everything that changes in training."""

    td3: TD3State
    value: ValueNetwork
    value_optimizer: optax.OptState

    @property
    def actor(self) -> Actor:
        """The policy's network."""
        return self.td3.actor


def blended(share: float, values: Float[Array, " rows"], logged_values: Float[Array, " rows"]) -> Float[Array, " rows"]:
    """`lambda min_j Q'_j(s', a~') + (1 - lambda) V(s')`."""
    return share * values + (1.0 - share) * logged_values


def actor_loss(
    imitation: float, actor: Actor, critics: Critics, rows: Rows, weights: Float[Array, " rows"]
) -> Float[Array, ""]:
    """`-mean q / mean |q| + nu mean w (pi(s) - a)^2` with `q = min_j Q_j(s, pi(s))`, means over rows and columns."""
    actions = actor.mode(rows.observations)
    values = jnp.min(critics(rows.observations, actions), axis=0)
    scale = jax.lax.stop_gradient(jnp.maximum(jnp.mean(jnp.abs(values)), 1e-8))
    return -jnp.mean(values) / scale + imitation * jnp.mean(weights[:, None] * (actions - rows.actions) ** 2)


class DMG(Algorithm[DMGConfig, DMGState]):
    """Doubly mild generalization."""

    name = "dmg"
    config_class = DMGConfig
    presets: ClassVar = {
        "cpu": {
            "agent": {
                "policy_hidden": (64, 64),
                "batch_size": 128,
                "actor_learning_rate": 1e-3,
                "critic_learning_rate": 1e-3,
            },
            "training": {"steps": 60_000},
        },
        "paper": {"training": {**PAPER_TRAINING, "steps": 1_000_000}},
    }
    tasks = locomotion_tasks(DMGConfig, presets, steps=40_000)
    datasets = PUBLISHED

    def setup(self) -> None:
        """The optimisers."""
        self._optimizers = td3.make_optimizers(self.config, self.total_steps)

    def init(self, key: PRNGKeyArray, problem: Problem) -> DMGState:
        """Fresh networks."""
        key, value_key = jax.random.split(key)
        agent = td3.start(self.config, self._optimizers, key, problem.observation_size, problem.action_size)
        value = ValueNetwork(value_key, problem.observation_size, self.config.policy_hidden)
        return DMGState(agent, value, start_optimizer(self._optimizers.critics, value))

    def update(self, state: DMGState, problem: Problem) -> tuple[DMGState, Metrics]:
        """One update of value and critics, every other time also of the actor."""
        cfg = self.config
        key, batch_key = jax.random.split(state.td3.key)
        rows = logged_rows(batch_key, problem, cfg)
        logged = jnp.min(state.td3.target_critics(rows.observations, rows.actions), axis=0)

        def value_loss(value: ValueNetwork) -> Array:
            return expectile_loss(logged - value(rows.observations), cfg.expectile)

        loss, gradient = jax.value_and_grad(value_loss)(state.value)
        value, value_optimizer = gradient_step(self._optimizers.critics, gradient, state.value_optimizer, state.value)
        advantage = logged - value(rows.observations)
        weights = jnp.minimum(jnp.exp(cfg.sharpness * advantage), cfg.largest_weight)

        def objective(actor: Actor, critics: Critics, rows: Rows) -> Array:
            return actor_loss(cfg.imitation, actor, critics, rows, weights)

        def backup(values: Array, rows: Rows) -> Array:
            return blended(cfg.propagation, values, value(rows.next_observations))

        agent, told = td3.learn(cfg, self._optimizers, state.td3, key, rows, problem.discount, objective, backup)
        unit = problem.reward_scale / reward_factor(problem, cfg.reward_units)
        told["q_logged"] *= unit
        return DMGState(agent, value, value_optimizer), told | {
            "value_loss": loss,
            "advantage": jnp.mean(advantage) * unit,
            "imitation_weight": jnp.mean(weights),
            "cloning_error": cloning_error(agent.actor, rows),
        }
