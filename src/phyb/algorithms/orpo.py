"""ORPO: an optimist chooses where the models are asked, a pessimist learns from the answers (Zhai et al., 2024).

There are two policies, and one uncertainty of an imagined step,

    u(s, a) = sqrt( mean over dimensions of var_i f_i(s, a) ),

with f_i the next state that member i expects, in the units of the log; all members have a say. The optimist is SAC on
logged rows and imagined ones that pay `r + b u`: it leads rollouts to where the models differ. The pessimist is TD3+BC
on logged rows, its own rollouts and those of the optimist, all of which pay `r - w u`, and it imitates all these rows.
The buffers hold r and u, so that each policy is paid in its own way for the same step. The pessimist is what is
evaluated and deployed.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.algorithms import sac
from phyb.algorithms.base import PAPER_TRAINING, Algorithm, Metrics, critic_rows, locomotion_tasks, reward_factor
from phyb.algorithms.model_sac import CPU_AGENT, LOCOMOTION_POOL, PAPER_POOL, ModelConfig, ModelSAC, joined, mean_value
from phyb.algorithms.problem import Problem
from phyb.algorithms.sac import SACState
from phyb.algorithms.td3 import TD3State
from phyb.algorithms.td3bc import TD3BC, TD3BCConfig
from phyb.data.dataset import Rows
from phyb.fields import Count, Fraction, Layers, NonNegative, Positive
from phyb.policy.actor import Actor
from phyb.world.model import WorldModel
from phyb.world.replay import ReplayBuffer
from phyb.world.rollout import Act, Recorder, Transition, elite_members, elite_step, rollout

Paid = tuple[Rows, Float[Array, " rows"]]
"""Imagined rows with the reward that the models predict, and the uncertainty of each."""


@dataclasses.dataclass(frozen=True)
class ORPOConfig(ModelConfig, TD3BCConfig):
    """Settings of ORPO; the defaults are published ones.

    Those of the actor and of TD3+BC are the pessimist's; the number of critics, the temperature and cloning are the
    optimist's.
    """

    policy_hidden: Layers = (256, 256, 256)
    actor_learning_rate: Positive = 3e-4

    # --- Optimist ---
    bonus: NonNegative = 0.015
    """b, what one unit of uncertainty earns the optimist. Higher leads rollouts to where the models differ."""
    optimist_learning_rate: Positive = 1e-4
    """Step of the optimiser of the optimist's actor, which falls to 0 along half a cosine."""
    optimist_length: Count = 1
    """Steps of the optimist's rollouts; `rollout_length` is for those of the pessimist."""

    # --- Pessimist ---
    uncertainty_weight: NonNegative = 1.0
    """w, price of one unit of uncertainty to the pessimist. Higher keeps to where the models agree."""
    own_fraction: Fraction = 0.45
    """Share of its own rollouts in a batch of the pessimist; what is left beside them and the log is the optimist's."""
    own_noise: NonNegative = 0.1
    """Standard deviation of the noise on the pessimist's actions in its own rollouts."""

    @property
    def own_rows(self) -> int:
        """The pessimist's own rows of a batch."""
        return min(round(self.own_fraction * self.batch_size), self.batch_size - self.real_rows)


"""Not in ranges of rewards: there what fresh critics say is as large as values are, and a deterministic actor that
follows it to the bounds stays there."""
_REPLAY = {"uncertainty_weight": 2.48, "rollout_length": 1, "optimist_length": 1}
DATASETS = {
    "halfcheetah-random": {"uncertainty_weight": 6.64, "optimist_length": 5},
    "walker2d-medium-replay": _REPLAY,
    "walker2d-full-replay": _REPLAY,
}
"""What the released code says; nothing was for full-replay, which takes what medium-replay has."""


class ORPOState(NamedTuple):
    """Everything that changes in training."""

    optimist: SACState
    pessimist: TD3State
    own: ReplayBuffer[Paid]
    """Rollouts of the pessimist."""
    others: ReplayBuffer[Paid]
    """Rollouts of the optimist."""
    key: PRNGKeyArray
    step: Int[Array, ""]

    @property
    def actor(self) -> Actor:
        """The network of the policy that is deployed: the pessimist's."""
        return self.pessimist.actor


def disagreement(
    world: WorldModel, observations: Float[Array, "rows obs"], actions: Float[Array, "rows act"]
) -> Float[Array, " rows"]:
    """`sqrt( mean over dimensions of var_i f_i(s, a) )` over all members of the pool."""
    means = world.predict(jnp.arange(world.pool.size), observations, actions).next_mean
    return jnp.sqrt(jnp.mean(jnp.var(means, axis=0), axis=-1))


