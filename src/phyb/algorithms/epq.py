"""EPQ, exclusively penalised Q-learning: CQL where the policy leaves the log, and only there (Yeom et al., 2024).

What is different from CQL is what each row (s, a) counts: max(w, c) in the critics' error and max(w f, c_p) in the
penalty, with

    w = exp(G / zeta) / sum_{j in cluster} exp(G_j / zeta),
    f = mean exp(-max(0, log beta(a' | s) - tau rho)),    a' ~ pi(. | s),    rho = -log 2 per column of the actions.

G is the value of a logged action; its cluster are the logged rows of nearly the same state. w prefers the best actions
among them. f is 1 where the policy's actions are far from logged ones, and small where logged ones are near: log beta
is minus the squared distance before the tanh from a' to a draw of a VAE of the log.

Returns follow episodes: one that was cut off goes on with its mean reward, and none runs into the next. Where G is
fitted, a network is fitted to these returns, not by one-step backups; the limit is the same. The variant of log beta
with several draws of the VAE for each action, published for two data sets of Walker2d, is left out.

A run has three parts: the VAE learns (`behaviour_steps`), each row gets its w (`cluster_steps`), and the policy learns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.algorithms import cql, sac
from phyb.algorithms.base import (
    Algorithm,
    Metrics,
    critic_rows,
    locomotion_tasks,
    reward_factor,
    update_bytes,
)
from phyb.algorithms.cql import CQLConfig, Proposals
from phyb.algorithms.epq_presets import PRESETS, PUBLISHED, TWO_CORES
from phyb.algorithms.problem import Problem
from phyb.algorithms.sac import SACState
from phyb.data.dataset import Rows
from phyb.data.neighbours import cluster_shares, typical_gap
from phyb.fields import Count, Fraction, Layers, NonNegative, Positive, Whole
from phyb.networks import gradient_step, start_optimizer
from phyb.policy.actor import Actor, unsquash
from phyb.policy.critics import ValueNetwork
from phyb.policy.vae import VAE, prior_latents, vae_loss

_LARGEST = 1.0 - 1e-6
"""Actions beyond it count as this before the tanh."""


@dataclasses.dataclass(frozen=True)
class EPQConfig(CQLConfig):
    """Settings of EPQ; the defaults are the published ones that most datasets share."""

    batch_size: Count = 512
    penalty_weight: NonNegative = 20.0
    clone_steps: Whole = 10_000

    # --- Where the policy leaves the log ---
    support_threshold: NonNegative = 1.0
    """tau. Higher lets the policy go farther from logged actions before values are pressed down, and lowers the penalty
    of what is near."""
    least_penalty: Fraction = 0.005
    """Least that a row counts in the penalty. 1 is CQL's."""
    vae_hidden: Layers = (512, 512)
    """Units per hidden layer of encoder and decoder. Wider fits finer detail and costs time."""
    vae_learning_rate: Positive = 1e-4
    """Step of the optimiser of the VAE, and of the behaviour's values."""
    vae_divergence_weight: NonNegative = 0.5
    """Weight of the divergence in the VAE's loss. Lower copies logged actions more exactly."""
    latent_bound: NonNegative = 0.5
    """Latents are clipped to it. Higher counts rare actions of the log as its own too."""
    behaviour_steps: Count = 2_000_000
    """Updates at the start in which only the VAE learns, and the behaviour's values where they are fitted."""

    # --- Which rows count ---
    logged_values: Literal["returns", "fitted"] = "returns"
    """G: the logged return of the row itself, or a network fitted to the returns, in which the luck of single episodes
    averages out."""
    weight_temperature: Positive = 2.0
    """zeta, in the units of the rewards. Lower lets fewer rows of a cluster count."""
    least_weight: Fraction = 0.2
    """c, the least that a row counts in the critics' error. 1 counts all alike."""
    cluster_radius: NonNegative = 0.5
    """Radius of a cluster in mean distances to the nearest other state. 0 compares copies of one state only."""
    cluster_size: Count = 50
    """Most rows of a cluster. More take longer."""
    cluster_steps: Count = 1000
    """Updates in which the weights are computed, some rows in each. More make the single update shorter."""


class EPQState(NamedTuple):
    """Everything that changes in training."""

    sac: SACState
    vae: VAE
    values: ValueNetwork
    """G of logged rows, where it is fitted."""
    behaviour_optimizer: optax.OptState
    radius: Float[Array, ""]
    scores: Float[Array, " rows"]
    """G / zeta of each row of the log."""
    weights: Float[Array, " rows"]
    key: PRNGKeyArray
    step: Int[Array, ""]

    @property
    def actor(self) -> Actor:
        """The policy's network."""
        return self.sac.actor


