"""PhyB-search: model-based policy search, an evolution strategy whose fitness is a pessimistic belief over models.

It is not Algorithm 1 of the paper: there is no Bellman operator and no value is learned. One update:

1. vary the last layer of the policy in the directions that matter over the log, in antithetic pairs;
2. roll every candidate policy out for whole episodes inside N drawn models, with common random numbers;
3. weigh, for each candidate, the k models in which it earns least: its fitness `sum_i alpha_i R_i`;
4. solve the mirror step on the candidates and move to their weighted mean; the slow reference policy follows.

Belief weights and mirror step are those of PhyB. A model stays fixed for an episode, so that an episode that ends
hundreds of steps after its cause counts in full.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.algorithms.base import Algorithm, Metrics, update_bytes
from phyb.algorithms.phyb_presets import TASKS as PHYB_TASKS
from phyb.algorithms.problem import Problem
from phyb.algorithms.rollback import Incumbent, rolled_back
from phyb.algorithms.starting import CloneConfig, clone_log, rows_to_clone
from phyb.belief.backup import BeliefConfig, draw, weigh
from phyb.fields import Count, Fraction, Layers, NonNegative, Positive, Share, not_if
from phyb.networks import SlowAverage
from phyb.policy.actor import Actor, squash
from phyb.policy.mirror import mirror_step, step_size_for
from phyb.policy.policy import Policy
from phyb.policy.variation import Variation
from phyb.world.rollout import member_episodes

MOST_DIRECTION_ROWS = 10_000
"""Logged rows, evenly spread, that say in which directions a policy's features differ."""
CLONE_BATCH = 128


@dataclasses.dataclass(frozen=True)
class PhyBSearchConfig(CloneConfig):
    """Settings of the search over whole policies."""

    belief: BeliefConfig = dataclasses.field(default_factory=lambda: BeliefConfig(noise_samples=1))

    # --- Mirror step ---
    potential_mix: Fraction = 0.9
    """omega, the potential of the mirror step: 1 is relative entropy (softmax), 0 is Euclidean (sparse). Lower drops
    poor candidates entirely."""
    target_divergence: Positive = 1.0
    """How far, in nats at omega = 1, one step may go from even weights. Higher moves to the best candidates alone, and
    follows their luck too."""
    final_divergence: Share = 0.1
    """The target falls linearly to this share of itself over the run. Lower lets the policy come to rest."""

    # --- Candidates ---
    policy_candidates: Count = 48
    """Variations of the policy that are tried in an update, in antithetic pairs: an even number. More find better steps
    and cost that much more time."""
    policy_directions: Count = 30
    """Directions of its features in which a policy is varied. More can express finer changes and need more
    candidates."""
    policy_spread: Positive = 0.18
    """How far a candidate's mean action lies from the policy's, before the tanh, over logged states (rms). Higher
    moves faster; where hardly any candidate is as good as the policy itself, it is too high."""

    # --- Episodes in the models ---
    episode_starts: Count = 4
    """Start states from which each candidate is rolled out in each drawn model. More judge candidates with less
    noise."""
    episode_steps: Count = 1000
    """Most steps of these episodes. Lower is faster and blind for what comes later."""
    action_noise: NonNegative = 0.3
    """Noise on the candidates' actions in these episodes, before the tanh. Higher finds policies that withstand
    perturbation; 0 finds what earns most if nothing goes wrong."""
    disagreement_penalty: NonNegative = 1.0
    """Penalty when models disagree about a step by one standard deviation of the data, in ranges of the reward. Higher
    keeps the policy where the models know the world; at 0 it goes wherever all of them are wrong alike."""

    # --- Policy ---
    policy_hidden: Layers = (256, 256)
    """Units per hidden layer of the actor. Wider fits finer detail and costs time."""
    reference_rate: Share = 0.2
    """Share by which the reference policy, the one that is deployed, follows the actor per update. Lower is
    steadier."""
    rollback: Annotated[bool, not_if("pool_size", 1)] = True
    """Before every evaluation (`evaluate_every`), go back to the last policy that was a clear gain if the models agree
    that the present one has lost; steps are half as large from then on. A run without any clear gain ends with its
    start."""

    def __post_init__(self) -> None:
        if self.policy_candidates % 2:
            raise ValueError(
                f"policy_candidates must be even, since candidates come in antithetic pairs, found "
                f"{self.policy_candidates}"
            )
        if self.belief.noise == "private":
            raise ValueError(
                "noise must be shared or none: candidates are compared under common random numbers, found private"
            )
        if self.belief.noise_samples != 1:
            raise ValueError(f"noise_samples must be 1, one path per start, found {self.belief.noise_samples}")


