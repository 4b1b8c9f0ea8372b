"""Soft actor-critic on logged and imagined rows, MBPO made offline: what most model-based algorithms here share.

Every `rollout_every` updates, short rollouts of the policy through the best models, from logged states, go to a replay
buffer. Each update of SAC takes a share of logged rows and the rest from the buffer. An algorithm changes what a
rollout's step is (`step`), what is taken off the critics' targets (`charge`) or added to their loss (`penalty`), or
what is done before and after.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from phyb.algorithms import sac
from phyb.algorithms.base import Algorithm, CriticConfig, Metrics, critic_rows, decaying, reward_factor
from phyb.algorithms.phyb_presets import TASKS
from phyb.algorithms.problem import Problem
from phyb.algorithms.sac import SACState
from phyb.data.dataset import Rows
from phyb.fields import Count, Fraction, NonNegative, Positive, Whole
from phyb.policy.actor import Actor
from phyb.policy.cloning import clone
from phyb.policy.critics import Critics
from phyb.world.replay import ReplayBuffer
from phyb.world.rollout import ROWS, Transition, elite_members, elite_step, rollout


@dataclasses.dataclass(frozen=True)
class ModelConfig(CriticConfig):
    """Settings of SAC on logged and imagined rows."""

    actor_learning_rate: Positive = 1e-4
    temperature_learning_rate: NonNegative = 1e-4
    """Step of the optimiser of the temperature, which holds the policy's entropy at minus the number of actions. 0
    leaves the temperature as it is at the start."""
    initial_temperature: Positive = 1.0
    """Weight of entropy at the start, in the units of the rewards; it is learned from there on."""
    critics: Count = 2
    """Q networks, of which the smallest value counts. More are more cautious and slower."""
    clone_steps: Whole = 0
    """Updates before the first in which the actor is fitted to the logged actions."""

    # --- Imagination ---
    real_fraction: Fraction = 0.05
    """Share of logged rows in a batch; the rest is imagined. Higher trusts the log more than the models. There is at
    least one row of each."""
    rollout_length: Count = 5
    """Steps of an imagined rollout. Higher sees more of where the policy leads, lower stays nearer to the data."""
    rollout_starts: Count = 50_000
    """Logged states from which rollouts start at a time. More make better use of the models and cost time."""
    rollout_every: Count = 1000
    """Updates between two rounds of rollouts. Lower follows the policy more closely and costs time."""
    rollout_rounds: Count = 5
    """Rounds of rollouts that the replay buffer holds. Higher keeps rows of older policies."""
    elites: Count = 5
    """Models, those with the lowest hold-out loss, that rollouts follow. More vary more and are worse models."""

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise ValueError(f"batch_size must be 2 or more, one logged and one imagined row, found {self.batch_size}")

    @property
    def real_rows(self) -> int:
        """Logged rows of a batch."""
        return min(max(round(self.real_fraction * self.batch_size), 1), self.batch_size - 1)


PAPER_POOL = {
    "pool_size": 7,
    "model_hidden": (200, 200, 200, 200),
    "model_learning_rate": 1e-3,
    "model_weight_decay": 7.5e-5,
    "model_steps": 195_000,
    "model_check_every": 3900,
    "model_patience": 5,
    "nll_beta": 0.0,
}
"""The models of this family at their published size; a check on the hold-out rows after each million rows."""

CPU_AGENT = {
    "policy_hidden": (64, 64),
    "batch_size": 128,
    "actor_learning_rate": 3e-4,
    "actor_decay": 0.05,
    "critic_learning_rate": 1e-3,
    "temperature_learning_rate": 3e-4,
    "initial_temperature": 0.1,
    "reward_units": "range",
    "rollout_starts": 2000,
    "rollout_every": 500,
}
"""Two cores, minutes. The pool is left as it is for other algorithms, so that it is trained once for all."""


LOCOMOTION_POOL = TASKS["cpu"]["locomotion"]["pool"]
"""On locomotion logs too, the pool is PhyB's."""


