"""MOBILE: values are lowered where the models' Bellman backups do not agree (Sun et al., 2023).

What is different from SAC on logged and imagined rows is the target of the critics on imagined rows,

    y = max( r - beta u(s, a) + gamma (1 - terminated) min_j Q'_j(s', a'), floor ),    a' ~ pi,
    u(s, a) = std_i E_{s' ~ member i, a' ~ pi} [ min_j Q'_j(s', a') ],

with Q' the target critics and the unbiased standard deviation over the best members. Logged rows have u = 0, rewards in
the buffer stay as they are, and the target has no entropy in it. Each expectation is a mean of several draws. All
members share their noise, so that u is what they say and not how they were drawn: members that agree have u = 0.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.algorithms.base import PAPER_TRAINING, locomotion_tasks, reward_factor
from phyb.algorithms.model_sac import (
    CPU_AGENT,
    LOCOMOTION_POOL,
    PAPER_POOL,
    ModelConfig,
    ModelSAC,
    by_dataset,
)
from phyb.algorithms.problem import Problem
from phyb.algorithms.sac import SACState
from phyb.data.dataset import Rows
from phyb.fields import Count, Fraction, NonNegative, Positive
from phyb.networks import Standardizer
from phyb.policy.actor import squash
from phyb.world.model import WorldModel
from phyb.world.rollout import elite_members


@dataclasses.dataclass(frozen=True)
class MOBILEConfig(ModelConfig):
    """Settings of MOBILE; the defaults are published ones."""

    actor_decay: Fraction = 0.0
    largest_temperature: Positive = 1.0
    """The learned temperature stays below it. Higher lets the policy become more random where rewards are large."""

    # --- Caution ---
    inconsistency_weight: NonNegative = 0.5
    """beta, price of one unit of inconsistency. Higher keeps to where the models agree about values; 0 trusts them
    everywhere."""
    inconsistency_samples: Count = 10
    """Successors that each of the best models draws for an imagined row. More measure with less noise and cost time."""
    target_floor: Literal["zero", "rewards", "none"] = "zero"
    """zero: no target is below 0, as published, which is wrong where returns are negative; rewards: none is below what
    the lowest logged reward at every step would add up to, which is 0 if no reward is negative; none: targets are as
    they are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial_temperature > self.largest_temperature:
            raise ValueError(
                f"initial_temperature must be at most largest_temperature ({self.largest_temperature}), "
                f"found {self.initial_temperature}"
            )


def inconsistency(
    key: PRNGKeyArray,
    agent: SACState,
    world: WorldModel,
    members: Int[Array, " asked"],
    standardizer: Standardizer,
    rows: Rows,
    samples: int,
) -> Float[Array, " rows"]:
    """`std_i mean_n min_j Q'_j(s'_{i,n}, a'_{i,n})` over members, divided by their number less one; one alone has 0."""
    state_key, action_key = jax.random.split(key)
    told = world.predict(members, rows.observations, rows.actions)
    noise = jax.random.normal(state_key, (samples, 1, *rows.observations.shape))
    successors = standardizer(told.next_mean + told.next_std * noise)
    gaussian = agent.actor(successors)
    noise = jax.random.normal(action_key, (samples, 1, *rows.actions.shape))
    actions = squash(gaussian.mean + jnp.exp(gaussian.log_std) * noise)
    values = jnp.min(agent.target_critics(successors, actions), axis=0)
    return jnp.std(jnp.mean(values, axis=0), axis=0, ddof=min(1, len(members) - 1))


class MOBILE(ModelSAC[MOBILEConfig]):
    """Model-Bellman inconsistency for model-based offline policy optimisation."""

    name = "mobile"
    config_class = MOBILEConfig
    presets: ClassVar = {
        "cpu": {"agent": CPU_AGENT | {"target_floor": "rewards"}, "training": {"steps": 10_000}},
        "paper": {"pool": PAPER_POOL, "training": {**PAPER_TRAINING, "steps": 3_000_000}},
    }
    tasks = locomotion_tasks(
        MOBILEConfig, presets, steps=15_000, pool=LOCOMOTION_POOL, target_floor="rewards", inconsistency_samples=2
    )
    backup_entropy = False
    datasets = by_dataset(
        rollout_length={
            "random": (5, 5, 5),
            "medium": (5, 5, 5),
            "medium-replay": (5, 5, 1),
            "medium-expert": (5, 5, 1),
        },
        inconsistency_weight={
            "random": (0.5, 5.0, 2.0),
            "medium": (0.5, 1.5, 0.5),
            "medium-replay": (0.1, 0.1, 0.5),
            "medium-expert": (1.0, 1.5, 1.5),
        },
        real_fraction={"medium-expert": (0.5, 0.05, 0.05)},
        initial_temperature={"medium": (1.0, 0.2, 1.0), "medium-replay": (1.0, 0.2, 1.0)},
        temperature_learning_rate={"medium": (1e-4, 0.0, 1e-4), "medium-replay": (1e-4, 0.0, 1e-4)},  # 0 keeps it fixed
    )

    def setup(self) -> None:
        """The optimisers; that of the temperature stops at its bound."""
        super().setup()
        bound = math.log(self.config.largest_temperature)

        def stop(changes: optax.Updates, value: optax.Params | None) -> optax.Updates:
            return jnp.minimum(jnp.asarray(changes), bound - jnp.asarray(value))

        temperature = optax.chain(self._optimizers.temperature, optax.stateless(stop))
        self._optimizers = self._optimizers._replace(temperature=temperature)

    def memory(self, observation_size: int, action_size: int) -> int:
        """What SAC on logged and imagined rows needs, and what the networks hold of all successors."""
        cfg = self.config
        rows = cfg.batch_size * min(cfg.elites, self.settings.pool.pool_size if self.settings.pool else 1)
        numbers = rows * cfg.inconsistency_samples * (4 * max(cfg.policy_hidden, default=1) + 2 * observation_size)
        return super().memory(observation_size, action_size) + 4 * numbers

    def charge(self, key: PRNGKeyArray, agent: SACState, problem: Problem, imagined: Rows) -> Float[Array, " rows"]:
        """`beta u(s, a)`; the critics' units are those of their rewards."""
        cfg, world = self.config, problem.learned_world()
        elites = elite_members(world.pool, cfg.elites)
        samples = cfg.inconsistency_samples
        found = inconsistency(key, agent, world, elites, problem.standardizer, imagined, samples)
        return cfg.inconsistency_weight * found

    def lowest_target(self, problem: Problem) -> Float[Array, ""] | None:
        """The floor of targets."""
        lowest = problem.value_low * reward_factor(problem, self.config.reward_units)
        return {"zero": jnp.zeros(()), "rewards": lowest}.get(self.config.target_floor)
