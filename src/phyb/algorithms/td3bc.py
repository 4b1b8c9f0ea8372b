"""TD3+BC: TD3 whose actor is also asked to imitate the log (Fujimoto and Gu, 2021).

What is different from TD3 is the actor's loss,

    -lambda mean Q_1(s, pi(s)) + mean (pi(s) - a)^2,    lambda = alpha / mean |Q_1(s, pi(s))|,

where lambda is a number, not a function of pi: it makes the first term as large as alpha whatever the scale of values.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
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
from phyb.algorithms.problem import Problem
from phyb.algorithms.td3 import TD3Config, TD3State
from phyb.data.dataset import Rows
from phyb.fields import NonNegative
from phyb.policy.actor import Actor
from phyb.policy.critics import Critics


@dataclasses.dataclass(frozen=True)
class TD3BCConfig(TD3Config):
    """Settings of TD3+BC."""

    improvement: NonNegative = 2.5
    """alpha, the weight of values beside imitation. Higher trusts the critics more; 0 is behaviour cloning."""


def actor_loss(improvement: float, actor: Actor, critics: Critics, rows: Rows) -> Float[Array, ""]:
    """`-lambda mean Q_1(s, pi(s)) + mean (pi(s) - a)^2`; lambda is improvement / mean |Q_1(s, pi(s))|, held fixed."""
    values = critics(rows.observations, actor.mode(rows.observations))[0]
    scale = jax.lax.stop_gradient(jnp.maximum(jnp.mean(jnp.abs(values)), 1e-8))
    return -improvement / scale * jnp.mean(values) + cloning_error(actor, rows)


class TD3BC(Algorithm[TD3BCConfig, TD3State]):
    """TD3 with an imitating actor."""

    name = "td3bc"
    config_class = TD3BCConfig
    presets: ClassVar = {
        "cpu": {
            "agent": {
                "policy_hidden": (64, 64),
                "batch_size": 128,
                "actor_learning_rate": 1e-3,
                "actor_decay": 0.05,
                "critic_learning_rate": 1e-3,
            },
            "training": {"steps": 100_000},
        },
        "paper": {"training": {**PAPER_TRAINING, "steps": 1_000_000}},
    }
    tasks = locomotion_tasks(TD3BCConfig, presets, steps=50_000)

    def setup(self) -> None:
        """The optimisers."""
        self._optimizers = td3.make_optimizers(self.config, self.total_steps)

    def init(self, key: PRNGKeyArray, problem: Problem) -> TD3State:
        """Fresh networks."""
        return td3.start(self.config, self._optimizers, key, problem.observation_size, problem.action_size)

    def update(self, state: TD3State, problem: Problem) -> tuple[TD3State, Metrics]:
        """One update on a batch of logged rows."""
        key, batch_key = jax.random.split(state.key)
        return self.learn(state, key, logged_rows(batch_key, problem, self.config), problem)

    def learn(self, state: TD3State, key: PRNGKeyArray, rows: Rows, problem: Problem) -> tuple[TD3State, Metrics]:
        """One update of the critics, every other time also of the actor, on rows as critics take them."""
        cfg = self.config

        def loss(actor: Actor, critics: Critics, rows: Rows) -> Array:
            return actor_loss(cfg.improvement, actor, critics, rows)

        state, told = td3.learn(cfg, self._optimizers, state, key, rows, problem.discount, loss)
        told["q_logged"] *= problem.reward_scale / reward_factor(problem, cfg.reward_units)
        return state, told | {"cloning_error": cloning_error(state.actor, rows)}