def by_dataset(**settings: Mapping[str, tuple[Any, Any, Any]]) -> dict[str, dict[str, Any]]:
    """What was published for datasets of D4RL: by setting and kind, for HalfCheetah, Hopper and Walker2d.

    Nothing was for expert and full-replay: they take what medium-expert and medium-replay have. A setting that is not
    named for a kind is that of the preset.
    """
    found: dict[str, dict[str, Any]] = {}
    for setting, kinds in settings.items():
        nearest = {"expert": "medium-expert", "full-replay": "medium-replay"}
        unpublished = {kind: kinds[near] for kind, near in nearest.items() if near in kinds}
        for kind, values in (unpublished | dict(kinds)).items():
            for body, value in zip(("halfcheetah", "hopper", "walker2d"), values, strict=True):
                found.setdefault(f"{body}-{kind}", {})[setting] = value
    return found


class ModelState(NamedTuple):
    """Everything that changes in training."""

    sac: SACState
    buffer: ReplayBuffer[Rows]
    key: PRNGKeyArray
    step: Int[Array, ""]
    known: Any = None
    """What the algorithm worked out once, before the first update."""

    @property
    def actor(self) -> Actor:
        """The policy's network."""
        return self.sac.actor


Config = TypeVar("Config", bound=ModelConfig)


