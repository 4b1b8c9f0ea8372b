"""1R2R, one risk to rule them all: imagined rollouts lean to bad outcomes (Rigter et al., 2023).

What is different from SAC on logged and imagined rows is the law of an imagined step. Several outcomes of (s, a) are
drawn, each from its own member, so that they differ by what the models do not know and by noise alike. Each is valued
by

    v = r + gamma (1 - terminated) min_j Q_j(s', a'),    a' ~ pi,

and one of them is followed, worse ones more often. Rewards stay as they are.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from phyb.algorithms import sac
from phyb.algorithms.base import PAPER_TRAINING, critic_rows, locomotion_tasks
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
from phyb.algorithms.sac import SACState
from phyb.data.dataset import Rows
from phyb.fields import Count, Fraction, Whole, not_if, only_if
from phyb.networks import take
from phyb.policy.quantile import Risk, check_risk, distort
from phyb.world.rollout import Transition, elite_members, outcomes


@dataclasses.dataclass(frozen=True)
class OneRTwoRConfig(ModelConfig):
    """Settings of 1R2R; the defaults are published ones."""

    real_fraction: Fraction = 0.5
    clone_steps: Whole = 200_000

    # --- Caution ---
    outcomes: Count = 10
    """Outcomes drawn for each imagined step. More show rarer ones and cost time."""
    risk: Risk = "cvar"
    """Which outcome is followed: cvar, one of the worst share; wang, any, bad ones more often; neutral, any."""
    risk_amount: Annotated[float, not_if("risk", "neutral")] = 0.9
    """cvar: the share of outcomes that may be followed, lower is more cautious. wang: higher is more cautious; 0.1, 0.5
    and 0.75 are about what 0.9, 0.7 and 0.5 are for cvar."""
    tail: Annotated[Literal["each", "pooled"], only_if("risk", "cvar")] = "each"
    """With cvar, each: every rollout follows one of its own worst outcomes; pooled: the worst outcomes of all rollouts
    are put together and as many as there are rollouts drawn from them, so that some states go on more than once and
    others not at all (the released code)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_risk(self.risk, self.risk_amount)
        if self.tail == "pooled" and self.risk != "cvar":
            raise ValueError(f"tail can only be pooled where risk is cvar, found {self.risk}")


def choose(key: PRNGKeyArray, values: Float[Array, "outcomes rows"], risk: Risk, amount: float) -> Int[Array, " rows"]:
    """One outcome per row: the one of rank `floor(outcomes distort(tau))`, tau ~ U(0, 1), counted from the worst."""
    count, rows = values.shape
    level = distort(jax.random.uniform(key, (rows,)), risk, amount)
    rank = jnp.clip(jnp.floor(count * level).astype(jnp.int32), 0, count - 1)
    return jnp.argsort(values, axis=0)[rank, jnp.arange(rows)]


def choose_pooled(
    key: PRNGKeyArray, values: Float[Array, "outcomes rows"], alive: Bool[Array, " rows"], amount: float
) -> tuple[Int[Array, " rows"], Int[Array, " rows"], Bool[Array, " rows"]]:
    """As many of the worst outcomes of all rows that live as there are such rows, drawn without replacement.

    Gives the outcome and the row of each that was drawn, and which of them count.
    """
    count, rows = values.shape
    tail = math.ceil(round(amount * count, 6))
    lots = jnp.where(alive, jax.random.uniform(key, (tail, rows)), 2.0)  # those that ended come last
    drawn = jnp.argsort(lots.reshape(-1))[:rows]
    rank, row = drawn // rows, drawn % rows
    return jnp.argsort(values, axis=0)[rank, row], row, jnp.arange(rows) < jnp.sum(alive)


class OneRTwoR(ModelSAC[OneRTwoRConfig]):
    """One risk to rule them all."""

    name = "1r2r"
    config_class = OneRTwoRConfig
    presets: ClassVar = {
        "cpu": {
            "agent": CPU_AGENT | {"clone_steps": 1000, "rollout_length": 1, "risk_amount": 0.5},
            "training": {"steps": 10_000},
        },
        "paper": {
            "pool": PAPER_POOL | {"model_learning_rate": 3e-4, "model_patience": 10, "log_std_bound_weight": 1e-3},
            "training": {**PAPER_TRAINING, "steps": 2_000_000},
        },
    }
    """On liquidation 0.5 and one step were published."""
    tasks = locomotion_tasks(OneRTwoRConfig, presets, steps=30_000, pool=LOCOMOTION_POOL, clone_steps=5000)
    datasets = by_dataset(
        rollout_length={
            "random": (5, 5, 5),
            "medium": (5, 5, 5),
            "medium-replay": (5, 1, 1),
            "medium-expert": (5, 5, 1),
        },
        risk_amount={
            "random": (0.9, 0.7, 0.9),
            "medium": (0.9, 0.9, 0.9),
            "medium-replay": (0.9, 0.5, 0.9),
            "medium-expert": (0.9, 0.9, 0.7),
        },
    )

    def step(
        self, key: PRNGKeyArray, state: ModelState, problem: Problem, observations: Array, actions: Array, alive: Array
    ) -> Transition:
        """One step of all rollouts, each to a bad one of several outcomes."""
        cfg, world = self.config, problem.learned_world()
        outcome_key, value_key, choice_key = jax.random.split(key, 3)
        elites = elite_members(world.pool, cfg.elites)
        drawn = outcomes(outcome_key, world, elites, observations, actions, cfg.outcomes)
        values = self.outcome_values(value_key, state.sac, problem, drawn)
        row = jnp.arange(len(observations))
        if cfg.tail == "pooled":
            chosen, row, counts = choose_pooled(choice_key, values, alive > 0, cfg.risk_amount)
            alive = counts.astype(alive.dtype)
        else:
            chosen = choose(choice_key, values, cfg.risk, cfg.risk_amount)
        followed = take(drawn, (chosen, row))
        return Transition(followed, alive, 1.0 - followed.terminated)

    def outcome_values(self, key: PRNGKeyArray, agent: SACState, problem: Problem, drawn: Rows) -> Array:
        """What each outcome is worth to the critics that are learning, in their units."""
        rows = critic_rows(problem, drawn, self.config)
        next_actions = sac.draw(agent.actor, key, rows.next_observations, 1)[0][..., 0, :]
        later = jnp.min(agent.critics(rows.next_observations, next_actions), axis=0)
        return rows.rewards + problem.discount * (1.0 - rows.terminated) * later
