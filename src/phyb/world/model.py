"""The learned environment: what the members of a pool say happens next, when episodes end, and where the data ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.dynamics.pool import Pool, Prediction
from phyb.fields import Count, NonNegative, Positive, not_if
from phyb.networks import take

TerminationRule = Callable[[Array, Array, Array], Array]
RewardRule = Callable[[Array, Array, Array], Array]
Termination = TerminationRule | Literal["learned", "none"]
"""A rule on (observation, action, next observation), the members' learned head, or nothing that ends an episode."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """How the learned environment moves, and where it is trusted."""

    noise_samples: Annotated[Count, not_if("noise", "none")] = 2
    """S, successors imagined per member, in antithetic pairs. Higher ranks members with less noise and costs time."""
    noise: Literal["shared", "private", "none"] = "shared"
    """shared: common random numbers, so that members are ranked and not their draws; private: each member draws its
    own (released code), which makes the belief pessimistic about noise itself; none: every member moves to
    the mean it predicts. Take none where the world itself is deterministic: what a member calls noise there is its own
    error, whose tails are heavy, and a fresh Gaussian draw of that size at every step shakes bodies until they fall."""
    wall_start: NonNegative = 1.0
    """Where imagined states begin to lose trust: distance from the middle of the data in ranges of the data (0.5 is
    the edge of the data). Lower stops imagined rollouts nearer to the data."""
    wall_end: Positive = 2.0
    """Where trust is lost and the imagined rollout ends, in the same unit."""

    def __post_init__(self) -> None:
        if self.wall_end <= self.wall_start:
            raise ValueError(f"wall_end must be above wall_start ({self.wall_start}), found {self.wall_end}")


class WorldModel(eqx.Module):
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
    termination: Termination = eqx.field(static=True)
    reward: RewardRule | None = eqx.field(static=True, default=None)
    """What a step earns in the units of the log, where that is known; None takes what the pool learned."""

    def env_action(self, actions: Float[Array, "*rows act"]) -> Float[Array, "*rows act"]:
        """From [-1, 1] to the units of the log."""
        return self.action_low + 0.5 * (actions + 1.0) * (self.action_high - self.action_low)

    def predict(
        self,
        members: Int[Array, " asked"],
        observations: Float[Array, "*asked rows obs"],
        actions: Float[Array, "*asked rows act"],
    ) -> Prediction:
        """What these members predict, in the units of the log; all about the same rows, or each about its own."""
        return self.pool.predict(members, observations, self.env_action(actions))

    def end_probability(
        self,
        predictions: Prediction,
        observations: Float[Array, "*rows obs"],
        actions: Float[Array, "*rows act"],
        successors: Float[Array, "*rows obs"],
    ) -> Float[Array, "*rows"]:
        """How likely a step ends its episode. All arguments broadcast against the successors."""
        env_actions = self.env_action(actions)
        return end_probability(self.termination, predictions, observations, env_actions, successors)

    def rewards(
        self,
        predictions: Prediction,
        observations: Float[Array, "*rows obs"],
        actions: Float[Array, "*rows act"],
        successors: Float[Array, "*rows obs"],
        noise: Float[Array, "*rows"] | None = None,
    ) -> Float[Array, "*rows"]:
        """What a step earns, in learning units: the known reward, or the predicted mean with the predicted noise."""
        if self.reward is not None:
            earned = self.reward(observations, self.env_action(actions), successors)
        else:
            earned = predictions.reward_mean
            earned = earned if noise is None else earned + predictions.reward_std * noise
        return earned / self.reward_scale

    def trust(self, observations: Float[Array, "*rows obs"], config: WorldConfig) -> Float[Array, "*rows"]:
        """1 inside the data's range, falling linearly to 0 between `wall_start` and `wall_end` ranges from its middle.

        A dimension that is constant in the data has no range to leave and always keeps its trust.
        """
        moves = self.range > 0
        distance = jnp.abs(observations - self.middle) / jnp.where(moves, self.range, 1.0)
        closed = (config.wall_end - distance) / (config.wall_end - config.wall_start)
        return jnp.prod(jnp.where(moves, jnp.clip(closed, 0.0, 1.0), 1.0), axis=-1)


def end_probability(
    termination: Termination,
    predictions: Prediction,
    observations: Float[Array, "*rows obs"],
    env_actions: Float[Array, "*rows act"],
    successors: Float[Array, "*rows obs"],
) -> Float[Array, "*rows"]:
    """How likely a step ends its episode: by a rule on the successor, as the members learned it, or never."""
    if termination == "none":
        return jnp.zeros(successors.shape[:-1])
    if termination == "learned":
        return jnp.broadcast_to(predictions.done_probability, successors.shape[:-1])
    assert callable(termination)
    return termination(observations, env_actions, successors).astype(successors.dtype)


class Imagined(NamedTuple):
    """What the drawn members say happens next."""

    successors: Float[Array, "drawn samples rows obs"]
    rewards: Float[Array, "drawn rows"]
    alive: Float[Array, "drawn samples rows"]
    trust: Float[Array, "drawn samples rows"]


def successor_noise(
    key: PRNGKeyArray, config: WorldConfig, members: int, rows: int, observation_size: int
) -> Float[Array, "drawn_or_1 samples rows obs"]:
    """Standard normal noise in antithetic pairs, one set for all members or one for each."""
    copies = members if config.noise == "private" else 1
    half = jax.random.normal(key, (copies, -(-config.noise_samples // 2), rows, observation_size))
    return jnp.concatenate([half, -half], axis=1)[:, : config.noise_samples]


def imagine(
    world: WorldModel,
    config: WorldConfig,
    members: Int[Array, " drawn"],
    observations: Float[Array, "*drawn rows obs"],
    actions: Float[Array, "*drawn rows act"],
    noise: Float[Array, "drawn_or_1 samples rows obs"],
    predictions: Prediction | None = None,
) -> Imagined:
    """Successors, expected rewards and survival, as each drawn member sees them.

    Rewards are the members' means: the backup is an expectation, and the mean is the expectation of the reward. A
    known reward is averaged over the imagined successors for the same reason. `predictions` are those of all members of
    the pool on these rows, where they are known already. All members are asked about the same rows, or each about its
    own.
    """
    asked = world.predict(members, observations, actions) if predictions is None else take(predictions, members)
    asked = Prediction(*(leaf[:, None] for leaf in asked))
    if observations.ndim == 3:
        observations, actions = observations[:, None], actions[:, None]
    spread = 0.0 if config.noise == "none" else asked.next_std
    successors = asked.next_mean + spread * noise
    ends = world.end_probability(asked, observations, actions, successors)
    rewards = jnp.mean(world.rewards(asked, observations, actions, successors), axis=1)
    return Imagined(successors, rewards, 1.0 - ends, world.trust(successors, config))
