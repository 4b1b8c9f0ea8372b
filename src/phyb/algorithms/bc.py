"""Behaviour cloning: do what the log did. What an offline algorithm has to beat."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms.base import (
    PAPER_TRAINING,
    Algorithm,
    AlgorithmConfig,
    Metrics,
    decaying,
    locomotion_tasks,
    standardized,
)
from phyb.algorithms.problem import Problem
from phyb.data.dataset import Rows
from phyb.networks import gradient_step, start_optimizer
from phyb.policy.actor import Actor
from phyb.policy.registry import make_actor


@dataclasses.dataclass(frozen=True)
class BCConfig(AlgorithmConfig):
    """Settings of behaviour cloning."""

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Whoever imitates asks no reward what an action was worth."""
        return ("discount", "reward")


class BCState(NamedTuple):
    """Everything that changes in training."""

    actor: Actor
    optimizer: optax.OptState
    key: PRNGKeyArray


def cloning_error(actor: Actor, rows: Rows) -> Float[Array, ""]:
    """`mean (pi(s) - a)^2` over rows and columns of the actions; pi(s) is the actor's mean action."""
    return jnp.mean((actor.mode(rows.observations) - rows.actions) ** 2)


class BC(Algorithm[BCConfig, BCState]):
    """Least squares on the logged actions."""

    name = "bc"
    config_class = BCConfig
    presets: ClassVar = {
        "cpu": {
            "agent": {"policy_hidden": (64, 64), "batch_size": 128, "actor_learning_rate": 1e-3, "actor_decay": 0.0},
            "training": {"steps": 10_000},
        },
        "paper": {"training": {**PAPER_TRAINING, "steps": 1_000_000}},
    }
    tasks = locomotion_tasks(BCConfig, presets, steps=20_000)

    def setup(self) -> None:
        """The optimiser."""
        cfg = self.config
        self._optimizer = decaying(cfg.actor_learning_rate, cfg.actor_decay, self.total_steps)

    def init(self, key: PRNGKeyArray, problem: Problem) -> BCState:
        """A fresh actor."""
        actor_key, key = jax.random.split(key)
        sizes = (problem.observation_size, problem.action_size, self.config.policy_hidden)
        actor = make_actor(self.config.actor, actor_key, *sizes)
        return BCState(actor, start_optimizer(self._optimizer, actor), key)

    def update(self, state: BCState, problem: Problem) -> tuple[BCState, Metrics]:
        """One gradient step on a batch of logged rows."""
        key, batch_key = jax.random.split(state.key)
        rows = standardized(problem, problem.sample(batch_key, self.config.batch_size))
        loss, gradient = jax.value_and_grad(cloning_error)(state.actor, rows)
        actor, optimizer = gradient_step(self._optimizer, gradient, state.optimizer, state.actor)
        return BCState(actor, optimizer, key), {"actor_loss": loss}
