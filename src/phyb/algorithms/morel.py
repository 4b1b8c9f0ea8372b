"""MOReL: rollouts halt, at a loss, where the models lie far apart (Kidambi et al., 2020).

What is different from SAC on logged and imagined rows is that they happen in a pessimistic MDP. Its models are trusted
at (s, a) as long as no two of them lie too far apart there,

    disc(s, a) = max_{i, j} || f_i(s, a) - f_j(s, a) ||,    disc(s, a) <= c max over the log of disc,

with f_i the next state that member i expects, in the units of the log; all members have a say. Any other step leads to
the state HALT: the episode terminates, and the step earns less than any in the log.

The paper plans in this MDP by natural policy gradient, from the first states of episodes. Here SAC does, with a few
logged rows in each batch and short rollouts from all logged states, as for the other algorithms with models.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms.base import PAPER_TRAINING, locomotion_tasks
from phyb.algorithms.model_sac import CPU_AGENT, LOCOMOTION_POOL, PAPER_POOL, ModelConfig, ModelSAC, ModelState
from phyb.algorithms.problem import Problem
from phyb.fields import Bound, Count, Fraction, Layers, NonNegative, Positive
from phyb.world.model import WorldModel
from phyb.world.rollout import Transition


@dataclasses.dataclass(frozen=True)
class MOReLConfig(ModelConfig):
    """Settings of MOReL; the defaults are published ones for this way to plan."""

    policy_hidden: Layers = (256, 256, 256)
    critic_learning_rate: Positive = 1e-4
    critics: Count = 10
    real_fraction: Fraction = 0.01

    # --- The unknown ---
    halt_threshold: NonNegative = 1.0
    """c, how far two models may lie apart, in units of the largest such distance on logged rows. Higher trusts the
    models further beyond the log, lower halts sooner; below 1 some logged rows count as unknown too."""
    halt_offset: Annotated[float, Bound("0 or less", lambda x: x <= 0)] = -200.0
    """Added to the lowest logged reward, in the units of the log: what a step to HALT earns. Lower keeps the policy
    farther from what is unknown."""


DATASETS = {"hopper-medium": {"halt_threshold": 1 / 3}}
"""All that was published: the released code has an example for this one."""


def discrepancy(
    world: WorldModel, observations: Float[Array, "rows obs"], actions: Float[Array, "rows act"]
) -> Float[Array, " rows"]:
    """`max_{i, j} || f_i(s, a) - f_j(s, a) ||`: how far apart two members expect the next state of the same row."""
    means = world.predict(jnp.arange(world.pool.size), observations, actions).next_mean

    def farthest(one: Array) -> Array:
        return jnp.max(jnp.sum((means - one) ** 2, axis=-1), axis=0)

    return jnp.sqrt(jnp.max(jax.lax.map(farthest, means), axis=0))


class MOReL(ModelSAC[MOReLConfig]):
    """Model-based offline reinforcement learning in a pessimistic MDP."""

    name = "morel"
    config_class = MOReLConfig
    presets: ClassVar = {
        "cpu": {"agent": CPU_AGENT | {"critics": 2}, "training": {"steps": 10_000}},
        "paper": {"pool": PAPER_POOL, "training": {**PAPER_TRAINING, "steps": 3_000_000}},
    }
    tasks = locomotion_tasks(MOReLConfig, presets, steps=20_000, pool=LOCOMOTION_POOL, critics=2)
    datasets = DATASETS

    def prepare(self, problem: Problem) -> Float[Array, ""]:
        """The largest discrepancy that is trusted."""
        world, rows = problem.learned_world(), problem.rows

        def of_row(row: tuple[Array, Array]) -> Array:
            return discrepancy(world, row[0][None], row[1][None])[0]

        found = jax.lax.map(of_row, (rows.observations, rows.actions), batch_size=1024)
        return self.config.halt_threshold * jnp.max(found)

    def step(
        self, key: PRNGKeyArray, state: ModelState, problem: Problem, observations: Array, actions: Array, alive: Array
    ) -> Transition:
        """One step of all rollouts, to HALT where the models lie too far apart."""
        moved = super().step(key, state, problem, observations, actions, alive)
        halts = discrepancy(problem.learned_world(), observations, actions) > state.known
        reward = jnp.min(problem.rows.rewards) + self.config.halt_offset / problem.reward_scale
        row = moved.row._replace(
            rewards=jnp.where(halts, reward, moved.row.rewards), terminated=jnp.where(halts, 1.0, moved.row.terminated)
        )
        return Transition(row, moved.weight, jnp.where(halts, 0.0, moved.survival))
