"""How PhyB improves its policy at the states of one update: the mirror step against the slow reference policy.

- `by_candidates`: candidate actions come from the actor, the reference and near the logged action. The mirror step is
  solved on them exactly, for any omega, and the actor is fitted to its weights.
- `by_gradient`: the actor ascends the same objective at omega = 1 through the critics, one action at each state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.algorithms.phyb_config import PhyBConfig
from phyb.data.dataset import Rows
from phyb.policy.actor import Actor, Candidates, Gaussian, propose, squash, unsquash
from phyb.policy.critics import Critics, vote_on
from phyb.policy.mirror import MirrorStep, mirror_step, step_size_for
from phyb.policy.parametric import ParametricStep, normalizer, parametric_step, with_spread

if TYPE_CHECKING:
    from phyb.algorithms.phyb import PhyBState


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


@dataclasses.dataclass(frozen=True)
class PolicyImprovement:
    """The mirror step by these settings, in a run of so many updates.

    Its two forms take standardised observations, those of the logged rows (`real`) and after them the states of
    rollouts, and the weight of each in the actor's loss.
    """

    config: PhyBConfig
    total_steps: int

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
        candidates = self.candidates(key, state, observations, real)
        step, step_size = self.improve(state, observations, candidates)
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

    def candidates(self, key: PRNGKeyArray, state: PhyBState, observations: Array, real: Rows) -> Candidates:
        """Candidate actions at each state, near the logged one on logged rows."""
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

    def improve(self, state: PhyBState, observations: Array, candidates: Candidates) -> tuple[MirrorStep, Array]:
        """The mirror step on the candidates, and its mean beta; in the evaluation phase, the reference itself."""
        cfg = self.config
        critics = state.target_critics if cfg.improve_with == "target" else state.critics
        q_values = critics.of_candidates(observations, squash(candidates.draws), cfg.critic_vote)
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

    def _divergence(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """The divergence to meet in this update: it falls linearly to `final_divergence` of itself."""
        cfg = self.config
        done = jnp.clip((step - cfg.evaluation_steps) / max(self.total_steps - cfg.evaluation_steps, 1), 0.0, 1.0)
        return cfg.target_divergence * (1.0 - (1.0 - cfg.final_divergence) * done)
