"""CQL: soft actor-critic whose critics are pressed down where the log is silent (Kumar et al., 2020).

What is different from SAC is a penalty on each critic,

    w mean_s [ log integral exp Q(s, a) da - Q(s, a_logged) ],

with the integral estimated from actions drawn at random, from the policy at s, and from the policy at the successor of
s, each divided by its density. The target of the critics has no entropy in it.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.algorithms import sac
from phyb.algorithms.base import (
    PAPER_TRAINING,
    Algorithm,
    CriticConfig,
    Metrics,
    decaying,
    locomotion_tasks,
    logged_rows,
    reward_factor,
)
from phyb.algorithms.problem import Problem
from phyb.algorithms.sac import SACState
from phyb.data.dataset import Rows
from phyb.fields import Count, Layers, NonNegative, Positive, Whole, not_if
from phyb.policy.actor import Actor, unsquash
from phyb.policy.critics import Critics


@dataclasses.dataclass(frozen=True)
class ConservativeConfig(CriticConfig):
    """Settings of the penalty."""

    penalty_weight: NonNegative = 5.0
    """w. Higher stays closer to the log, and values are lower; 0 is SAC without entropy in its targets."""
    penalty_actions: Annotated[Count, not_if("penalty_weight", 0.0)] = 10
    """Actions drawn from each of the three sources. More estimate the integral better and cost time."""
    penalty_temperature: Annotated[Positive, not_if("penalty_weight", 0.0)] = 1.0
    """Q is divided by it inside the exponential. Lower presses only the highest values down."""
    penalty_groups: Annotated[Literal["all", "triples"], not_if("penalty_weight", 0.0)] = "all"
    """all: one integral from all actions drawn; triples: one from each three actions, one of a source, averaged, which
    is what a widely used implementation computes."""


@dataclasses.dataclass(frozen=True)
class CQLConfig(ConservativeConfig):
    """Settings of CQL."""

    policy_hidden: Layers = (256, 256, 256)
    actor_learning_rate: Positive = 1e-4
    temperature_learning_rate: Positive = 1e-4
    """Step of the optimiser of the temperature, which holds the policy's entropy at minus the number of actions."""
    clone_steps: Whole = 0
    """Updates at the start in which the actor imitates the log instead of following the critics."""


class CQLState(NamedTuple):
    """Everything that changes in training."""

    sac: SACState
    key: PRNGKeyArray
    step: Int[Array, ""]

    @property
    def actor(self) -> Actor:
        """The policy's network."""
        return self.sac.actor


class Proposals(NamedTuple):
    """Actions at each state and the log-densities they were drawn with: random, from pi(. | s), from pi(. | s')."""

    actions: Float[Array, "rows three_times_count act"]
    log_density: Float[Array, "rows three_times_count"]


def propose(
    key: PRNGKeyArray,
    actor: Actor,
    observations: Float[Array, "rows obs"],
    next_observations: Float[Array, "rows obs"],
    action_size: int,
    count: int,
) -> Proposals:
    """`count` actions of each source. Those of the policy at s' are meant for s too; none carries a gradient."""
    keys = jax.random.split(key, 3)
    shape = (len(observations), count, action_size)
    anywhere = jax.random.uniform(keys[0], shape, minval=-1.0, maxval=1.0)
    here, here_density = sac.draw(actor, keys[1], observations, count)
    there, there_density = sac.draw(actor, keys[2], next_observations, count)
    uniform_density = jnp.full(shape[:2], -action_size * jnp.log(2.0))
    return jax.lax.stop_gradient(
        Proposals(
            jnp.concatenate([anywhere, here, there], axis=1),
            jnp.concatenate([uniform_density, here_density, there_density], axis=1),
        )
    )


def log_integral(
    critics: Critics,
    observations: Float[Array, "rows obs"],
    proposals: Proposals,
    *,
    temperature: float = 1.0,
    triples: bool = False,
) -> Float[Array, "2 rows"]:
    """`T log integral exp(Q_j(s, a) / T) da` of each critic by importance sampling from the proposals.

    With `triples` the logarithm is taken over each three actions, one of a source, and then averaged.
    """
    shape = (*proposals.actions.shape[:-1], observations.shape[-1])
    values = critics(jnp.broadcast_to(observations[:, None], shape), proposals.actions)
    terms = values / temperature - proposals.log_density
    sources = 3 if triples else terms.shape[-1]
    grouped = terms.reshape(*terms.shape[:-1], sources, -1)
    return temperature * jnp.mean(jax.nn.logsumexp(grouped, axis=-2) - jnp.log(sources), axis=-1)


