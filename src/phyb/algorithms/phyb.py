"""PhyB: values backed up through a pessimistic belief over models, a policy improved by mirror steps.

One update, in the order of the code:

1. take logged rows and the current states of imagined rollouts;
2. improve the policy there by a mirror step against the slow reference policy (`phyb_improvement.py`): a loss for the
   actor, a regularised value for V, an action for each rollout;
3. ask N drawn models about the rollouts, keep the k with the least backups, weigh them: targets for the critics and the
   law of the next imagined state;
4. one gradient step for critics, value and actor; target networks follow.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.algorithms.base import Algorithm, Metrics, update_bytes
from phyb.algorithms.phyb_config import PhyBConfig
from phyb.algorithms.phyb_improvement import PolicyImprovement
from phyb.algorithms.phyb_presets import PRESETS, TASKS
from phyb.algorithms.problem import Problem
from phyb.algorithms.rollback import Incumbent, rolled_back
from phyb.algorithms.starting import clone_log
from phyb.belief.backup import Belief, backup, belief_metrics, follow
from phyb.data.dataset import Rows
from phyb.dynamics.pool import Prediction
from phyb.networks import SlowAverage, gradient_step, move_towards, select, start_optimizer
from phyb.policy.actor import Actor
from phyb.policy.cloning import fit_returns
from phyb.policy.critics import Critics, ValueNetwork
from phyb.policy.policy import Policy
from phyb.policy.registry import make_actor
from phyb.world.model import Imagined

START_BATCH = 128
"""Fewest rows per step of the fits to the log at the start, which cost little beside an update."""


class PhyBState(NamedTuple):
    """Everything that changes while the policy is optimised; saving it is saving the run."""

    actor: Actor
    reference: SlowAverage[Actor]
    critics: Critics
    target_critics: Critics
    value: ValueNetwork
    target_value: ValueNetwork
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState
    step_size: Float[Array, ""]
    incumbent: Incumbent
    """The policy to go back to, with rollback."""
    rollouts: Float[Array, "rollouts obs"]
    rollout_age: Int[Array, " rollouts"]
    key: PRNGKeyArray
    step: Int[Array, ""]


class PhyB(Algorithm[PhyBConfig, PhyBState]):
    """Values under a pessimistic belief, improvement by mirror steps around a slow reference policy."""

    name = "phyb"
    config_class = PhyBConfig
    needs_pool = True
    presets = PRESETS
    tasks = TASKS

    def setup(self) -> None:
        """The policy improvement, and the optimisers; critics keep their full rate through the evaluation phase."""
        config, total_steps = self.config, self.total_steps

        def adam(rate: float, begin: int) -> optax.GradientTransformation:
            last = rate * config.final_learning_rate
            return optax.adam(optax.linear_schedule(rate, last, max(total_steps - begin, 1), begin))

        self._actor_optimizer = adam(config.actor_learning_rate, 0)
        self._critic_optimizer = adam(config.critic_learning_rate, config.evaluation_steps)
        self.improvement = PolicyImprovement(config, total_steps)
        by_gradient = config.improvement == "gradient"
        self._improve = self.improvement.by_gradient if by_gradient else self.improvement.by_candidates

    @property
    def asks_about_log(self) -> bool:
        """Whether updates ask the pool about logged rows, so that its predictions are worth caching."""
        return self.config.real_target == "belief"

    def memory(self, observation_size: int, action_size: int) -> int:
        """Bytes of the networks and of one update."""
        pool = self.settings.pool
        numbers = self.config.numbers_in_update(observation_size, pool.model_hidden if pool else ())
        return update_bytes(observation_size, action_size, self.config.policy_hidden, numbers)

    def init(self, key: PRNGKeyArray, problem: Problem) -> PhyBState:
        """Fresh networks, the actor cloned from the log, rollouts at logged states."""
        cfg, obs, act = self.config, problem.observation_size, problem.action_size
        batch_size = max(cfg.real_batch_size, START_BATCH)
        actor_key, critic_key, value_key, clone_key, chain_key, key = jax.random.split(key, 6)
        actor = make_actor(cfg.actor, actor_key, obs, act, cfg.policy_hidden)
        if cfg.clone_steps:
            actor = clone_log(clone_key, actor, problem, cfg, batch_size).with_spread(cfg.clone_spread)
        norm = cfg.critic_layer_norm
        critics = Critics(critic_key, obs, act, cfg.policy_hidden, count=cfg.critics, layer_norm=norm)
        value = ValueNetwork(value_key, obs, cfg.policy_hidden, layer_norm=norm)
        if cfg.return_steps:
            returns_key, steps = jax.random.fold_in(clone_key, 1), cfg.return_steps
            critics, value = fit_returns(returns_key, critics, value, problem, steps=steps, batch_size=batch_size)
        return PhyBState(
            actor=actor,
            reference=SlowAverage.start(actor),
            critics=critics,
            target_critics=critics,
            value=value,
            target_value=value,
            actor_optimizer=start_optimizer(self._actor_optimizer, actor),
            critic_optimizer=start_optimizer(self._critic_optimizer, (critics, value)),
            step_size=jnp.full((), cfg.step_size, jnp.float32),
            incumbent=Incumbent.start(actor),
            rollouts=problem.sample(chain_key, cfg.rollouts).observations,
            rollout_age=jnp.zeros(cfg.rollouts, jnp.int32),
            key=key,
            step=jnp.zeros((), jnp.int32),
        )

    def policy(self, state: PhyBState, problem: Problem) -> Policy:
        """The policy to evaluate and deploy: the mean action of the slow reference."""
        return Policy(state.reference.average, problem.standardizer, problem.action_low, problem.action_high)

    def before_evaluation(self, state: PhyBState, problem: Problem) -> PhyBState:
        """With rollback, go back to the incumbent if the models agree that the reference has lost against it."""
        if not self.config.rollback:
            return state
        fresh = lambda actor: {"actor_optimizer": start_optimizer(self._actor_optimizer, actor)}  # noqa: E731
        return rolled_back(state, problem, self.config.belief, 0.0, self.total_steps, fresh)

    def update(self, state: PhyBState, problem: Problem) -> tuple[PhyBState, Metrics]:
        """One update; pure, so that chunks of updates compile into one call."""
        cfg, split = self.config, self.config.real_batch_size
        key, row_key, action_key, other_key, backup_key, follow_key, target_key = jax.random.split(state.key, 7)

        # 1. Logged rows, and after them, from `split` on, the states of the rollouts.
        chosen = problem.draw(row_key, split)
        logged = problem.take(chosen)
        observations = problem.standardizer(jnp.concatenate([logged.observations, state.rollouts]))
        each_logged, each_imagined = cfg.real_fraction / split, (1.0 - cfg.real_fraction) / cfg.rollouts
        weight = jnp.concatenate([jnp.full(split, each_logged), jnp.full(cfg.rollouts, each_imagined)])

        # 2. The policy improvement at all of these states.
        step = self._improve(action_key, other_key, state, observations, logged, weight)

        # 3. What the belief says about the rollouts: targets, and where they go on.
        imagined, belief = self._backup(backup_key, state, problem, state.rollouts, step.rollout_actions)
        rollouts, age, followed = self._advance(follow_key, state, problem, imagined, belief)
        logged_target = self._logged_target(target_key, state, problem, logged, problem.predictions_on(chosen))
        targets = jnp.clip(jnp.concatenate([logged_target, belief.target]), problem.value_low, problem.value_high)

        # 4. One gradient step of everything that learns.
        actions = jnp.concatenate([logged.actions, step.rollout_actions])

        def critic_loss(networks: tuple[Critics, ValueNetwork]) -> tuple[Array, Array]:
            critics, value = networks
            q = critics(observations, actions)
            q_error = jnp.sum(weight * (q - targets) ** 2)
            v_error = jnp.sum(weight * (value(observations) - step.value) ** 2)
            return q_error + v_error, jnp.stack([q_error, v_error, jnp.mean(jnp.std(q, axis=0))])

        networks = (state.critics, state.value)
        gradient, measured = jax.grad(critic_loss, has_aux=True)(networks)
        (critics, value), critic_optimizer = gradient_step(
            self._critic_optimizer, gradient, state.critic_optimizer, networks
        )
        gradient = jax.grad(step.loss)(state.actor)
        actor, actor_optimizer = gradient_step(self._actor_optimizer, gradient, state.actor_optimizer, state.actor)
        if cfg.evaluation_steps:
            actor = select(state.step >= cfg.evaluation_steps, actor, state.actor)
        after = PhyBState(
            actor=actor,
            reference=state.reference.towards(actor, cfg.reference_rate),
            critics=critics,
            target_critics=move_towards(state.target_critics, critics, cfg.target_rate),
            value=value,
            target_value=move_towards(state.target_value, value, cfg.target_rate),
            actor_optimizer=actor_optimizer,
            critic_optimizer=critic_optimizer,
            step_size=step.step_size,
            incumbent=state.incumbent,
            rollouts=rollouts,
            rollout_age=age,
            key=key,
            step=state.step + 1,
        )
        metrics = belief_metrics(cfg.belief, imagined, belief, followed, problem.reward_scale) | {
            "divergence": jnp.mean(step.divergence),
            "step_size": step.step_size,
            "critic_loss": measured[0],
            "value_loss": measured[1],
            "critic_spread": measured[2] * problem.reward_scale,
            "q_logged": jnp.mean(targets[:split]) * problem.reward_scale,
            "rollout_age": jnp.mean(age.astype(jnp.float32)),
            "trust_region_scale": state.incumbent.trust_region_scale,
            "actor_std": jnp.mean(jnp.exp(actor(observations).log_std)),
        }
        return after, metrics

    def _backup(
        self,
        key: PRNGKeyArray,
        state: PhyBState,
        problem: Problem,
        observations: Array,
        actions: Array,
        predictions: Prediction | None = None,
    ) -> tuple[Imagined, Belief]:
        """What a fresh draw of models says about (state, action) rows, and their weights."""
        value, rank_value = problem.bounded(state.target_value), None
        if self.config.value_estimator == "direct":
            key, value_key = jax.random.split(key)
            value, rank_value = (
                problem.bounded(functools.partial(self.improvement.direct_value, value_key, state, critics))
                for critics in (state.target_critics, state.critics)
            )
        world, known = problem.learned_world(), {"rank_value": rank_value, "predictions": predictions}
        return backup(key, self.config.belief, world, value, problem.discount, observations, actions, **known)

    def _logged_target(
        self, key: PRNGKeyArray, state: PhyBState, problem: Problem, logged: Rows, predictions: Prediction | None = None
    ) -> Array:
        """The critics' target on logged rows: by the logged successor, or the belief about state and action."""
        if self.config.real_target == "belief":
            return self._backup(key, state, problem, logged.observations, logged.actions, predictions)[1].target
        successor = state.target_value(problem.standardizer(logged.next_observations))
        return logged.rewards + problem.discount * (1.0 - logged.terminated) * successor

    def _advance(
        self, key: PRNGKeyArray, state: PhyBState, problem: Problem, imagined: Imagined, belief: Belief
    ) -> tuple[Array, Array, Array]:
        """The rollouts one step on, their ages, and the member each followed; those that ended start anew."""
        follow_key, start_key = jax.random.split(key)
        successor, _, alive, followed = follow(follow_key, self.config.belief, imagined, belief.weights)
        goes_on = (alive > 0) & (state.rollout_age + 1 < self.config.rollout_length)
        fresh = problem.sample(start_key, self.config.rollouts).observations
        rollouts = jnp.where(goes_on[:, None], successor, fresh)
        return rollouts, jnp.where(goes_on, state.rollout_age + 1, 0), followed