class PhyBSearchState(NamedTuple):
    """Everything that changes while the policy is optimised; saving it is saving the run."""

    actor: Actor
    reference: SlowAverage[Actor]
    variation: Variation
    """Directions in which the policy is varied."""
    incumbent: Incumbent
    """The policy to go back to, with rollback."""
    key: PRNGKeyArray
    step: Int[Array, ""]


_TASKS: Mapping[str, Mapping[str, Any]] = {
    "cpu": {
        # The simulators are deterministic: members move by their means, what they call noise is their own error.
        # Actions beyond the bounds are taken as clipped there, since that is how they came about.
        "locomotion": {
            "pool": PHYB_TASKS["cpu"]["locomotion"]["pool"],
            "agent": {
                "belief": {"ensemble_size": 4, "subset_size": 2, "noise": "none"},
                "clone_steps": 15_000,
                "clone_best": 0.5,
                "clone_censored": True,
                "largest_action": 0.95,
            },
        },
        # Its episodes never end, so that shorter ones show as much; its gait stands less noise.
        "halfcheetah": {
            "agent": {
                "policy_candidates": 64,
                "policy_directions": 60,
                "policy_spread": 0.15,
                "action_noise": 0.1,
                "episode_steps": 300,
            },
            "training": {"steps": 400},
        },
    },
}


