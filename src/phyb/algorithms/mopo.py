"""MOPO: imagined rewards are lowered by how unsure the models are (Yu et al., 2020).

What is different from SAC on logged and imagined rows is the reward of an imagined step,

    r - w u(s, a),    u(s, a) = max_i || sigma_i(s, a) ||,

with sigma_i the standard deviations of next state and reward that member i predicts, in the units of the log. All
members have a say in u, also those that rollouts never follow.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms.base import PAPER_TRAINING, locomotion_tasks
from phyb.algorithms.model_sac import (
    CPU_AGENT,
    LOCOMOTION_POOL,
    PAPER_POOL,
    ModelConfig,
    ModelSAC,
    ModelState,
    by_dataset,
)
from phyb.algorithms.problem import Problem
from phyb.fields import Fraction, NonNegative
from phyb.world.model import WorldModel
from phyb.world.rollout import Transition


@dataclasses.dataclass(frozen=True)
class MOPOConfig(ModelConfig):
    """Settings of MOPO; the defaults are published ones."""

    actor_decay: Fraction = 0.0
    uncertainty_weight: NonNegative = 0.5
    """w, price of one unit of uncertainty in the units of the log's rewards. Higher keeps to where the models are sure;
    0 trusts them everywhere."""


def uncertainty(
    world: WorldModel, observations: Float[Array, "rows obs"], actions: Float[Array, "rows act"]
) -> Float[Array, " rows"]:
    """`max_i || sigma_i(s, a) ||` over all members of the pool, next state and reward together, in the log's units."""
    predictions = world.predict(jnp.arange(world.pool.size), observations, actions)
    return jnp.sqrt(jnp.max(jnp.sum(predictions.next_std**2, axis=-1) + predictions.reward_std**2, axis=0))


class MOPO(ModelSAC[MOPOConfig]):
    """Model-based offline policy optimisation."""

    name = "mopo"
    config_class = MOPOConfig
    presets: ClassVar = {
        "cpu": {"agent": CPU_AGENT, "training": {"steps": 10_000}},
        "paper": {"pool": PAPER_POOL, "training": {**PAPER_TRAINING, "steps": 3_000_000}},
    }
    tasks = locomotion_tasks(MOPOConfig, presets, steps=30_000, pool=LOCOMOTION_POOL)
    datasets = by_dataset(
        rollout_length={
            "random": (5, 5, 1),
            "medium": (5, 5, 5),
            "medium-replay": (5, 5, 1),
            "medium-expert": (5, 5, 1),
        },
        uncertainty_weight={
            "random": (0.5, 1.0, 1.0),  # of the first version of the datasets
            "medium": (0.5, 5.0, 0.5),
            "medium-replay": (0.5, 2.5, 2.5),
            "medium-expert": (2.5, 5.0, 2.5),
        },
    )

    def step(
        self, key: PRNGKeyArray, state: ModelState, problem: Problem, observations: Array, actions: Array, alive: Array
    ) -> Transition:
        """One step of all rollouts, paid less where the models are unsure."""
        moved = super().step(key, state, problem, observations, actions, alive)
        price = self.config.uncertainty_weight * uncertainty(problem.learned_world(), observations, actions)
        rewards = moved.row.rewards - price / problem.reward_scale
        return moved._replace(row=moved.row._replace(rewards=rewards))
