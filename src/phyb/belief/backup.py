"""Backing values up through the belief: imagine what each drawn member says, weigh the members, follow one of them.

For a row (s, a), N members i are drawn from the pool and backed up one step each,

    x_i = r_i(s, a) + gamma E[ alive_i V(s'_i) ],    s'_i ~ member i.

The k members of least x_i get weights alpha_i (`phyb.belief.weights`), the others none. The target of the critics is
`sum_i alpha_i x_i`, and the next imagined state is that of member i with probability alpha_i.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.belief.weights import Draw, WeightRule, draw_members, ranks, subset_weights
from phyb.data.dataset import Rows
from phyb.dynamics.pool import Pool, Prediction
from phyb.fields import Count, Fraction, NonNegative, Positive, not_if, only_if
from phyb.networks import Value
from phyb.world.model import Imagined, WorldConfig, WorldModel, imagine, successor_noise
from phyb.world.rollout import Step, Transition


@dataclasses.dataclass(frozen=True)
class BeliefConfig(WorldConfig):
    """What is believed about the members of the pool."""

    ensemble_size: Count = 10
    """N, members drawn per update. Raising it deepens pessimism (the worst of more) and costs time."""
    subset_size: Count = 5
    """k, the members of least backup, which are kept. Lower is more pessimistic, k = N keeps all."""
    belief_temperature: Annotated[Positive, only_if("weight_rule", "softmax", "scaled_softmax")] = 0.33
    """lambda, spread of the weights over the subset. Lower leans to the worst member, higher towards equal weights."""
    weight_rule: WeightRule = "scaled_softmax"
    """scaled_softmax: lambda relative to the range of backups inside the subset (works at any scale of values);
    softmax: the paper's raw formula; kth_min: only the k-th smallest, as PMDB; uniform: equal weights; single: one
    member of the subset at random."""
    uniform_mix: Fraction = 0.0
    """Weight spread evenly over all drawn members (the released code: 0.01). Raising it softens pessimism."""
    kth_min_probability: Fraction = 0.0
    """Probability that an update uses the `kth_min_rank`-th smallest member instead (the released code: 0.1)."""
    kth_min_rank: Annotated[Count, not_if("kth_min_probability", 0.0)] = 2
    """The rank used with `kth_min_probability`, counted from 1. Lower is more pessimistic."""
    rank_by: Literal["backup", "value"] = "backup"
    """backup: rank members by reward plus discounted value; value: by the value of the successor alone (paper)."""
    draw: Draw = "independent"
    """independent: N independent draws (paper); distinct: without replacement (released code)."""
    prior: Literal["uniform", "likelihood"] = "uniform"
    """uniform: every member of the pool is as likely; likelihood: better hold-out likelihood is drawn more often."""
    prior_strength: Annotated[NonNegative, only_if("prior", "likelihood")] = 100.0
    """Hold-out rows that count as evidence with prior likelihood. Higher trusts the best members more."""
    target_samples: Annotated[Literal["all", "first"], not_if("noise", "none"), not_if("noise_samples", 1)] = "all"
    """all: the target averages all imagined successors; first: only one of them (released code), which is noisier."""
    successor: Literal["member", "average"] = "member"
    """member: the rollout follows one member drawn by its weight (paper); average: it moves to the weighted mean of
    the members' states (released code), which may be a state that no member believes in."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.subset_size <= self.ensemble_size:
            raise ValueError(
                f"subset_size must lie between 1 and ensemble_size ({self.ensemble_size}), found {self.subset_size}"
            )
        if self.kth_min_probability > 0 and not 1 <= self.kth_min_rank <= self.ensemble_size:
            raise ValueError(
                f"kth_min_rank must lie between 1 and ensemble_size ({self.ensemble_size}), found {self.kth_min_rank}"
            )


class Belief(NamedTuple):
    """The drawn members, weighed."""

    target: Float[Array, " rows"]
    """`sum_i alpha_i x_i`."""
    weights: Float[Array, "drawn rows"]
    """alpha_i."""
    backups: Float[Array, "drawn rows"]
    """x_i."""


def backup(
    key: PRNGKeyArray,
    config: BeliefConfig,
    world: WorldModel,
    value: Value,
    discount: float,
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows act"],
    *,
    rank_value: Value | None = None,
    predictions: Prediction | None = None,
) -> tuple[Imagined, Belief]:
    """Ask a fresh draw of members about (state, action) rows and weigh what they predict.

    `value` is of raw observations; `rank_value`, if given, ranks and weighs the members instead. `predictions` are
    those of all members on these rows, where they are known already.
    """
    key_draw, key_noise, key_weights = jax.random.split(key, 3)
    members = draw(key_draw, config, world.pool)
    noise = successor_noise(key_noise, config, config.ensemble_size, *observations.shape)
    imagined = imagine(world, config, members, observations, actions, noise, predictions)
    backups = member_backups(imagined, value, discount, world.value_floor)
    ranked = backups if rank_value is None else member_backups(imagined, rank_value, discount, world.value_floor)
    return imagined, aggregate(key_weights, config, imagined, backups, ranked)


def draw(key: PRNGKeyArray, config: BeliefConfig, pool: Pool) -> Int[Array, " drawn"]:
    """Draw an ensemble of N members from the pool."""
    prior = pool.log_prior(config.prior, config.prior_strength)
    return draw_members(key, prior, config.ensemble_size, config.draw)