class ModelSAC(Algorithm[Config, ModelState]):
    """Soft actor-critic on logged and imagined rows."""

    name = "model-sac"
    config_class = ModelConfig
    needs_pool = True
    backup_entropy: ClassVar[bool] = True
    """Whether the target of the critics counts entropy."""

    def setup(self) -> None:
        """The optimisers."""
        cfg, steps = self.config, self.total_steps
        self._optimizers = sac.Optimizers(
            decaying(cfg.actor_learning_rate, cfg.actor_decay, steps),
            decaying(cfg.critic_learning_rate, 1.0, steps),
            decaying(cfg.temperature_learning_rate, 1.0, steps),
        )

    def memory(self, observation_size: int, action_size: int) -> int:
        """What SAC needs, the imagined rows that are kept or on their way, and what the models hold of a step."""
        cfg, pool, width = self.config, self.settings.pool, 2 * observation_size + action_size + 2
        rows = cfg.rollout_starts * cfg.rollout_length * (cfg.rollout_rounds + 2)
        asked = cfg.rollout_starts * (pool.pool_size * (max(pool.model_hidden, default=1) + width) if pool else 0)
        twins = super().memory(observation_size, action_size)
        return twins * max(cfg.critics, 2) // 2 + 4 * (rows * width + 2 * asked)

    def init(self, key: PRNGKeyArray, problem: Problem) -> ModelState:
        """Fresh networks, the actor fitted to the log if that is asked for, and an empty replay buffer."""
        cfg, sizes = self.config, (problem.observation_size, problem.action_size)
        start_key, clone_key, key = jax.random.split(key, 3)
        start = sac.start(
            self._optimizers, start_key, *sizes, cfg.policy_hidden, cfg.initial_temperature, cfg.actor, cfg.critics
        )
        if cfg.clone_steps:
            actor = clone(
                clone_key,
                start.actor,
                problem.rows.observations,
                problem.rows.actions,
                steps=cfg.clone_steps,
                learning_rate=cfg.actor_learning_rate,
                batch_size=cfg.batch_size,
                standardizer=problem.standardizer,
            )
            start = start._replace(actor=actor)
        capacity = cfg.rollout_starts * cfg.rollout_length * cfg.rollout_rounds
        buffer = ReplayBuffer.empty(capacity, *sizes)
        return ModelState(start, buffer, key, jnp.zeros((), jnp.int32), self.prepare(problem))

    def prepare(self, problem: Problem) -> Any:
        """What is worked out once, before the first update: `known` of the state."""
        return None

    def step(
        self,
        key: PRNGKeyArray,
        state: ModelState,
        problem: Problem,
        observations: Float[Array, "rows obs"],
        actions: Float[Array, "rows act"],
        alive: Float[Array, " rows"],
    ) -> Transition:
        """One step of all rollouts."""
        world = problem.learned_world()
        return elite_step(world, elite_members(world.pool, self.config.elites))(key, observations, actions, alive)

    def charge(
        self, key: PRNGKeyArray, agent: SACState, problem: Problem, imagined: Rows
    ) -> Float[Array, " rows"] | None:
        """What the target of each imagined row is lowered by, in the critics' units; rows are those of the buffer."""
        return None

    def lowest_target(self, problem: Problem) -> Float[Array, ""] | None:
        """Targets of the critics below it count as it, in their units."""
        return None

    def penalty(
        self, key: PRNGKeyArray, agent: SACState, logged: Rows, imagined: Rows
    ) -> Callable[[Critics], Array] | None:
        """What is added to the critics' loss, of a batch that is ready for critics."""
        return None

    def imagine(self, key: PRNGKeyArray, state: ModelState, problem: Problem) -> tuple[Rows, Bool[Array, "steps rows"]]:
        """One round of rollouts of the policy from logged states, and which of its rows count."""
        start_key, roll_key = jax.random.split(key)
        starts = problem.sample(start_key, self.config.rollout_starts).observations

        def act(key: PRNGKeyArray, observations: Array) -> Array:
            return sac.act(state.actor, key, problem.standardizer(observations))[0]

        def step(key: PRNGKeyArray, observations: Array, actions: Array, alive: Array) -> Transition:
            return self.step(key, state, problem, observations, actions, alive)

        return rollout(roll_key, starts, act, step, length=self.config.rollout_length, record=ROWS, hold=False).kept

    def update(self, state: ModelState, problem: Problem) -> tuple[ModelState, Metrics]:
        """Now and then a round of rollouts, then one update of SAC on logged and imagined rows."""
        cfg = self.config
        key, roll_key, logged_key, imagined_key, penalty_key, learn_key = jax.random.split(state.key, 6)
        buffer = jax.lax.cond(
            state.step % cfg.rollout_every == 0,
            lambda buffer: buffer.add(*self.imagine(roll_key, state, problem)),
            lambda buffer: buffer,
            state.buffer,
        )
        logged = critic_rows(problem, problem.sample(logged_key, cfg.real_rows), cfg)
        drawn = buffer.sample(imagined_key, cfg.batch_size - cfg.real_rows)
        imagined = critic_rows(problem, drawn, cfg)
        charge = self.charge(penalty_key, state.sac, problem, drawn)
        charged = imagined if charge is None else imagined._replace(rewards=imagined.rewards - charge)
        penalty = self.penalty(penalty_key, state.sac, logged, imagined)
        after, metrics = self.learn(state.sac, learn_key, joined(logged, charged), problem, penalty)
        del metrics["target"]
        units = problem.reward_scale / reward_factor(problem, cfg.reward_units)
        metrics |= {} if charge is None else {"charge": jnp.mean(charge) * units}
        metrics |= {
            "q_logged": mean_value(after.critics, logged) * units,
            "q_imagined": mean_value(after.critics, imagined) * units,
            "reward_imagined": jnp.mean(imagined.rewards) * units,
            "imagined_end": jnp.mean(imagined.terminated),
        }
        return state._replace(sac=after, buffer=buffer, key=key, step=state.step + 1), metrics

    def learn(
        self,
        agent: SACState,
        key: PRNGKeyArray,
        rows: Rows,
        problem: Problem,
        penalty: Callable[[Critics], Array] | None = None,
    ) -> tuple[SACState, Metrics]:
        """One update of SAC on rows as critics take them."""
        return sac.learn(
            self._optimizers,
            agent,
            key,
            rows,
            discount=problem.discount,
            target_rate=self.config.target_rate,
            backup_entropy=self.backup_entropy,
            lowest_target=self.lowest_target(problem),
            penalty=penalty,
        )


def joined(*batches: Rows) -> Rows:
    """The rows of several batches in one."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *batches)


def mean_value(critics: Critics, rows: Rows) -> Float[Array, ""]:
    """The mean over rows of `min_j Q_j(s, a)`."""
    return jnp.mean(jnp.min(critics(rows.observations, rows.actions), axis=0))