def off_support(
    key: PRNGKeyArray,
    vae: VAE,
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows count act"],
    config: EPQConfig,
) -> Float[Array, " rows"]:
    """f: the mean over the actions of `exp(-max(0, log beta - tau rho))`, a draw of the VAE for each action."""
    rows, count, columns = actions.shape
    latents = prior_latents(key, rows * count, vae.encoder.outputs // 2, config.latent_bound)
    states = jnp.broadcast_to(observations[:, None], (rows, count, observations.shape[-1]))
    decoded = vae.decode(states, latents.reshape(rows, count, -1))
    log_beta = -jnp.sum((unsquash(decoded, _LARGEST) - unsquash(actions, _LARGEST)) ** 2, axis=-1)
    threshold = -config.support_threshold * columns * jnp.log(2.0)
    return jnp.mean(jnp.exp(-jnp.maximum(log_beta - threshold, 0.0)), axis=-1)


def policy_actions(proposals: Proposals, count: int) -> Float[Array, "rows count act"]:
    """The actions that the penalty's proposals have from the policy at s."""
    return proposals.actions[:, count : 2 * count]


Part = Callable[[EPQState, Problem], tuple[EPQState, Metrics]]


class EPQ(Algorithm[EPQConfig, EPQState]):
    """Exclusively penalised Q-learning."""

    name = "epq"
    config_class = EPQConfig
    presets = PRESETS
    tasks = locomotion_tasks(EPQConfig, PRESETS, steps=7_000, **TWO_CORES)
    datasets = PUBLISHED

    def setup(self) -> None:
        """The optimisers, and where the parts of a run end."""
        cfg = self.config
        self._weigh_until = cfg.behaviour_steps + cfg.cluster_steps
        self._optimizers = cql.make_optimizers(cfg, max(1, self.total_steps - self._weigh_until))
        self._behaviour_optimizer = optax.adam(cfg.vae_learning_rate)

    def memory(self, observation_size: int, action_size: int) -> int:
        """Bytes of the networks, of the values of all actions of the penalty, and of the distances held at a time."""
        cfg = self.config
        asked = cfg.batch_size * (3 * cfg.penalty_actions + 1)
        numbers = 4 * asked * sum(cfg.policy_hidden) + 2 * asked * sum(cfg.vae_hidden) + 2**24
        return update_bytes(observation_size, action_size, (*cfg.policy_hidden, *cfg.vae_hidden), numbers)

    def init(self, key: PRNGKeyArray, problem: Problem) -> EPQState:
        """Fresh networks, the radius of clusters, and weights of 1."""
        cfg, obs, act = self.config, problem.observation_size, problem.action_size
        vae_key, value_key, agent_key, key = jax.random.split(key, 4)
        vae = VAE(vae_key, obs, act, cfg.vae_hidden, 2 * obs)
        values = ValueNetwork(value_key, obs + act, cfg.policy_hidden)
        return EPQState(
            sac=sac.start(self._optimizers, agent_key, obs, act, cfg.policy_hidden, kind=cfg.actor),
            vae=vae,
            values=values,
            behaviour_optimizer=start_optimizer(self._behaviour_optimizer, (vae, values)),
            radius=cfg.cluster_radius * typical_gap(problem.rows.observations),
            scores=problem.returns * reward_factor(problem, cfg.reward_units) / cfg.weight_temperature,
            weights=jnp.ones(problem.returns.shape),
            key=key,
            step=jnp.zeros((), jnp.int32),
        )

    def update(self, state: EPQState, problem: Problem) -> tuple[EPQState, Metrics]:
        """One update of the part of the run that is under way; metrics of other parts are 0."""
        under_way = (state.step >= self.config.behaviour_steps).astype(int) + (state.step >= self._weigh_until)
        names = jax.eval_shape(self._improve, state, problem)[1]

        def whole(part: Part) -> Callable[[EPQState], tuple[EPQState, Metrics]]:
            def run(state: EPQState) -> tuple[EPQState, Metrics]:
                after, told = part(state, problem)
                return after, {name: told.get(name, jnp.zeros(())) for name in names}

            return run

        parts = [whole(part) for part in (self._imitate, self._weigh, self._improve)]
        after, told = jax.lax.switch(under_way, parts, state)
        return after._replace(step=state.step + 1), told

    def _learn_behaviour(
        self, state: EPQState, key: PRNGKeyArray, rows: Rows, returns: Float[Array, " rows"] | None = None
    ) -> tuple[EPQState, Array]:
        """One step of the VAE and, given returns, of the values of logged actions; and the VAE's loss."""
        cfg = self.config
        told = jnp.concatenate([rows.observations, rows.actions], axis=-1)

        def loss(networks: tuple[VAE, ValueNetwork]) -> tuple[Array, Array]:
            vae, values = networks
            imitation = vae_loss(vae, key, rows.observations, rows.actions, cfg.vae_divergence_weight)
            error = 0.0 if returns is None else jnp.mean((values(told) - returns) ** 2)
            return imitation + error, imitation

        networks = (state.vae, state.values)
        gradient, imitation = jax.grad(loss, has_aux=True)(networks)
        (vae, values), optimizer = gradient_step(
            self._behaviour_optimizer, gradient, state.behaviour_optimizer, networks
        )
        return state._replace(vae=vae, values=values, behaviour_optimizer=optimizer), imitation

    def _batch(self, key: PRNGKeyArray, problem: Problem) -> tuple[Rows, Int[Array, " batch"]]:
        chosen = problem.draw(key, self.config.batch_size)
        return critic_rows(problem, problem.take(chosen), self.config), chosen

    def _imitate(self, state: EPQState, problem: Problem) -> tuple[EPQState, Metrics]:
        """The first part: VAE and values of the behaviour."""
        key, batch_key, vae_key = jax.random.split(state.key, 3)
        rows, chosen = self._batch(batch_key, problem)
        fitted = self.config.logged_values == "fitted"
        returns = state.scores[chosen] * self.config.weight_temperature if fitted else None
        state, loss = self._learn_behaviour(state._replace(key=key), vae_key, rows, returns)
        return state, {"vae_loss": loss}

    def _weigh(self, state: EPQState, problem: Problem) -> tuple[EPQState, Metrics]:
        """The second part: w of the next rows of the log."""
        cfg, count = self.config, len(state.weights)
        step = state.step - cfg.behaviour_steps

        def fitted(scores: Array) -> Array:
            def one(row: Array) -> Array:
                state_of, action = problem.rows.observations[row], problem.rows.actions[row]
                return state.values(jnp.concatenate([problem.standardizer(state_of), action]))

            return jax.lax.map(one, jnp.arange(count), batch_size=4096) / cfg.weight_temperature

        scores = state.scores
        if cfg.logged_values == "fitted":
            scores = jax.lax.cond(step == 0, fitted, lambda scores: scores, scores)
        at_once = -(-count // cfg.cluster_steps)
        chosen = jnp.minimum(step * at_once + jnp.arange(at_once), count - 1)
        shares = cluster_shares(problem.rows.observations, scores, chosen, state.radius, cfg.cluster_size)
        return state._replace(scores=scores, weights=state.weights.at[chosen].set(shares)), {}

    def _improve(self, state: EPQState, problem: Problem) -> tuple[EPQState, Metrics]:
        """The third part: CQL with weights, while the VAE goes on learning."""
        cfg = self.config
        key, batch_key, vae_key, proposal_key, support_key, learn_key = jax.random.split(state.key, 6)
        rows, chosen = self._batch(batch_key, problem)
        weights = state.weights[chosen]
        state, vae_error = self._learn_behaviour(state, vae_key, rows)
        proposals = cql.propose(
            proposal_key,
            state.actor,
            rows.observations,
            rows.next_observations,
            problem.action_size,
            cfg.penalty_actions,
        )
        off = off_support(
            support_key, state.vae, rows.observations, policy_actions(proposals, cfg.penalty_actions), cfg
        )
        agent, told = cql.learn(
            cfg,
            self._optimizers,
            state.sac,
            learn_key,
            rows,
            proposals,
            problem.discount,
            imitate=state.step - self._weigh_until < cfg.clone_steps,
            row_weights=jnp.maximum(weights, cfg.least_weight),
            penalty_weights=jnp.maximum(weights * off, cfg.least_penalty),
        )
        told["q_logged"] = told.pop("target") * problem.reward_scale / reward_factor(problem, cfg.reward_units)
        told |= {"vae_loss": vae_error, "row_weight": jnp.mean(weights), "off_support": jnp.mean(off)}
        return state._replace(sac=agent, key=key), told