def conservative_gap(
    critics: Critics,
    rows: Rows,
    proposals: Proposals,
    config: ConservativeConfig,
    observations: Float[Array, "states obs"] | None = None,
    weights: Float[Array, " rows"] | float = 1.0,
) -> Float[Array, ""]:
    """`sum_j mean w (T log integral exp(Q_j / T) - Q_j(s, a))`: how far critics rise above what they say of the log.

    The integral is taken at `observations`, where the proposals are for, or else at the states of the logged rows.
    """
    triples = config.penalty_groups == "triples"
    states = rows.observations if observations is None else observations
    above = log_integral(critics, states, proposals, temperature=config.penalty_temperature, triples=triples)
    logged = critics(rows.observations, rows.actions)
    return jnp.sum(jnp.mean(weights * above, axis=-1) - jnp.mean(weights * logged, axis=-1))


def logged_density(actor: Actor, rows: Rows) -> Float[Array, " rows"]:
    """`log pi(a | s)` of the logged actions."""
    draws = unsquash(rows.actions)
    return actor(rows.observations).log_density(draws[:, None])[:, 0] - sac.log_slope(draws)


def make_optimizers(config: CQLConfig, steps: int) -> sac.Optimizers:
    """The optimisers of a run of so many updates."""
    return sac.Optimizers(
        decaying(config.actor_learning_rate, config.actor_decay, steps),
        decaying(config.critic_learning_rate, 1.0, steps),
        decaying(config.temperature_learning_rate, 1.0, steps),
    )


def learn(
    config: CQLConfig,
    optimizers: sac.Optimizers,
    agent: SACState,
    key: PRNGKeyArray,
    rows: Rows,
    proposals: Proposals,
    discount: float,
    *,
    imitate: Array | None = None,
    row_weights: Float[Array, " rows"] | float = 1.0,
    penalty_weights: Float[Array, " rows"] | float = 1.0,
) -> tuple[SACState, Metrics]:
    """One update of SAC with the penalty on its critics; the actor imitates the log where `imitate` holds."""

    def penalty(critics: Critics) -> Array:  # half of it, as SAC takes half of the squared error
        gap = conservative_gap(critics, rows, proposals, config, weights=penalty_weights)
        return 0.5 * config.penalty_weight * gap

    def actor_objective(
        actor: Actor, critics: Critics, temperature: Array, key: PRNGKeyArray, observations: Array
    ) -> tuple[Array, Array]:
        loss, log_density = sac.actor_loss(actor, critics, temperature, key, observations)
        if imitate is not None:
            cloning = jnp.mean(temperature * log_density - logged_density(actor, rows))
            loss = jnp.where(imitate, cloning, loss)
        return loss, log_density

    return sac.learn(
        optimizers,
        agent,
        key,
        rows,
        discount=discount,
        target_rate=config.target_rate,
        backup_entropy=False,
        penalty=penalty,
        actor_objective=actor_objective,
        row_weights=row_weights,
    )


class CQL(Algorithm[CQLConfig, CQLState]):
    """Conservative Q-learning."""

    name = "cql"
    config_class = CQLConfig
    presets: ClassVar = {
        "cpu": {
            "agent": {
                "policy_hidden": (64, 64),
                "batch_size": 128,
                "actor_learning_rate": 3e-4,
                "actor_decay": 0.05,
                "critic_learning_rate": 1e-3,
                "temperature_learning_rate": 3e-4,
                "reward_units": "range",
                "penalty_weight": 0.02,  # about 5 where rewards are not divided by their range
            },
            "training": {"steps": 30_000},
        },
        "paper": {"training": {**PAPER_TRAINING, "steps": 1_000_000}},
    }
    tasks = locomotion_tasks(CQLConfig, presets, steps=10_000)

    def setup(self) -> None:
        """The optimisers."""
        self._optimizers = make_optimizers(self.config, self.total_steps)

    def init(self, key: PRNGKeyArray, problem: Problem) -> CQLState:
        """Fresh networks."""
        key, start_key = jax.random.split(key)
        sizes = (problem.observation_size, problem.action_size, self.config.policy_hidden)
        return CQLState(
            sac.start(self._optimizers, start_key, *sizes, kind=self.config.actor), key, jnp.zeros((), jnp.int32)
        )

    def update(self, state: CQLState, problem: Problem) -> tuple[CQLState, Metrics]:
        """One update of SAC with the penalty on its critics."""
        cfg = self.config
        key, batch_key, proposal_key, learn_key = jax.random.split(state.key, 4)
        rows = logged_rows(batch_key, problem, cfg)
        proposals = propose(
            proposal_key,
            state.actor,
            rows.observations,
            rows.next_observations,
            problem.action_size,
            cfg.penalty_actions,
        )

        imitate = state.step < cfg.clone_steps if cfg.clone_steps else None
        after, told = learn(
            cfg, self._optimizers, state.sac, learn_key, rows, proposals, problem.discount, imitate=imitate
        )
        told["q_logged"] = told.pop("target") * problem.reward_scale / reward_factor(problem, cfg.reward_units)
        return CQLState(after, key, state.step + 1), told
