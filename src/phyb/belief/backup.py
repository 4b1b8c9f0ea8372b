"""Backing values up through the belief: imagine what each drawn member says, weigh the members, follow one of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.belief.weights import Draw, WeightRule, draw_members, ranks, subset_weights
from phyb.dynamics.pool import Pool, Prediction
from phyb.networks import take

Value = Callable[[Float[Array, "*rows obs"]], Float[Array, "*rows"]]
TerminationRule = Callable[[Array, Array, Array], Array]
RewardRule = Callable[[Array, Array, Array], Array]


@dataclasses.dataclass(frozen=True)
class BeliefConfig:
    """What is believed about the members of the pool."""

    ensemble_size: int = 10
    """N, members drawn per update. Raising it deepens pessimism (the worst of more) and costs time."""
    subset_size: int = 5
    """k, the members that promise least and are kept. Lower is more pessimistic, k = N keeps all."""
    belief_temperature: float = 0.33
    """lambda, spread of the weights over the subset. Lower leans to the worst member, higher towards equal weights."""
    weight_rule: WeightRule = "scaled_softmax"
    """scaled_softmax: lambda relative to the range of promises inside the subset (works at any scale of values);
    softmax: the paper's raw formula; kth_min: only the k-th smallest, as PMDB; uniform: equal weights; single: one
    member of the subset at random."""
    uniform_mix: float = 0.0
    """Weight spread evenly over all drawn members (the released code: 0.01). Raising it softens pessimism."""
    kth_min_probability: float = 0.0
    """Chance that an update uses the `kth_min_rank`-th smallest member instead (the released code: 0.1)."""
    kth_min_rank: int = 2
    """The rank used with `kth_min_probability`, counted from 1. Lower is more pessimistic."""
    rank_by: Literal["backup", "value"] = "backup"
    """backup: rank members by reward plus discounted value; value: by the value of the successor alone (paper)."""
    draw: Draw = "independent"
    """independent: N independent draws (paper); distinct: without replacement (released code)."""
    prior: Literal["uniform", "likelihood"] = "uniform"
    """uniform: every member of the pool is as likely; likelihood: better hold-out likelihood is drawn more often."""
    prior_strength: float = 100.0
    """Hold-out rows that count as evidence with prior likelihood. Higher trusts the best members more."""
    noise_samples: int = 2
    """S, successors imagined per member, in antithetic pairs. Higher ranks members by less luck and costs time."""
    noise: Literal["shared", "private", "none"] = "shared"
    """shared: all members see the same noise, so that members are ranked, not their luck; private: each draws its
    own (released code), which makes the belief pessimistic about chance in noisy worlds; none: every member moves to
    the mean it predicts. Take none where the world itself is deterministic: what a member calls noise there is its own
    error, whose tails are heavy, and a fresh Gaussian draw of that size at every step shakes bodies until they fall."""
    target_samples: Literal["all", "first"] = "all"
    """all: the target averages all imagined successors; first: only one of them (released code), which is noisier."""
    successor: Literal["member", "average"] = "member"
    """member: the rollout follows one member drawn by its weight (paper); average: it moves to the weighted mean of
    the members' states (released code), which may be a state that no member believes in."""
    wall_start: float = 1.0
    """Where imagined states begin to lose trust: distance from the middle of the data in ranges of the data (0.5 is
    the edge of the data). Lower stops imagined rollouts nearer to the data."""
    wall_end: float = 2.0
    """Where trust is lost and the imagined rollout ends, in the same unit."""

    def __post_init__(self) -> None:
        if not 1 <= self.subset_size <= self.ensemble_size:
            raise ValueError(
                f"subset_size must lie between 1 and ensemble_size ({self.ensemble_size}), found {self.subset_size}"
            )
        if self.noise_samples < 1 or self.belief_temperature <= 0:
            raise ValueError("noise_samples must be at least 1 and belief_temperature above 0")
        if self.kth_min_probability > 0 and not 1 <= self.kth_min_rank <= self.ensemble_size:
            raise ValueError(
                f"kth_min_rank must lie between 1 and ensemble_size ({self.ensemble_size}), found {self.kth_min_rank}"
            )
        if self.wall_end <= self.wall_start:
            raise ValueError(f"wall_end must be above wall_start ({self.wall_start}), found {self.wall_end}")


class World(eqx.Module):
    """What imagination needs beside the pool: units, when episodes end, and where the data ends.

    Actions are in [-1, 1] here and in the pool's units inside; rewards are divided by `reward_scale`.
    """

    pool: Pool
    action_low: Float[Array, " act"]
    action_high: Float[Array, " act"]
    reward_scale: Float[Array, ""]
    middle: Float[Array, " obs"]
    range: Float[Array, " obs"]
    value_floor: Float[Array, ""]
    termination: TerminationRule | Literal["learned", "none"] = eqx.field(static=True)
    reward: RewardRule | None = eqx.field(static=True, default=None)
    """What a step earns in the units of the log, where that is known; None takes what the pool learned."""

    def env_action(self, actions: Float[Array, "*rows act"]) -> Float[Array, "*rows act"]:
        """From [-1, 1] to the units of the log."""
        return self.action_low + 0.5 * (actions + 1.0) * (self.action_high - self.action_low)

    def trust(self, observations: Float[Array, "*rows obs"], config: BeliefConfig) -> Float[Array, "*rows"]:
        """1 inside the data's range, falling linearly to 0 between `wall_start` and `wall_end` ranges from its middle.

        A dimension that is constant in the data has no range to leave and always keeps its trust.
        """
        moves = self.range > 0
        distance = jnp.abs(observations - self.middle) / jnp.where(moves, self.range, 1.0)
        closed = (config.wall_end - distance) / (config.wall_end - config.wall_start)
        return jnp.prod(jnp.where(moves, jnp.clip(closed, 0.0, 1.0), 1.0), axis=-1)


