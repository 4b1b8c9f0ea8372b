"""ORAAC (Urpí et al., 2021): a cautious policy that stays near the log.

A conditional VAE imitates the log. The policy decodes one of its actions and may move it a little. A critic learns the
whole distribution of what is earned, and the policy maximises the mean of its worst part instead of its mean. One
update, in the order of the code: VAE, critic towards the target networks' distribution, every other time the policy.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

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
from phyb.data.dataset import Rows
from phyb.fields import Count, Layers, NonNegative, Positive, Whole, not_if
from phyb.networks import MLP, gradient_step, move_towards, start_optimizer
from phyb.policy.policy import Policy
from phyb.policy.quantile import QuantileCritic, Risk, check_risk, distort, quantile_huber_loss
from phyb.policy.vae import VAE, PerturbedDecoder, prior_latents, vae_loss


@dataclasses.dataclass(frozen=True)
class ORAACConfig(CriticConfig):
    """Settings of ORAAC; the defaults are the published ones."""

    actor: Literal["perturbed-decoder"] = "perturbed-decoder"
    """Its own kind of policy."""
    batch_size: Count = 128
    actor_learning_rate: Positive = 1e-4
    critic_learning_rate: Positive = 1e-3

    # --- Caution ---
    risk: Risk = "cvar"
    """What the policy maximises: cvar, the mean of the worst share of outcomes; wang, all outcomes with bad ones
    weighed more; neutral, the mean."""
    risk_amount: Annotated[float, not_if("risk", "neutral")] = 0.1
    """cvar: the share of outcomes that counts, lower is more cautious. wang: higher is more cautious, 0.75 was
    published."""

    # --- Behaviour ---
    reach: NonNegative = 0.25
    """How far the policy may move a decoded action, in actions scaled to [-1, 1]. Higher trusts the critic more."""
    latent_bound: NonNegative = 0.5
    """Latents are clipped to it. Higher also starts from rare actions of the log."""
    vae_latent: Count | None = None
    """Numbers in a latent; None is two for each column of the actions."""
    vae_hidden: Layers = (750, 750)
    """Units per hidden layer of encoder and decoder. Wider fits finer detail and costs time."""
    vae_learning_rate: Annotated[Positive, not_if("vae_steps", 0)] = 1e-3
    """Step of the VAE's optimiser."""
    vae_divergence_weight: Annotated[NonNegative, not_if("vae_steps", 0)] = 0.5
    """Weight of the divergence in the VAE's loss. Lower copies logged actions more exactly."""
    vae_steps: Whole = 20_000
    """Updates in which the VAE learns; from then on it stays as it is."""

    # --- Quantiles ---
    critic_levels: Count = 32
    """Quantiles of each row, of critic and target, in the critic's loss. More is smoother and slower."""
    actor_levels: Count = 8
    """Quantiles of each row whose mean the policy maximises. More is smoother and slower."""
    level_cosines: Count = 16
    """Cosines that tell the critic the level of a quantile. More can follow finer detail."""
    huber_width: Positive = 1.0
    """Errors below it count as squares, in the units of the rewards. Lower is closer to true quantiles."""
    actor_every: Count = 2
    """Updates between two steps of the policy. Higher lets the critic settle."""

    def __post_init__(self) -> None:
        check_risk(self.risk, self.risk_amount)


class ORAACState(NamedTuple):
    """Everything that changes in training."""

    vae: VAE
    perturbation: MLP
    target_perturbation: MLP
    critic: QuantileCritic
    target_critic: QuantileCritic
    vae_optimizer: optax.OptState
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState
    key: PRNGKeyArray
    step: Int[Array, ""]


def return_targets(
    key: PRNGKeyArray, actor: PerturbedDecoder, critic: QuantileCritic, rows: Rows, config: ORAACConfig, discount: float
) -> Float[Array, "rows levels"]:
    """Draws of what is earned: `y_j = r + gamma (1 - terminated) Z(s', a'; tau_j)`, a' ~ policy, tau_j ~ U(0, 1)."""
    latent_key, level_key = jax.random.split(key)
    count = len(rows.rewards)
    actions = actor(rows.next_observations, prior_latents(latent_key, count, actor.latent, config.latent_bound))
    levels = jax.random.uniform(level_key, (count, config.critic_levels))
    later = critic(rows.next_observations, actions, levels)
    return rows.rewards[:, None] + discount * (1.0 - rows.terminated[:, None]) * later


def cautious_value(
    key: PRNGKeyArray,
    actor: PerturbedDecoder,
    critic: QuantileCritic,
    observations: Float[Array, "rows obs"],
    config: ORAACConfig,
) -> Float[Array, ""]:
    """What the policy maximises: `mean Z(s, pi(s, z); distort(tau))` over rows, tau ~ U(0, 1), z from the prior."""
    latent_key, level_key = jax.random.split(key)
    count = len(observations)
    actions = actor(observations, prior_latents(latent_key, count, actor.latent, config.latent_bound))
    levels = jax.random.uniform(level_key, (count, config.actor_levels))
    return jnp.mean(critic(observations, actions, distort(levels, config.risk, config.risk_amount)))


