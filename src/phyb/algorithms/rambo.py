"""RAMBO: the models turn against the policy, as far as the log allows (Rigter et al., 2022).

What is different from SAC on logged and imagined rows is that the best models of the pool are copied and go on
learning, in turn with the policy, down the loss

    w mean( A log p(s', r | s, a) ) - log-likelihood of logged rows,    p = 1/E sum_i p_i,

with (s', r) drawn from the models under the policy and A, its advantage

    A = r + gamma (1 - terminated) min_j Q_j(s', mode pi(s')) - min_j Q_j(s, a),

standardised over the batch. Outcomes that are better for the policy than others become less likely, unless the log says
that they happen.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms import sac
from phyb.algorithms.base import PAPER_TRAINING, Algorithm, Metrics, critic_rows, locomotion_tasks
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
from phyb.dynamics.model import DynamicsModel, gaussian_nll
from phyb.fields import Count, Fraction, NonNegative, Positive, Whole
from phyb.networks import gradient_step, start_optimizer, take
from phyb.policy.actor import Actor
from phyb.world.model import WorldModel
from phyb.world.rollout import elite_members, outcomes


@dataclasses.dataclass(frozen=True)
class RAMBOConfig(ModelConfig):
    """Settings of RAMBO; the defaults are published ones."""

    real_fraction: Fraction = 0.5
    clone_steps: Whole = 200_000

    # --- Adversary ---
    adversary_weight: NonNegative = 3e-4
    """w. Higher makes the models worse for the policy and less like the log; 0 goes on fitting the log alone."""
    adversary_learning_rate: Positive = 3e-4
    """Step of the models' optimiser."""
    adversary_batch_size: Count = 256
    """Imagined rows, and logged rows, of one step of the models. Larger is smoother and slower."""
    adversary_every: Count = 1
    """Updates of the policy for one of the models. Higher costs less time and moves them less."""


class RAMBOState(NamedTuple):
    """Everything that changes in training."""

    agent: ModelState
    members: DynamicsModel
    """The models that rollouts follow, stacked."""
    optimizer: optax.OptState
    states: Float[Array, "rows obs"]
    """Where the rollouts that teach the models stand."""
    key: PRNGKeyArray

    @property
    def actor(self) -> Actor:
        """The policy's network."""
        return self.agent.actor


def standardized_rows(world: WorldModel, rows: Rows) -> tuple[Array, Array]:
    """What the models take and what they predict on these rows, as they are trained on it."""
    change, rewards = rows.next_observations - rows.observations, rows.rewards * world.reward_scale
    inputs = jnp.concatenate([rows.observations, world.env_action(rows.actions)], axis=-1)
    targets = jnp.concatenate([change, rewards[:, None]], axis=-1)
    return world.pool.inputs(inputs), world.pool.outputs(targets)


def mixture_log_density(world: WorldModel, rows: Rows) -> Float[Array, " rows"]:
    """`log 1/M sum_i p_i(s' - s, r | s, a)` over all members, of standardised numbers.

    Numbers that never change in the log are left out: they have no density.
    """
    inputs, targets = standardized_rows(world, rows)
    heads = jax.vmap(lambda model: model(inputs))(world.pool.members)
    terms = -gaussian_nll(heads, targets) - 0.5 * jnp.log(2.0 * jnp.pi)
    of_member = jnp.sum(terms, axis=-1, where=world.pool.outputs.scale != 0)
    return jax.nn.logsumexp(of_member, axis=0) - jnp.log(world.pool.size)


def log_loss(world: WorldModel, logged: Rows) -> Float[Array, " members"]:
    """Each member's loss on logged rows: plain negative log-likelihood, and ends where they are learned."""
    inputs, targets = standardized_rows(world, logged)
    learned = 1.0 if world.termination == "learned" else 0.0

    def one(model: DynamicsModel) -> Array:
        ends = logged.terminated > 0
        return model.loss(inputs, targets, ends, nll_beta=0.0, bound_weight=1e-3, done_weight=learned)

    return jax.vmap(one)(world.pool.members)


def advantages(agent: SACState, rows: Rows, discount: float) -> Float[Array, " rows"]:
    """`r + gamma (1 - terminated) min_j Q_j(s', mode pi(s')) - min_j Q_j(s, a)`, standardised over the rows."""
    later = jnp.min(agent.critics(rows.next_observations, agent.actor.mode(rows.next_observations)), axis=0)
    now = jnp.min(agent.critics(rows.observations, rows.actions), axis=0)
    found = rows.rewards + discount * (1.0 - rows.terminated) * later - now
    return (found - jnp.mean(found)) / (jnp.std(found) + 1e-8)