class PhyBSearch(Algorithm[PhyBSearchConfig, PhyBSearchState]):
    """Evolution of whole policies under PhyB's belief."""

    name = "phyb-search"
    config_class = PhyBSearchConfig
    needs_pool = True
    presets: ClassVar = {
        "cpu": {"training": {"steps": 200, "log_every": 5, "evaluate_every": 20, "checkpoint_every": 20}}
    }
    tasks = _TASKS

    def memory(self, observation_size: int, action_size: int) -> int:
        """Bytes of networks and one step of all episodes: each drawn model, and another for the disagreement."""
        cfg, pool = self.config, self.settings.pool
        rows = 2 * cfg.policy_candidates * cfg.episode_starts * cfg.belief.ensemble_size
        width = sum(pool.model_hidden if pool else ()) + observation_size + sum(cfg.policy_hidden)
        return update_bytes(observation_size, action_size, cfg.policy_hidden, 2 * rows * width)

    def init(self, key: PRNGKeyArray, problem: Problem) -> PhyBSearchState:
        """The actor cloned from the log, and the directions in which it will be varied."""
        cfg = self.config
        actor_key, clone_key, key = jax.random.split(key, 3)
        actor = Actor(actor_key, problem.observation_size, problem.action_size, cfg.policy_hidden)
        actor = clone_log(clone_key, actor, problem, cfg, CLONE_BATCH)
        rows = rows_to_clone(problem, cfg)
        rows = jnp.arange(problem.rows.rewards.shape[0]) if rows is None else rows
        few = problem.rows.observations[rows[:: max(1, len(rows) // MOST_DIRECTION_ROWS)]]
        return PhyBSearchState(
            actor=actor,
            reference=SlowAverage.start(actor),
            variation=Variation.over(actor, problem.standardizer(few), cfg.policy_directions),
            incumbent=Incumbent.start(actor),
            key=key,
            step=jnp.zeros((), jnp.int32),
        )

    def policy(self, state: PhyBSearchState, problem: Problem) -> Policy:
        """The policy to evaluate and deploy: the mean action of the slow reference."""
        return Policy(state.reference.average, problem.standardizer, problem.action_low, problem.action_high)

    def update(self, state: PhyBSearchState, problem: Problem) -> tuple[PhyBSearchState, Metrics]:
        """One update; noise on actions is the same for all candidates."""
        cfg, world, variation = self.config, problem.learned_world(), state.variation
        key, member_key, start_key, change_key, episode_key, weight_key = jax.random.split(state.key, 6)

        # 1. Candidate policies: the actor with its last layer changed.
        changes = variation.draw(change_key, cfg.policy_candidates, cfg.policy_spread, problem.action_size)

        # 2. Episodes of every candidate in every drawn model, from the same starts.
        members = draw(member_key, cfg.belief, world.pool)
        starts = jax.random.choice(start_key, problem.starts, (cfg.episode_starts,))
        policies, rows = len(changes), len(starts)

        def act(key: PRNGKeyArray, observations: Array) -> Array:
            apart = problem.standardizer(observations).reshape(len(members), policies, rows, -1)
            means = variation.means(state.actor, apart, changes)
            noise = cfg.action_noise * jax.random.normal(key, means.shape[2:])
            return squash(means + noise).reshape(len(members), policies * rows, -1)

        episodes = member_episodes(
            episode_key,
            world,
            cfg.belief,
            members,
            jnp.tile(starts, (policies, 1)),
            act,
            problem.standardizer,
            length=min(cfg.episode_steps, problem.horizon),
            disagreement_penalty=cfg.disagreement_penalty,
        )
        earned = jnp.mean(episodes.returns.reshape(len(members), policies, rows), axis=-1)

        # 3. The fitness of a candidate: its returns, weighed by the belief.
        weights = weigh(weight_key, cfg.belief, earned)
        fitness = jnp.sum(weights * earned, axis=0)

        # 4. The mirror step. Candidates are draws around the actor, so that each is as likely under it: the reference
        # is uniform. The actor moves to their weighted mean.
        even = jnp.full((1, policies), 1.0 / policies)
        target = state.incumbent.trust_region_scale * self._divergence(state.step)
        beta = step_size_for(fitness[None], even, target, cfg.potential_mix, "state", start=None, steps=8)
        step = mirror_step(fitness[None], even, beta, cfg.potential_mix)
        actor = variation.apply(state.actor, jnp.einsum("p,pna->na", step.weights[0], changes))
        reference = state.reference.towards(actor, cfg.reference_rate)
        after = state._replace(actor=actor, reference=reference, key=key, step=state.step + 1)
        order = jnp.argsort(earned, axis=0)
        metrics = {
            "episode_return": jnp.mean(fitness) * problem.reward_scale,
            "episode_spread": jnp.std(fitness) * problem.reward_scale,
            "pessimism": jnp.mean(jnp.mean(earned, axis=0) - fitness) * problem.reward_scale,
            "weight_by_rank": jnp.mean(jnp.take_along_axis(weights, order, axis=0), axis=1),
            "imagined_end": 1.0 - jnp.mean(episodes.survival),
            "disagreement": jnp.mean(episodes.disagreement),
            "divergence": jnp.mean(step.divergence),
            "step_size": jnp.mean(beta),
            "trust_region_scale": state.incumbent.trust_region_scale,
        }
        return after, metrics

    def _divergence(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """The divergence to meet in this update: it falls linearly to `final_divergence` of itself."""
        done = jnp.clip(step / max(self.total_steps, 1), 0.0, 1.0)
        return self.config.target_divergence * (1.0 - (1.0 - self.config.final_divergence) * done)

    def before_evaluation(self, state: PhyBSearchState, problem: Problem) -> PhyBSearchState:
        """With rollback, go back to the incumbent if the models agree that the reference has lost against it."""
        if not self.config.rollback:
            return state
        return rolled_back(state, problem, self.config.belief, self.config.disagreement_penalty, self.total_steps)