class ORAAC(Algorithm[ORAACConfig, ORAACState]):
    """Offline risk-averse actor-critic."""

    name = "oraac"
    config_class = ORAACConfig
    presets: ClassVar = {
        "cpu": {
            "agent": {
                "policy_hidden": (64, 64),
                "actor_learning_rate": 1e-3,
                "actor_decay": 0.0,
                "vae_hidden": (64, 64),
                "vae_steps": 5000,
                "critic_levels": 16,
                "reward_units": "range",
                "huber_width": 0.01,
            },
            "training": {"steps": 20_000},
        },
        "paper": {"training": {**PAPER_TRAINING, "steps": 1_000_000}},
    }
    tasks = locomotion_tasks(ORAACConfig, presets, steps=50_000)

    def setup(self) -> None:
        """The optimisers."""
        cfg = self.config
        self._vae_optimizer = optax.adam(cfg.vae_learning_rate)
        self._critic_optimizer = optax.adam(cfg.critic_learning_rate)
        policy_steps = self.total_steps // cfg.actor_every
        self._actor_optimizer = decaying(cfg.actor_learning_rate, cfg.actor_decay, policy_steps)

    def init(self, key: PRNGKeyArray, problem: Problem) -> ORAACState:
        """Fresh networks."""
        cfg, obs, act = self.config, problem.observation_size, problem.action_size
        vae_key, actor_key, critic_key, key = jax.random.split(key, 4)
        vae = VAE(vae_key, obs, act, cfg.vae_hidden, cfg.vae_latent or 2 * act)
        perturbation = MLP(actor_key, (obs + act, *cfg.policy_hidden, act))
        critic = QuantileCritic(critic_key, obs, act, cfg.policy_hidden, cfg.level_cosines)
        return ORAACState(
            vae=vae,
            perturbation=perturbation,
            target_perturbation=perturbation,
            critic=critic,
            target_critic=critic,
            vae_optimizer=start_optimizer(self._vae_optimizer, vae),
            actor_optimizer=start_optimizer(self._actor_optimizer, perturbation),
            critic_optimizer=start_optimizer(self._critic_optimizer, critic),
            key=key,
            step=jnp.zeros((), jnp.int32),
        )

    def policy(self, state: ORAACState, problem: Problem) -> Policy:
        """The likeliest logged action, moved by what the policy learned."""
        actor = self._actor(state.vae, state.perturbation)
        return Policy(actor, problem.standardizer, problem.action_low, problem.action_high)

    def update(self, state: ORAACState, problem: Problem) -> tuple[ORAACState, Metrics]:
        """One step of the critic on a batch of logged rows, of the VAE while it learns, of the policy now and then."""
        cfg = self.config
        key, batch_key, vae_key, target_key, level_key, actor_key = jax.random.split(state.key, 6)
        rows = logged_rows(batch_key, problem, cfg)

        def imitate(vae: VAE, optimizer: optax.OptState) -> tuple[VAE, optax.OptState]:
            loss = (vae_key, rows.observations, rows.actions, cfg.vae_divergence_weight)
            return gradient_step(self._vae_optimizer, jax.grad(vae_loss)(vae, *loss), optimizer, vae)

        learning = state.step < cfg.vae_steps
        vae, vae_optimizer = jax.lax.cond(learning, imitate, lambda *same: same, state.vae, state.vae_optimizer)

        target_actor = self._actor(vae, state.target_perturbation)
        targets = return_targets(target_key, target_actor, state.target_critic, rows, cfg, problem.discount)
        levels = jax.random.uniform(level_key, targets.shape)

        def critic_loss(critic: QuantileCritic) -> tuple[Array, Array]:
            quantiles = critic(rows.observations, rows.actions, levels)
            return quantile_huber_loss(quantiles, levels, targets, cfg.huber_width), jnp.mean(quantiles)

        (loss, q_logged), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic)
        critic, critic_optimizer = gradient_step(self._critic_optimizer, gradient, state.critic_optimizer, state.critic)

        def promise(perturbation: MLP) -> Array:
            return cautious_value(actor_key, self._actor(vae, perturbation), critic, rows.observations, cfg)

        def improve(perturbation: MLP, optimizer: optax.OptState) -> tuple[MLP, optax.OptState]:
            descent = jax.grad(lambda perturbation: -promise(perturbation))(perturbation)
            return gradient_step(self._actor_optimizer, descent, optimizer, perturbation)

        due = state.step % cfg.actor_every == 0
        perturbation, actor_optimizer = jax.lax.cond(
            due, improve, lambda *same: same, state.perturbation, state.actor_optimizer
        )

        after = ORAACState(
            vae=vae,
            perturbation=perturbation,
            target_perturbation=move_towards(state.target_perturbation, perturbation, cfg.target_rate),
            critic=critic,
            target_critic=move_towards(state.target_critic, critic, cfg.target_rate),
            vae_optimizer=vae_optimizer,
            actor_optimizer=actor_optimizer,
            critic_optimizer=critic_optimizer,
            key=key,
            step=state.step + 1,
        )
        units = problem.reward_scale / reward_factor(problem, cfg.reward_units)
        metrics = {
            "vae_loss": vae_loss(vae, vae_key, rows.observations, rows.actions, cfg.vae_divergence_weight),
            "critic_loss": loss,
            "q_logged": q_logged * units,
            "cautious_value": promise(perturbation) * units,
        }
        return after, metrics

    def _actor(self, vae: VAE, perturbation: MLP) -> PerturbedDecoder:
        return PerturbedDecoder(vae.decoder, perturbation, jnp.asarray(self.config.reach, jnp.float32))