def member_backups(
    imagined: Imagined, value: Value, discount: float, floor: Float[Array, ""]
) -> Float[Array, "drawn samples rows"]:
    """Each member's one-step backup `r_i + gamma alive_i V(s'_i)`, sample by sample.

    Where trust is lost the successor is worth only the floor, the least the rewards allow, so that leaving the data
    never pays, whatever the sign of the rewards.
    """
    values = imagined.trust * value(imagined.successors) + (1.0 - imagined.trust) * floor
    return imagined.rewards[:, None] + discount * imagined.alive * values


def aggregate(
    key: PRNGKeyArray,
    config: BeliefConfig,
    imagined: Imagined,
    backups: Float[Array, "drawn samples rows"],
    rank_backups: Float[Array, "drawn samples rows"] | None = None,
) -> Belief:
    """Weigh the members by their backups and give the target `sum_i alpha_i x_i`.

    `rank_backups`, if given, decides ranks and weights instead of the backups that make the target.
    """
    x = jnp.mean(backups, axis=1)
    score = x if rank_backups is None else jnp.mean(rank_backups, axis=1)
    score = score - imagined.rewards if config.rank_by == "value" else score
    weights = weigh(key, config, score)
    of_target = backups[:, 0] if config.target_samples == "first" else x
    return Belief(jnp.sum(weights * of_target, axis=0), weights, x)


def weigh(key: PRNGKeyArray, config: BeliefConfig, score: Float[Array, "drawn rows"]) -> Float[Array, "drawn rows"]:
    """The belief's weights over the drawn members, by the score of each for a row."""
    key_single, key_coin = jax.random.split(key)
    weights = subset_weights(
        key_single,
        score,
        rule=config.weight_rule,
        subset_size=config.subset_size,
        temperature=config.belief_temperature,
        uniform_mix=config.uniform_mix,
    )
    if config.kth_min_probability > 0:
        kth = (ranks(score) == config.kth_min_rank - 1).astype(weights.dtype)
        weights = jnp.where(jax.random.bernoulli(key_coin, config.kth_min_probability), kth, weights)
    return weights


def follow(
    key: PRNGKeyArray, config: BeliefConfig, imagined: Imagined, weights: Float[Array, "drawn rows"]
) -> tuple[Float[Array, "rows obs"], Float[Array, " rows"], Float[Array, " rows"], Int[Array, " rows"]]:
    """The law of the next state: successor, reward, survival (0 or 1) and the member each row followed."""
    key_member, key_end = jax.random.split(key)
    chosen = jax.random.categorical(key_member, jnp.log(weights), axis=0)
    row = jnp.arange(chosen.shape[0])
    survival = imagined.alive[:, 0] * imagined.trust[:, 0]
    if config.successor == "average":
        successor = jnp.einsum("nr,nrd->rd", weights, imagined.successors[:, 0])
        reward, stays = jnp.sum(weights * imagined.rewards, axis=0), jnp.sum(weights * survival, axis=0)
    else:
        successor = imagined.successors[chosen, 0, row]
        reward, stays = imagined.rewards[chosen, row], survival[chosen, row]
    alive = (jax.random.uniform(key_end, stays.shape) < stays).astype(stays.dtype)
    return successor, reward, alive, chosen


def belief_step(world: WorldModel, config: BeliefConfig, value: Value, discount: float) -> Step:
    """A step of a rollout under the belief; the transition's `info` is the member that each row followed."""

    def step(key: PRNGKeyArray, observations: Array, actions: Array, alive: Array) -> Transition:
        key_backup, key_follow = jax.random.split(key)
        imagined, belief = backup(key_backup, config, world, value, discount, observations, actions)
        successors, rewards, survival, chosen = follow(key_follow, config, imagined, belief.weights)
        return Transition(Rows(observations, actions, rewards, successors, 1.0 - survival), alive, survival, chosen)

    return step


def belief_metrics(
    config: BeliefConfig,
    imagined: Imagined,
    belief: Belief,
    chosen: Int[Array, " rows"],
    reward_scale: Float[Array, ""],
) -> dict[str, Array]:
    """What the belief did: targets in the units of the log, pessimism, weights by rank, and where rollouts were.

    `chosen` is the member each rollout followed. `uncertainty` is the log of the standard deviation of the predicted
    next states over the pessimistic subset (figure 2 of the paper).
    """
    rank = ranks(belief.backups)
    order = jnp.argsort(belief.backups, axis=0)
    chosen_rank = jnp.take_along_axis(rank, chosen[None], axis=0)[0]
    inside = (rank < config.subset_size)[..., None]
    means = jnp.mean(imagined.successors, axis=1)
    centre = jnp.sum(jnp.where(inside, means, 0.0), axis=0) / config.subset_size
    variance = jnp.sum(jnp.where(inside, (means - centre) ** 2, 0.0), axis=0) / config.subset_size
    return {
        "q_imagined": jnp.mean(belief.target) * reward_scale,
        "uncertainty": jnp.mean(0.5 * jnp.log(jnp.sum(variance, axis=-1) + 1e-12)),
        "pessimism": jnp.mean(jnp.mean(belief.backups, axis=0) - belief.target) * reward_scale,
        "weight_by_rank": jnp.mean(jnp.take_along_axis(belief.weights, order, axis=0), axis=1),
        "chosen_by_rank": jnp.mean(chosen_rank[None] == jnp.arange(rank.shape[0])[:, None], axis=1),
        "imagined_end": jnp.mean(1.0 - imagined.alive),
        "outside_data": jnp.mean(imagined.trust < 1.0),
    }
