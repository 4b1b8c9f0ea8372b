"""PhyB: values backed up through a pessimistic belief over models, a policy improved by mirror steps.

One update, in the order of the code:

1. take logged rows and the current states of imagined rollouts;
2. draw candidate actions at each, from the actor, the slow reference policy and near the logged action, value them and
   solve the mirror step on them exactly: weights for the actor, a regularised value for V, an action for each rollout;
3. ask N drawn models about the rollouts, keep the k with the least backups, weigh them: targets for the critics and the
   law of the next imagined state;
4. one gradient step for critics, value and actor; target networks follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.algorithms.base import Algorithm, Metrics, update_bytes
from phyb.algorithms.phyb_config import PhyBConfig
from phyb.algorithms.phyb_presets import PRESETS, TASKS
from phyb.algorithms.problem import Problem
from phyb.algorithms.rollback import Incumbent, rolled_back
from phyb.algorithms.starting import clone_log
from phyb.belief.backup import Belief, backup, follow
from phyb.belief.metrics import belief_metrics
from phyb.data.dataset import Rows
from phyb.dynamics.pool import Prediction
from phyb.networks import SlowAverage, Value, gradient_step, move_towards, select, start_optimizer
from phyb.policy.actor import Actor, Candidates, Gaussian, propose, squash, unsquash
from phyb.policy.cloning import fit_returns
from phyb.policy.critics import Critics, ValueNetwork, vote_on
from phyb.policy.mirror import MirrorStep, mirror_step, step_size_for
from phyb.policy.parametric import ParametricStep, normalizer, parametric_step, with_spread
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


class Improvement(NamedTuple):
    """One step of policy improvement at the states of an update."""

    value: Float[Array, " rows"]
    """What V learns: the regularised value of the step."""
    rollout_actions: Float[Array, "rollouts act"]
    loss: Callable[[Actor], Array]
    """What the actor descends."""
    divergence: Float[Array, " rows"]
    """From the reference policy."""
    step_size: Float[Array, ""]
    """beta, in learning units of reward."""


class PhyB(Algorithm[PhyBConfig, PhyBState]):
    """The algorithm with its settings; `init`, `update`, `policy` are pure functions of what they are given."""

    name = "phyb"
    config_class = PhyBConfig
    needs_pool = True
    presets = PRESETS
    tasks = TASKS

    def setup(self) -> None:
        """The optimisers."""
        config, total_steps = self.config, self.total_steps
        start, final = float(config.evaluation_steps), config.final_learning_rate

        def schedule(rate: float, first: float) -> optax.Schedule:
            return optax.linear_schedule(rate, rate * final, max(total_steps - int(first), 1), int(first))

        self._actor_optimizer = optax.adam(schedule(config.actor_learning_rate, 0.0))
        self.critic_optimizer = optax.adam(schedule(config.critic_learning_rate, start))

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
        actor_key, critic_key, value_key, clone_key, chain_key, key = jax.random.split(key, 6)
        actor = make_actor(cfg.actor, actor_key, obs, act, cfg.policy_hidden)
        if cfg.clone_steps:
            batch_size = max(cfg.real_batch_size, START_BATCH)
            actor = clone_log(clone_key, actor, problem, cfg, batch_size).with_spread(cfg.clone_spread)
        norm = cfg.critic_layer_norm
        critics = Critics(critic_key, obs, act, cfg.policy_hidden, count=cfg.critics, layer_norm=norm)
        value = ValueNetwork(value_key, obs, cfg.policy_hidden, layer_norm=norm)
        if cfg.return_steps:
            critics, value = fit_returns(
                jax.random.fold_in(clone_key, 1),
                critics,
                value,
                problem.rows.observations,
                problem.rows.actions,
                problem.returns,
                steps=cfg.return_steps,
                learning_rate=1e-3,
                batch_size=max(cfg.real_batch_size, START_BATCH),
                standardizer=problem.standardizer,
            )
        return PhyBState(
            actor=actor,
            reference=SlowAverage.start(actor),
            critics=critics,
            target_critics=critics,
            value=value,
            target_value=value,
            actor_optimizer=start_optimizer(self._actor_optimizer, actor),
            critic_optimizer=start_optimizer(self.critic_optimizer, (critics, value)),
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

    def update(self, state: PhyBState, problem: Problem) -> tuple[PhyBState, Metrics]:
        """One update; pure, so that chunks of updates compile into one call."""
        cfg = self.config
        keys = jax.random.split(state.key, 7)
        logged = problem.draw(keys[1], cfg.real_batch_size)
        real = problem.take(logged)
        states = jnp.concatenate([real.observations, state.rollouts])
        observations = problem.standardizer(states)
        split = cfg.real_batch_size
        weight = jnp.concatenate(
            [
                jnp.full(split, cfg.real_fraction / split),
                jnp.full(cfg.rollouts, (1.0 - cfg.real_fraction) / cfg.rollouts),
            ]
        )
        improve = self.by_gradient if cfg.improvement == "gradient" else self.by_candidates
        step = improve(keys[2], keys[3], state, observations, real, weight)
        imagined, belief = self._backup(keys[4], state, problem, state.rollouts, step.rollout_actions)
        rollouts, age, chosen = self._advance(keys[5], state, problem, imagined, belief)

        real_target = self._real_target(keys[6], state, problem, real, problem.predictions_on(logged))
        targets = jnp.clip(jnp.concatenate([real_target, belief.target]), problem.value_low, problem.value_high)
        actions = jnp.concatenate([real.actions, step.rollout_actions])

        def critic_loss(networks: tuple[Critics, ValueNetwork]) -> tuple[Array, Array]:
            critics, value = networks
            q = critics(observations, actions)
            q_error = jnp.sum(weight * (q - targets) ** 2)
            v_error = jnp.sum(weight * (value(observations) - step.value) ** 2)
            return q_error + v_error, jnp.stack([q_error, v_error])

        gradient, errors = jax.grad(critic_loss, has_aux=True)((state.critics, state.value))
        (critics, value), critic_optimizer = gradient_step(
            self.critic_optimizer, gradient, state.critic_optimizer, (state.critics, state.value)
        )
        after = self.step_actor(state, step.loss)._replace(
            critics=critics,
            target_critics=move_towards(state.target_critics, critics, cfg.target_rate),
            value=value,
            target_value=move_towards(state.target_value, value, cfg.target_rate),
            critic_optimizer=critic_optimizer,
            step_size=step.step_size,
            rollouts=rollouts,
            rollout_age=age,
            key=keys[0],
            step=state.step + 1,
        )
        metrics = belief_metrics(cfg.belief, imagined, belief, chosen, problem.reward_scale) | {
            "divergence": jnp.mean(step.divergence),
            "step_size": step.step_size,
            "critic_loss": errors[0],
            "value_loss": errors[1],
            "q_logged": jnp.mean(targets[:split]) * problem.reward_scale,
            "rollout_age": jnp.mean(age.astype(jnp.float32)),
            "trust_region_scale": state.incumbent.trust_region_scale,
            "actor_std": jnp.mean(jnp.exp(after.actor(observations).log_std)),
        }
        return after, metrics

    def by_candidates(
        self,
        key: PRNGKeyArray,
        pick_key: PRNGKeyArray,
        state: PhyBState,
        observations: Float[Array, "rows obs"],
        real: Rows,
        weight: Float[Array, " rows"],
    ) -> Improvement:
        """The exact mirror step on candidate actions, to whose weights the actor is fitted."""
        split = self.config.real_batch_size
        candidates = self._candidates(key, state, observations, real)
        step, step_size = self.improve(state, candidates, self._q_values(state, observations, candidates.draws))
        picked = jax.random.categorical(pick_key, jnp.log(step.weights[split:]))
        draws = jnp.take_along_axis(candidates.draws[split:], picked[:, None, None], axis=1)[:, 0]

        def loss(actor: Actor) -> Array:
            return -jnp.sum(weight * jnp.sum(step.weights * actor(observations).log_density(candidates.draws), axis=-1))

        return Improvement(step.value, squash(draws), loss, step.divergence, step_size)

    def by_gradient(
        self,
        key: PRNGKeyArray,
        vote_key: PRNGKeyArray,
        state: PhyBState,
        observations: Float[Array, "rows obs"],
        real: Rows,
        weight: Float[Array, " rows"],
    ) -> Improvement:
        """The mirror step of a parametric policy: one action at each state, a gradient through the critics."""
        cfg, split = self.config, self.config.real_batch_size
        critics = state.target_critics if cfg.improve_with == "target" else state.critics
        mu = with_spread(state.reference.average(observations), cfg.fixed_spread)
        logged = unsquash(real.actions, cfg.largest_action)

        def q_of(draws: Array) -> Array:
            return critics(observations, squash(draws))

        def step_of(actor: Actor) -> tuple[ParametricStep, Gaussian]:
            pi = with_spread(actor(observations), cfg.fixed_spread)
            return parametric_step(key, pi, mu, q_of), pi

        def loss(actor: Actor) -> Array:
            step, pi = step_of(actor)
            unit = normalizer(step.q) if cfg.normalize_q else 1.0
            q = vote_on(vote_key, step.q, cfg.critic_vote) / unit
            on_log = Gaussian(pi.mean[:split], pi.log_std[:split]).log_density(logged[:, None])[:, 0]
            return -jnp.sum(weight * (q - cfg.step_size * step.divergence)) - cfg.behaviour_pull * jnp.mean(on_log)

        now, _ = step_of(state.actor)
        unit = normalizer(now.q) if cfg.normalize_q else jnp.ones(())
        value = vote_on(vote_key, now.q, cfg.value_vote) - cfg.step_size * unit * now.divergence
        found = Improvement(value, squash(now.draws[split:]), loss, now.divergence, cfg.step_size * unit)
        return found._replace(**jax.lax.stop_gradient({"value": value, "rollout_actions": found.rollout_actions}))

    def step_actor(self, state: PhyBState, loss: Callable[[Actor], Array]) -> PhyBState:
        """The state after one step of the actor down a loss, and of the reference after it."""
        cfg = self.config
        actor, optimizer = gradient_step(
            self._actor_optimizer, jax.grad(loss)(state.actor), state.actor_optimizer, state.actor
        )
        if cfg.evaluation_steps:
            actor = select(state.step >= cfg.evaluation_steps, actor, state.actor)
        return state._replace(
            actor=actor,
            reference=state.reference.towards(actor, cfg.reference_rate),
            actor_optimizer=optimizer,
        )

    def before_evaluation(self, state: PhyBState, problem: Problem) -> PhyBState:
        """With rollback, go back to the incumbent if the models agree that the reference has lost against it."""
        if not self.config.rollback:
            return state
        fresh = lambda actor: {"actor_optimizer": start_optimizer(self._actor_optimizer, actor)}  # noqa: E731
        return rolled_back(state, problem, self.config.belief, 0.0, self.total_steps, fresh)

    def _candidates(self, key: PRNGKeyArray, state: PhyBState, observations: Array, real: Rows) -> Candidates:
        cfg, split = self.config, self.config.real_batch_size
        counts = (cfg.actor_candidates, cfg.reference_candidates, cfg.logged_candidates)
        pi, mu = state.actor(observations), state.reference.average(observations)
        near = unsquash(real.actions, cfg.largest_action)
        logged = Gaussian(near, jnp.full_like(near, jnp.log(cfg.logged_noise)))
        key_real, key_imagined = jax.random.split(key)

        def part(gaussian: Gaussian, rows: slice) -> Gaussian:
            return Gaussian(gaussian.mean[rows], gaussian.log_std[rows])

        first, last = slice(None, split), slice(split, None)
        on_log = propose(key_real, part(pi, first), part(mu, first), counts, logged)
        imagined = propose(key_imagined, part(pi, last), part(mu, last), counts)
        return Candidates(*(jnp.concatenate(pair) for pair in zip(on_log, imagined, strict=True)))

    def _q_values(self, state: PhyBState, observations: Array, draws: Array) -> Array:
        """Q-values of all candidates."""
        critics = state.target_critics if self.config.improve_with == "target" else state.critics
        return critics.of_candidates(observations, squash(draws), self.config.critic_vote)

    def improve(self, state: PhyBState, candidates: Candidates, q_values: Array) -> tuple[MirrorStep, Array]:
        """The mirror step on the candidates, given their Q-values; in the evaluation phase, the reference itself."""
        cfg = self.config
        beta = jnp.full((), cfg.step_size)
        if cfg.step_size_rule == "target":
            per_state = cfg.step_size_scope == "state"
            beta = step_size_for(
                q_values,
                candidates.reference,
                state.incumbent.trust_region_scale * self._divergence(state.step),
                cfg.potential_mix,
                cfg.step_size_scope,
                start=None if per_state else jnp.maximum(state.step_size, 1e-6),
                steps=8 if per_state else 3,
            )
        step = mirror_step(q_values, candidates.reference, beta, cfg.potential_mix)
        if cfg.evaluation_steps:
            evaluating = state.step < cfg.evaluation_steps
            step = step._replace(
                weights=jnp.where(evaluating, candidates.reference, step.weights),
                value=jnp.where(evaluating, jnp.sum(candidates.reference * q_values, axis=-1), step.value),
                divergence=jnp.where(evaluating, 0.0, step.divergence),
            )
        return jax.lax.stop_gradient(step), jnp.mean(beta)

    def _divergence(self, step: Int[Array, ""]) -> float | Array:
        """The divergence to meet in this update."""
        cfg = self.config
        if cfg.final_divergence == 1.0:
            return cfg.target_divergence
        done = jnp.clip((step - cfg.evaluation_steps) / max(self.total_steps - cfg.evaluation_steps, 1), 0.0, 1.0)
        return cfg.target_divergence * (1.0 - (1.0 - cfg.final_divergence) * done)

    def _backup(
        self,
        key: PRNGKeyArray,
        state: PhyBState,
        problem: Problem,
        observations: Array,
        actions: Array,
        predictions: Prediction | None = None,
    ) -> tuple[Imagined, Belief]:
        value, rank_value = problem.bounded(state.target_value), None
        if self.config.value_estimator == "direct":
            key, key_value = jax.random.split(key)

            def direct(critics: Critics) -> Value:
                return problem.bounded(lambda rows: self.direct_value(key_value, state, critics, rows))

            value, rank_value = direct(state.target_critics), direct(state.critics)
        world, known = problem.learned_world(), {"rank_value": rank_value, "predictions": predictions}
        return backup(key, self.config.belief, world, value, problem.discount, observations, actions, **known)

    def direct_value(
        self, key: PRNGKeyArray, state: PhyBState, critics: Critics, observations: Float[Array, "*rows obs"]
    ) -> Float[Array, "*rows"]:
        """The regularised value V* of standardised observations by a mirror step on fresh candidates at each.

        Leading axes are mapped one slice at a time, which bounds memory.
        """
        if observations.ndim > 2:
            return jax.lax.map(lambda rows: self.direct_value(key, state, critics, rows), observations)
        cfg = self.config
        counts = (cfg.actor_candidates, cfg.reference_candidates, cfg.logged_candidates)
        candidates = propose(key, state.actor(observations), state.reference.average(observations), counts)
        q = critics.of_candidates(observations, squash(candidates.draws), cfg.critic_vote)
        return mirror_step(q, candidates.reference, state.step_size, cfg.potential_mix).value

    def _real_target(
        self, key: PRNGKeyArray, state: PhyBState, problem: Problem, real: Rows, predictions: Prediction | None = None
    ) -> Array:
        if self.config.real_target == "belief":
            return self._backup(key, state, problem, real.observations, real.actions, predictions)[1].target
        successor = state.target_value(problem.standardizer(real.next_observations))
        return real.rewards + problem.discount * (1.0 - real.terminated) * successor

    def _advance(
        self, key: PRNGKeyArray, state: PhyBState, problem: Problem, imagined: Imagined, belief: Belief
    ) -> tuple[Array, Array, Array]:
        key_follow, key_start = jax.random.split(key)
        successor, _, alive, chosen = follow(key_follow, self.config.belief, imagined, belief.weights)
        goes_on = (alive > 0) & (state.rollout_age + 1 < self.config.rollout_length)
        fresh = problem.sample(key_start, self.config.rollouts).observations
        rollouts = jnp.where(goes_on[:, None], successor, fresh)
        return rollouts, jnp.where(goes_on, state.rollout_age + 1, 0), chosen
