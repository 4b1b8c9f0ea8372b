"""PhyB: values backed up through a pessimistic belief over models, a policy improved by mirror steps.

One update, in the order of the code:

1. take logged rows and the current states of imagined rollouts;
2. draw candidate actions at each, from the actor, the slow reference policy and near the logged action, and solve the
   mirror step on them exactly: weights for the actor, a regularised value for V, an action for each rollout;
3. ask N drawn models about the rollouts, keep the k that promise least, weigh them: targets for the critics and the
   law of the next imagined state;
4. one gradient step for critics, value and actor; slow copies follow.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.algorithms.imagination import belief_metrics, belief_step
from phyb.algorithms.learner import Learner, Metrics
from phyb.algorithms.phyb_presets import PRESETS, TASKS
from phyb.algorithms.problem import Problem, Rows
from phyb.belief.backup import Belief, BeliefConfig, Imagined, Value, follow
from phyb.dynamics.pool import Prediction
from phyb.networks import SlowAverage, gradient_step, move_towards, start_optimizer
from phyb.policy.actor import LARGEST_ACTION, Actor, Candidates, Gaussian, propose, squash, unsquash
from phyb.policy.cloning import clone, fit_returns
from phyb.policy.critics import Critics, ValueNetwork, Vote
from phyb.policy.mirror import MirrorStep, Scope, mirror_step, step_size_for
from phyb.policy.policy import Policy


@dataclasses.dataclass(frozen=True)
class PhyBConfig:
    """Settings of the policy optimisation."""

    belief: BeliefConfig = dataclasses.field(default_factory=BeliefConfig)

    # --- Mirror step ---
    potential_mix: float = 0.9
    """omega, the potential of the mirror step: 1 is relative entropy (softmax), 0 is Euclidean (sparse). Lower drops
    poor candidates entirely."""
    step_size_rule: Literal["target", "fixed"] = "target"
    """target: beta is chosen so that the divergence from the reference meets `target_divergence`, whatever the scale
    of values; fixed: beta is `step_size` (paper)."""
    step_size: float = 0.1
    """beta with the rule fixed, in units of the reward range. Lower takes bolder steps away from the reference."""
    target_divergence: float = 1.5
    """How far, in nats at omega = 1, one step may go from the reference. Higher improves faster and trusts the
    critics more."""
    final_divergence: float = 1.0
    """The target falls linearly to this share of itself over the run. Lower lets the policy come to rest, so that noise
    in the critics does not carry it on; 1 keeps it going."""
    step_size_scope: Scope = "batch"
    """batch: one beta for all rows, so that steps are large where actions matter; state: one beta for each row."""

    value_estimator: Literal["amortised", "direct"] = "amortised"
    """Value of imagined successors: a network that learned the mirror step's value, or the mirror step itself on fresh
    candidates at every successor, ranked by the current critics and backed up by the slow ones (released code), which
    costs hundreds of times more."""

    # --- Candidates ---
    actor_candidates: int = 6
    """Candidate actions drawn from the actor at each state. More make the step more exact and cost time."""
    reference_candidates: int = 6
    """Candidate actions drawn from the reference policy. More make the regularised value more exact."""
    logged_candidates: int = 4
    """On logged rows, candidates drawn near the logged action. Higher keeps good logged actions in view."""
    logged_noise: float = 0.1
    """Spread around the logged action, before the tanh. Lower stays closer to the log."""

    largest_action: float = LARGEST_ACTION
    """Logged actions beyond this share of their bounds count as this share. Lower it, to 0.95 or so, where the log's
    actions often lie at the bounds: before the tanh those are far away, and a Gaussian fitted to them is all noise."""

    # --- Networks and optimisers ---
    policy_hidden: tuple[int, ...] = (128, 128, 128)
    """Units per hidden layer of actor, critics and value. Wider fits finer detail and costs time."""
    actor_learning_rate: float = 1e-3
    """Step of the actor's optimiser. Lower follows the mirror step more smoothly."""
    critic_learning_rate: float = 2e-3
    """Step of the critics' and the value's optimiser. Lower is steadier, higher tracks a changing policy."""
    final_learning_rate: float = 0.05
    """Learning rates fall linearly to this share of themselves over the run. 1 keeps them constant (paper)."""
    target_rate: float = 0.01
    """Share by which the slow critics and the slow value follow per update. Lower is steadier and slower."""
    reference_rate: float = 2e-3
    """Share by which the reference policy follows the actor per update. Lower takes smaller policy steps; the paper
    uses 1e-5 with 2,000,000 updates. The reference is the policy that is evaluated and deployed."""
    improve_with: Literal["online", "target"] = "online"
    """Critics that judge the candidates: the current ones, or their slow copies, which are steadier."""
    critic_vote: Vote = "least"
    """least: an action is worth the smaller of both critics' values (released code); mean: their mean. The gap between
    the critics enters every backup, so that with a long horizon the least of two may lie far below either's truth."""

    # --- Rows and rollouts ---
    real_batch_size: int = 128
    """Logged rows per update. Larger is smoother and slower."""
    rollouts: int = 128
    """Imagined rollouts that advance by one step per update; also the imagined rows per update."""
    rollout_length: int = 1000
    """Most steps of an imagined rollout before it starts anew from the log. Lower stays nearer to the data."""
    real_fraction: float = 0.5
    """Weight of logged rows in every loss; the rest goes to imagined rows. Higher trusts the log more than the
    models."""
    real_target: Literal["logged", "belief"] = "logged"
    """Critic target on logged rows: the logged reward and successor, or the belief about that state and action."""

    # --- Schedule ---
    clone_steps: int = 2000
    """Steps of behaviour cloning before anything else. 0 starts from a random policy."""
    return_steps: int = 0
    """Steps of fitting critics and value to the log's discounted returns before the first update. Values then start
    at the right scale; without it a long horizon takes ten thousands of updates to fill them. 0 starts from noise."""
    clone_spread: float = 1.0
    """Spread of the cloned policy's actions relative to the log's. Lower starts nearer to the mean action, which is
    what is deployed, and takes smaller steps from it."""
    evaluation_steps: int = 0
    """Updates at the start that only evaluate the cloned policy. Raise it where early values are poor guides."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.potential_mix <= 1.0:
            raise ValueError(f"potential_mix must lie between 0 and 1, found {self.potential_mix}")
        if self.actor_candidates < 1 or self.reference_candidates < 1:
            raise ValueError("actor_candidates and reference_candidates must be at least 1")
        if not 0.0 < self.largest_action < 1.0:
            raise ValueError(f"largest_action must lie between 0 and 1, both excluded, found {self.largest_action}")


class PhyBState(NamedTuple):
    """Everything that changes while the policy is optimised; saving it is saving the run."""

    actor: Actor
    reference: SlowAverage[Actor]
    critics: Critics
    slow_critics: Critics
    value: ValueNetwork
    slow_value: ValueNetwork
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState
    step_size: Float[Array, ""]
    rollouts: Float[Array, "rollouts obs"]
    rollout_age: Int[Array, " rollouts"]
    key: PRNGKeyArray
    step: Int[Array, ""]


class PhyB(Learner[PhyBConfig, PhyBState]):
    """The algorithm with its settings; `init`, `update`, `policy` are pure functions of what they are given."""

    name = "phyb"
    config_class = PhyBConfig
    needs_pool = True
    presets = PRESETS
    tasks = TASKS

    def __init__(self, config: PhyBConfig, total_steps: int) -> None:
        super().__init__(config, total_steps)
        start, final = float(config.evaluation_steps), config.final_learning_rate

        def schedule(rate: float, first: float) -> optax.Schedule:
            return optax.linear_schedule(rate, rate * final, max(total_steps - int(first), 1), int(first))

        self._actor_optimizer = optax.adam(schedule(config.actor_learning_rate, 0.0))
        self._critic_optimizer = optax.adam(schedule(config.critic_learning_rate, start))

    @property
    def asks_about_log(self) -> bool:
        """Whether updates ask the pool about logged rows, so that its answers are worth remembering."""
        return self.config.real_target == "belief"

    def init(self, key: PRNGKeyArray, problem: Problem) -> PhyBState:
        """Fresh networks, the actor cloned from the log, rollouts at logged states."""
        cfg, obs, act = self.config, problem.observation_size, problem.action_size
        actor_key, critic_key, value_key, clone_key, chain_key, key = jax.random.split(key, 6)
        actor = Actor(actor_key, obs, act, cfg.policy_hidden)
        if cfg.clone_steps:
            actor = clone(
                clone_key,
                actor,
                problem.rows.observations,
                problem.rows.actions,
                steps=cfg.clone_steps,
                learning_rate=1e-3,
                batch_size=cfg.real_batch_size,
                standardizer=problem.standardizer,
                largest_action=cfg.largest_action,
            ).with_spread(cfg.clone_spread)
        critics = Critics(critic_key, obs, act, cfg.policy_hidden)
        value = ValueNetwork(value_key, obs, cfg.policy_hidden)
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
                batch_size=cfg.real_batch_size,
                standardizer=problem.standardizer,
            )
        return PhyBState(
            actor=actor,
            reference=SlowAverage.start(actor),
            critics=critics,
            slow_critics=critics,
            value=value,
            slow_value=value,
            actor_optimizer=start_optimizer(self._actor_optimizer, actor),
            critic_optimizer=start_optimizer(self._critic_optimizer, (critics, value)),
            step_size=jnp.full((), cfg.step_size, jnp.float32),
            rollouts=problem.sample(chain_key, cfg.rollouts).observations,
            rollout_age=jnp.zeros(cfg.rollouts, jnp.int32),
            key=key,
            step=jnp.zeros((), jnp.int32),
        )

    def policy(self, state: PhyBState, problem: Problem) -> Policy:
        """The policy to evaluate and deploy: the mean action of the slow reference."""
        return Policy(state.reference.average, problem.standardizer, problem.action_low, problem.action_high)

    def value(self, state: PhyBState, problem: Problem) -> ValueNetwork:
        """The slow value, which also ranks the models in training."""
        return state.slow_value

    def update(self, state: PhyBState, problem: Problem) -> tuple[PhyBState, Metrics]:
        """One update; pure, so that chunks of updates compile into one call."""
        cfg = self.config
        keys = jax.random.split(state.key, 7)
        logged = problem.draw(keys[1], cfg.real_batch_size)
        real = problem.take(logged)
        observations = problem.standardizer(jnp.concatenate([real.observations, state.rollouts]))
        candidates = self._candidates(keys[2], state, observations, real)
        step, step_size = self._improve(state, observations, candidates)

        split = cfg.real_batch_size
        picked = jax.random.categorical(keys[3], jnp.log(step.weights[split:]))
        draws = jnp.take_along_axis(candidates.draws[split:], picked[:, None, None], axis=1)[:, 0]
        imagined_actions = squash(draws)
        imagined, belief = self._believe(keys[4], state, problem, state.rollouts, imagined_actions)
        rollouts, age, chosen = self._advance(keys[5], state, problem, imagined, belief)

        real_target = self._real_target(keys[6], state, problem, real, problem.recall(logged))
        targets = jnp.clip(jnp.concatenate([real_target, belief.target]), problem.value_low, problem.value_high)
        actions = jnp.concatenate([real.actions, imagined_actions])
        weight = jnp.concatenate(
            [
                jnp.full(split, cfg.real_fraction / split),
                jnp.full(cfg.rollouts, (1.0 - cfg.real_fraction) / cfg.rollouts),
            ]
        )

        def critic_loss(networks: tuple[Critics, ValueNetwork]) -> tuple[Array, Array]:
            critics, value = networks
            q = critics(observations, actions)
            q_error = jnp.sum(weight * (q - targets) ** 2)
            v_error = jnp.sum(weight * (value(observations) - step.value) ** 2)
            return q_error + v_error, jnp.stack([q_error, v_error])

        def actor_loss(actor: Actor) -> Array:
            return -jnp.sum(weight * jnp.sum(step.weights * actor(observations).log_density(candidates.draws), axis=-1))

        gradient, errors = jax.grad(critic_loss, has_aux=True)((state.critics, state.value))
        (critics, value), critic_optimizer = gradient_step(
            self._critic_optimizer, gradient, state.critic_optimizer, (state.critics, state.value)
        )
        actor, actor_optimizer = gradient_step(
            self._actor_optimizer, jax.grad(actor_loss)(state.actor), state.actor_optimizer, state.actor
        )

        after = PhyBState(
            actor=actor,
            reference=state.reference.towards(actor, cfg.reference_rate),
            critics=critics,
            slow_critics=move_towards(state.slow_critics, critics, cfg.target_rate),
            value=value,
            slow_value=move_towards(state.slow_value, value, cfg.target_rate),
            actor_optimizer=actor_optimizer,
            critic_optimizer=critic_optimizer,
            step_size=step_size,
            rollouts=rollouts,
            rollout_age=age,
            key=keys[0],
            step=state.step + 1,
        )
        metrics = belief_metrics(cfg.belief, problem, imagined, belief, chosen) | {
            "divergence": jnp.mean(step.divergence),
            "step_size": jnp.mean(step.step_size),
            "critic_loss": errors[0],
            "value_loss": errors[1],
            "q_logged": jnp.mean(targets[:split]) * problem.reward_scale,
            "rollout_age": jnp.mean(age.astype(jnp.float32)),
            "actor_std": jnp.mean(jnp.exp(actor(observations).log_std)),
        }
        return after, metrics

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
        in_mind = propose(key_imagined, part(pi, last), part(mu, last), counts)
        return Candidates(*(jnp.concatenate(pair) for pair in zip(on_log, in_mind, strict=True)))

    def _improve(self, state: PhyBState, observations: Array, candidates: Candidates) -> tuple[MirrorStep, Array]:
        """The mirror step on the candidates; during the evaluation phase the reference itself."""
        cfg = self.config
        judges = state.slow_critics if cfg.improve_with == "target" else state.critics
        q = judges.judge(observations, squash(candidates.draws), cfg.critic_vote)
        beta = jnp.full((), cfg.step_size)
        if cfg.step_size_rule == "target":
            per_state = cfg.step_size_scope == "state"
            beta = step_size_for(
                q,
                candidates.reference,
                self._divergence(state.step),
                cfg.potential_mix,
                cfg.step_size_scope,
                start=None if per_state else jnp.maximum(state.step_size, 1e-6),
                steps=8 if per_state else 3,
            )
        step = mirror_step(q, candidates.reference, beta, cfg.potential_mix)
        if cfg.evaluation_steps:
            evaluating = state.step < cfg.evaluation_steps
            mean = jnp.sum(candidates.reference * q, axis=-1)
            step = step._replace(
                weights=jnp.where(evaluating, candidates.reference, step.weights),
                value=jnp.where(evaluating, mean, step.value),
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

    def _believe(
        self,
        key: PRNGKeyArray,
        state: PhyBState,
        problem: Problem,
        observations: Array,
        actions: Array,
        told: Prediction | None = None,
    ) -> tuple[Imagined, Belief]:
        if self.config.value_estimator == "amortised":
            return belief_step(key, self.config.belief, state.slow_value, problem, observations, actions, told=told)
        key, key_value = jax.random.split(key)

        def direct(critics: Critics) -> Value:
            return lambda rows: self.direct_value(key_value, state, critics, rows)

        return belief_step(
            key, self.config.belief, direct(state.slow_critics), problem, observations, actions,
            rank_value=direct(state.critics), told=told,
        )  # fmt: skip

    def direct_value(
        self, key: PRNGKeyArray, state: PhyBState, critics: Critics, observations: Float[Array, "*rows obs"]
    ) -> Float[Array, "*rows"]:
        """The regularised value V* of standardised observations by a mirror step on fresh candidates at each.

        Leading axes are walked one slice at a time, which bounds memory.
        """
        if observations.ndim > 2:
            return jax.lax.map(lambda rows: self.direct_value(key, state, critics, rows), observations)
        cfg = self.config
        counts = (cfg.actor_candidates, cfg.reference_candidates, cfg.logged_candidates)
        candidates = propose(key, state.actor(observations), state.reference.average(observations), counts)
        q = critics.judge(observations, squash(candidates.draws), cfg.critic_vote)
        return mirror_step(q, candidates.reference, state.step_size, cfg.potential_mix).value

    def _real_target(
        self, key: PRNGKeyArray, state: PhyBState, problem: Problem, real: Rows, told: Prediction | None = None
    ) -> Array:
        if self.config.real_target == "belief":
            return self._believe(key, state, problem, real.observations, real.actions, told)[1].target
        successor = state.slow_value(problem.standardizer(real.next_observations))
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