class RAMBO(Algorithm[RAMBOConfig, RAMBOState]):
    """Robust adversarial model-based offline policy optimisation."""

    name = "rambo"
    config_class = RAMBOConfig
    needs_pool = True
    presets: ClassVar = {
        "cpu": {
            "agent": CPU_AGENT | {"clone_steps": 1000, "adversary_batch_size": 128, "adversary_every": 2},
            "training": {"steps": 10_000},
        },
        "paper": {
            "pool": PAPER_POOL | {"model_learning_rate": 3e-4, "model_patience": 10, "log_std_bound_weight": 1e-3},
            "training": {**PAPER_TRAINING, "steps": 2_000_000},
        },
    }
    tasks = locomotion_tasks(RAMBOConfig, presets, steps=30_000, pool=LOCOMOTION_POOL, clone_steps=5000)
    datasets = by_dataset(
        rollout_length={
            "random": (5, 2, 5),
            "medium": (5, 5, 5),
            "medium-replay": (5, 2, 5),
            "medium-expert": (5, 5, 2),
        },
        adversary_weight={
            "random": (0.0, 3e-4, 0.0),
            "medium": (3e-4, 3e-4, 0.0),
            "medium-replay": (3e-4, 3e-4, 0.0),
            "medium-expert": (3e-4, 3e-4, 3e-4),
        },
    )

    def setup(self) -> None:
        """SAC on logged and imagined rows, and the optimiser of the models."""
        self._agent = ModelSAC(self.settings)
        self._optimizer = optax.adam(self.config.adversary_learning_rate)

    def memory(self, observation_size: int, action_size: int) -> int:
        """What SAC on logged and imagined rows needs."""
        return self._agent.memory(observation_size, action_size)

    def init(self, key: PRNGKeyArray, problem: Problem) -> RAMBOState:
        """The policy before its first update, and a copy of the best models."""
        agent_key, start_key, key = jax.random.split(key, 3)
        pool = problem.learned_world().pool
        members = take(pool.members, elite_members(pool, self.config.elites))
        return RAMBOState(
            self._agent.init(agent_key, problem),
            members,
            start_optimizer(self._optimizer, members),
            problem.sample(start_key, self.config.adversary_batch_size).observations,
            key,
        )

    def update(self, state: RAMBOState, problem: Problem) -> tuple[RAMBOState, Metrics]:
        """One update of the policy on the models as they are, and now and then one of the models."""
        every = self.config.adversary_every
        agent, told = self._agent.update(state.agent, self.against(state.members, problem))
        state = state._replace(agent=agent)
        nothing = {"model_loss": jnp.zeros(()), "adversary_loss": jnp.zeros(())}
        state, losses = jax.lax.cond(
            agent.step % every == 0, lambda state: self.attack(state, problem), lambda state: (state, nothing), state
        )
        return state, told | {name: every * value for name, value in losses.items()}

    def attack(self, state: RAMBOState, problem: Problem) -> tuple[RAMBOState, Metrics]:
        """One step of the models, on one step of rollouts that start anew from the log every `rollout_length` steps."""
        cfg, size = self.config, self.config.adversary_batch_size
        key, start_key, act_key, step_key, logged_key = jax.random.split(state.key, 5)
        world, agent = self.against(state.members, problem).learned_world(), state.agent.sac
        anew = state.agent.step // cfg.adversary_every % cfg.rollout_length == 0
        fresh = problem.sample(start_key, size).observations
        here = jnp.where(anew, fresh, state.states)
        actions = sac.act(agent.actor, act_key, problem.standardizer(here))[0]
        rows = take(outcomes(step_key, world, jnp.arange(world.pool.size), here, actions, 1), 0)
        advantage = advantages(agent, critic_rows(problem, rows, cfg), problem.discount)
        logged = problem.sample(logged_key, size)

        def loss(members: DynamicsModel) -> tuple[Array, Metrics]:
            pool = dataclasses.replace(world.pool, members=members)
            world_now = dataclasses.replace(world, pool=pool)
            against = jnp.mean(advantage * mixture_log_density(world_now, rows))
            fit = jnp.mean(log_loss(world_now, logged))
            # Published losses of the models are sums over members and twice the negative log-likelihood.
            total = cfg.adversary_weight * against + 2.0 * pool.size * fit
            return total, {"model_loss": fit, "adversary_loss": against}

        gradient, losses = jax.grad(loss, has_aux=True)(state.members)
        members, optimizer = gradient_step(self._optimizer, gradient, state.optimizer, state.members)
        states = jnp.where(rows.terminated[:, None] > 0, fresh, rows.next_observations)
        return RAMBOState(state.agent, members, optimizer, states, key), losses

    def against(self, members: DynamicsModel, problem: Problem) -> Problem:
        """The problem in a world of these members."""
        world = problem.learned_world()
        nll = jnp.sort(world.pool.holdout_nll)[: self.config.elites]
        pool = dataclasses.replace(world.pool, members=members, holdout_nll=nll)
        return dataclasses.replace(problem, world=dataclasses.replace(world, pool=pool))