class Imagined(NamedTuple):
    """What the drawn members say happens next."""

    successors: Float[Array, "drawn samples rows obs"]
    rewards: Float[Array, "drawn rows"]
    alive: Float[Array, "drawn samples rows"]
    trust: Float[Array, "drawn samples rows"]


class Belief(NamedTuple):
    """The weighed opinion of the drawn members."""

    target: Float[Array, " rows"]
    weights: Float[Array, "drawn rows"]
    backups: Float[Array, "drawn rows"]


def belief_noise(
    key: PRNGKeyArray, config: BeliefConfig, rows: int, observation_size: int
) -> Float[Array, "drawn_or_1 samples rows obs"]:
    """Standard normal noise in antithetic pairs, one set for all members or one for each."""
    members = config.ensemble_size if config.noise == "private" else 1
    half = jax.random.normal(key, (members, -(-config.noise_samples // 2), rows, observation_size))
    return jnp.concatenate([half, -half], axis=1)[:, : config.noise_samples]


def imagine(
    world: World,
    config: BeliefConfig,
    members: Int[Array, " drawn"],
    observations: Float[Array, "*drawn rows obs"],
    actions: Float[Array, "*drawn rows act"],
    noise: Float[Array, "drawn_or_1 samples rows obs"],
    told: Prediction | None = None,
) -> Imagined:
    """Successors, expected rewards and survival, as each drawn member sees them.

    Rewards are the members' means: the backup is an expectation, and the mean is the expectation of the reward. A
    known reward is averaged over the imagined successors for the same reason. `told` is what all members of the pool
    predict on these rows, where that is known already. All members are asked about the same rows, or each about its
    own.
    """
    env_actions = world.env_action(actions)
    told = world.pool.predict(members, observations, env_actions) if told is None else take(told, members)
    if observations.ndim == 3:
        observations, env_actions = observations[:, None], env_actions[:, None]
    spread = 0.0 if config.noise == "none" else told.next_std[:, None]
    successors = told.next_mean[:, None] + spread * noise
    if world.termination == "none":
        alive = jnp.ones(successors.shape[:-1])
    elif world.termination == "learned":
        alive = jnp.broadcast_to(1.0 - told.done_probability[:, None], successors.shape[:-1])
    else:
        assert callable(world.termination)
        alive = 1.0 - world.termination(observations, env_actions, successors).astype(successors.dtype)
    rewards = told.reward_mean
    if world.reward is not None:
        rewards = jnp.mean(world.reward(observations, env_actions, successors), axis=1)
    return Imagined(successors, rewards / world.reward_scale, alive, world.trust(successors, config))


def member_backups(
    imagined: Imagined, value: Value, discount: float, floor: Float[Array, ""]
) -> Float[Array, "drawn samples rows"]:
    """Each member's one-step promise `r_i + gamma alive_i V(s'_i)`, sample by sample.

    Where trust is lost the successor is worth only the floor, the least the rewards allow, so that leaving the data
    never pays, whatever the sign of the rewards.
    """
    values = imagined.trust * value(imagined.successors) + (1.0 - imagined.trust) * floor
    return imagined.rewards[:, None] + discount * imagined.alive * values


def believe(
    key: PRNGKeyArray,
    config: BeliefConfig,
    imagined: Imagined,
    backups: Float[Array, "drawn samples rows"],
    rank_backups: Float[Array, "drawn samples rows"] | None = None,
) -> Belief:
    """Weigh the members by what they promise and give the target `sum_i alpha_i x_i`.

    `rank_backups`, if given, decides ranks and weights instead of the backups that make the target.
    """
    x = jnp.mean(backups, axis=1)
    score = x if rank_backups is None else jnp.mean(rank_backups, axis=1)
    score = score - imagined.rewards if config.rank_by == "value" else score
    weights = weigh(key, config, score)
    promised = backups[:, 0] if config.target_samples == "first" else x
    return Belief(jnp.sum(weights * promised, axis=0), weights, x)


def weigh(key: PRNGKeyArray, config: BeliefConfig, score: Float[Array, "drawn rows"]) -> Float[Array, "drawn rows"]:
    """The belief's weights over the drawn members, by what each of them promises for a row."""
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


def draw(key: PRNGKeyArray, config: BeliefConfig, pool: Pool) -> Int[Array, " drawn"]:
    """Draw this update's ensemble from the pool."""
    prior = pool.log_prior(config.prior, config.prior_strength)
    return draw_members(key, prior, config.ensemble_size, config.draw)
