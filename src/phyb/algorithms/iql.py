"""IQL: learn the value of the better logged actions, and imitate them (Kostrikov et al., 2022).

No action outside the log is ever asked for. V is an upper expectile of Q over logged actions, Q backs V up, and the
actor imitates each logged action the more, the better it is than V:

    V:  mean |tau - 1(u < 0)| u^2,    u = min_j Q'_j(s, a) - V(s)
    Q:  sum_j mean (Q_j(s, a) - r - gamma (1 - terminated) V(s'))^2
    pi: -mean min(exp(beta u), cap) log pi(a | s)

pi is a Gaussian around tanh(mean) whose width does not depend on the state; it is not squashed.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms.base import (
    PAPER_TRAINING,
    Algorithm,
    CriticConfig,
    Metrics,
    RewardUnits,
    decaying,
    locomotion_tasks,
    logged_rows,
    reward_factor,
)
from phyb.algorithms.problem import Problem
from phyb.algorithms.td3 import critic_loss
from phyb.data.dataset import Rows
from phyb.fields import Fraction, NonNegative, OpenFraction, Positive, not_if
from phyb.networks import gradient_step, move_towards, start_optimizer
from phyb.policy.actor import Actor, Gaussian
from phyb.policy.critics import Critics, ValueNetwork
from phyb.policy.registry import make_actor


@dataclasses.dataclass(frozen=True)
class IQLConfig(CriticConfig):
    """Settings of IQL; the defaults are those published for locomotion."""

    actor_decay: Fraction = 0.0
    reward_units: RewardUnits = "returns"
    expectile: OpenFraction = 0.7
    """tau. 0.5 values the behaviour itself; towards 1 only the best logged actions count, and luck is taken for
    skill."""
    sharpness: NonNegative = 3.0
    """beta. 0 imitates all actions alike; higher imitates only those that are better than the value."""
    largest_weight: Annotated[Positive, not_if("sharpness", 0.0)] = 100.0
    """Most that one row may count in the imitation. Lower is steadier."""


class IQLState(NamedTuple):
    """Everything that changes in training."""

    actor: Actor
    log_std: Float[Array, " act"]
    critics: Critics
    target_critics: Critics
    value: ValueNetwork
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState
    value_optimizer: optax.OptState
    key: PRNGKeyArray


def expectile_loss(gaps: Float[Array, " rows"], expectile: float) -> Float[Array, ""]:
    """`mean |tau - 1(u < 0)| u^2`: rows above the value count tau, rows below it 1 - tau."""
    return jnp.mean(jnp.where(gaps < 0, 1.0 - expectile, expectile) * gaps**2)


def imitation_loss(
    actor: Actor, log_std: Float[Array, " act"], rows: Rows, weights: Float[Array, " rows"]
) -> Float[Array, ""]:
    """`-mean w log N(a; tanh mean(s), exp log_std)`."""
    mean = actor.mode(rows.observations)
    gaussian = Gaussian(mean, jnp.broadcast_to(log_std, mean.shape))
    return -jnp.mean(weights * gaussian.log_density(rows.actions[:, None])[:, 0])


class IQL(Algorithm[IQLConfig, IQLState]):
    """Implicit Q-learning."""

    name = "iql"
    config_class = IQLConfig
    presets: ClassVar = {
        "cpu": {
            "agent": {
                "policy_hidden": (64, 64),
                "batch_size": 128,
                "actor_learning_rate": 1e-3,
                "critic_learning_rate": 1e-3,
                "reward_units": "range",
            },
            "training": {"steps": 20_000},
        },
        "paper": {"training": {**PAPER_TRAINING, "steps": 1_000_000}},
    }
    tasks = locomotion_tasks(IQLConfig, presets, steps=50_000)

    def setup(self) -> None:
        """The optimisers."""
        cfg = self.config
        self._actor_optimizer = decaying(cfg.actor_learning_rate, cfg.actor_decay, self.total_steps)
        self._critic_optimizer = optax.adam(cfg.critic_learning_rate)

    def init(self, key: PRNGKeyArray, problem: Problem) -> IQLState:
        """Fresh networks."""
        obs, act, hidden = problem.observation_size, problem.action_size, self.config.policy_hidden
        actor_key, critic_key, value_key, key = jax.random.split(key, 4)
        actor, log_std = make_actor(self.config.actor, actor_key, obs, act, hidden), jnp.zeros(act)
        critics, value = Critics(critic_key, obs, act, hidden), ValueNetwork(value_key, obs, hidden)
        return IQLState(
            actor=actor,
            log_std=log_std,
            critics=critics,
            target_critics=critics,
            value=value,
            actor_optimizer=start_optimizer(self._actor_optimizer, (actor, log_std)),
            critic_optimizer=start_optimizer(self._critic_optimizer, critics),
            value_optimizer=start_optimizer(self._critic_optimizer, value),
            key=key,
        )

    def update(self, state: IQLState, problem: Problem) -> tuple[IQLState, Metrics]:
        """One gradient step of value, critics and actor, in this order."""
        cfg = self.config
        key, batch_key = jax.random.split(state.key)
        rows = logged_rows(batch_key, problem, cfg)
        logged = jnp.min(state.target_critics(rows.observations, rows.actions), axis=0)

        def value_loss(value: ValueNetwork) -> Array:
            return expectile_loss(logged - value(rows.observations), cfg.expectile)

        loss_of_value, gradient = jax.value_and_grad(value_loss)(state.value)
        value, value_optimizer = gradient_step(self._critic_optimizer, gradient, state.value_optimizer, state.value)

        target = rows.rewards + problem.discount * (1.0 - rows.terminated) * value(rows.next_observations)
        loss_of_critics, gradient = jax.value_and_grad(critic_loss)(state.critics, rows, target)
        critics, critic_optimizer = gradient_step(
            self._critic_optimizer, gradient, state.critic_optimizer, state.critics
        )

        advantage = logged - value(rows.observations)
        weights = jnp.minimum(jnp.exp(cfg.sharpness * advantage), cfg.largest_weight)

        def actor_objective(policy: tuple[Actor, Array]) -> Array:
            actor, log_std = policy
            return imitation_loss(actor, log_std, rows, weights)

        policy = (state.actor, state.log_std)
        loss_of_actor, gradient = jax.value_and_grad(actor_objective)(policy)
        (actor, log_std), actor_optimizer = gradient_step(
            self._actor_optimizer, gradient, state.actor_optimizer, policy
        )
        after = IQLState(
            actor=actor,
            log_std=jnp.clip(log_std, -5.0, 2.0),
            critics=critics,
            target_critics=move_towards(state.target_critics, critics, cfg.target_rate),
            value=value,
            actor_optimizer=actor_optimizer,
            critic_optimizer=critic_optimizer,
            value_optimizer=value_optimizer,
            key=key,
        )
        unit = problem.reward_scale / reward_factor(problem, cfg.reward_units)
        return after, {
            "critic_loss": loss_of_critics,
            "value_loss": loss_of_value,
            "actor_loss": loss_of_actor,
            "q_logged": jnp.mean(target) * unit,
            "advantage": jnp.mean(advantage) * unit,
            "imitation_weight": jnp.mean(weights),
        }