class ORPO(Algorithm[ORPOConfig, ORPOState]):
    """Optimistic rollouts for pessimistic policy optimisation."""

    name = "orpo"
    config_class = ORPOConfig
    needs_pool = True
    presets: ClassVar = {
        "cpu": {
            "agent": CPU_AGENT | {"optimist_learning_rate": 3e-4, "reward_units": "raw", "initial_temperature": 10.0},
            "training": {"steps": 20_000},
        },
        "paper": {"pool": PAPER_POOL, "training": {**PAPER_TRAINING, "steps": 1_000_000}},
    }
    tasks = locomotion_tasks(ORPOConfig, presets, steps=10_000, pool=LOCOMOTION_POOL)
    datasets = DATASETS

    def setup(self) -> None:
        """The two learners."""
        cfg, rate = self.config, self.config.optimist_learning_rate
        optimist = dataclasses.replace(
            cfg, actor_learning_rate=rate, actor_decay=0.0, rollout_length=cfg.optimist_length
        )
        self._optimist = ModelSAC(dataclasses.replace(self.settings, agent=optimist))
        self._pessimist = TD3BC(dataclasses.replace(self.settings, pool=None))

    def memory(self, observation_size: int, action_size: int) -> int:
        """What both learners need, and the pessimist's imagined rows that are kept or on their way."""
        cfg = self.config
        rows = cfg.rollout_starts * cfg.rollout_length * (cfg.rollout_rounds + 2)
        both = (each.memory(observation_size, action_size) for each in (self._optimist, self._pessimist))
        return sum(both) + 4 * rows * (2 * observation_size + action_size + 3)

    def init(self, key: PRNGKeyArray, problem: Problem) -> ORPOState:
        """Both policies before their first update, and empty buffers."""
        optimist_key, pessimist_key, key = jax.random.split(key, 3)
        cfg, explorer = self.config, self._optimist.init(optimist_key, problem)
        capacity = cfg.rollout_starts * cfg.rollout_length * cfg.rollout_rounds
        own = ReplayBuffer.empty(capacity, problem.observation_size, problem.action_size)
        pessimist = self._pessimist.init(pessimist_key, problem)
        buffers = own.with_column(), explorer.buffer.with_column()
        return ORPOState(explorer.sac, pessimist, *buffers, key, jnp.zeros((), jnp.int32))

    def imagine(self, key: PRNGKeyArray, state: ORPOState, problem: Problem) -> ORPOState:
        """One round of rollouts of each policy, from the same logged states."""
        cfg, world = self.config, problem.learned_world()
        start_key, own_key, other_key = jax.random.split(key, 3)
        starts = problem.sample(start_key, cfg.rollout_starts).observations
        move = elite_step(world, elite_members(world.pool, cfg.elites))

        def explore(key: PRNGKeyArray, observations: Array) -> Array:
            return sac.act(state.optimist.actor, key, problem.standardizer(observations))[0]

        def exploit(key: PRNGKeyArray, observations: Array) -> Array:
            actions = state.actor.mode(problem.standardizer(observations))
            return jnp.clip(actions + cfg.own_noise * jax.random.normal(key, actions.shape), -1.0, 1.0)

        def step(key: PRNGKeyArray, observations: Array, actions: Array, alive: Array) -> Transition:
            return move(key, observations, actions, alive)._replace(info=disagreement(world, observations, actions))

        def fill(buffer: ReplayBuffer[Paid], key: PRNGKeyArray, act: Act, length: int) -> ReplayBuffer[Paid]:
            record = Recorder(keep=lambda moved: ((moved.row, moved.info), moved.weight > 0))
            return buffer.add(*rollout(key, starts, act, step, length=length, record=record, hold=False).kept)

        own = fill(state.own, own_key, exploit, cfg.rollout_length)
        return state._replace(own=own, others=fill(state.others, other_key, explore, cfg.optimist_length))

    def update(self, state: ORPOState, problem: Problem) -> tuple[ORPOState, Metrics]:
        """Now and then a round of rollouts, then one update of each policy."""
        cfg = self.config
        key, roll_key, logged_key, own_key, other_key, optimist_key, pessimist_key = jax.random.split(state.key, 7)
        due = state.step % cfg.rollout_every == 0
        state = jax.lax.cond(due, lambda state: self.imagine(roll_key, state, problem), lambda state: state, state)
        logged = critic_rows(problem, problem.sample(logged_key, cfg.real_rows), cfg)
        others = state.others.sample(other_key, cfg.batch_size - cfg.real_rows)
        own = jax.tree.map(
            lambda mine, theirs: jnp.concatenate([mine, theirs[cfg.own_rows :]]),
            state.own.sample(own_key, cfg.own_rows),
            others,
        )
        optimist, explored = self._optimist.learn(
            state.optimist, optimist_key, joined(logged, self.paid(problem, others, cfg.bonus)), problem
        )
        imagined = self.paid(problem, own, -cfg.uncertainty_weight)
        pessimist, told = self._pessimist.learn(state.pessimist, pessimist_key, joined(logged, imagined), problem)
        units = problem.reward_scale / reward_factor(problem, cfg.reward_units)
        told |= {name: explored[name] for name in ("entropy", "temperature")} | {
            "q_logged": mean_value(pessimist.critics, logged) * units,
            "q_imagined": mean_value(pessimist.critics, imagined) * units,
            "reward_imagined": jnp.mean(imagined.rewards) * units,
            "imagined_end": jnp.mean(imagined.terminated),
            "charge": cfg.uncertainty_weight * jnp.mean(own[1]),
        }
        return state._replace(optimist=optimist, pessimist=pessimist, key=key, step=state.step + 1), told

    def paid(self, problem: Problem, imagined: Paid, weight: float) -> Rows:
        """Rows as critics take them that earn `r + weight u`."""
        rows, uncertainty = imagined
        earned = rows.rewards + weight * uncertainty / problem.reward_scale
        return critic_rows(problem, rows._replace(rewards=earned), self.config)
