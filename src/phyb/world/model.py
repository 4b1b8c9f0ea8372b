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


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """How the learned environment moves, and where it is trusted."""

    noise_samples: Annotated[Count, not_if("noise", "none")] = 2
    """S, successors imagined per member, in antithetic pairs. Higher ranks members by less luck and costs time."""
    noise: Literal["shared", "private", "none"] = "shared"
    """shared: all members see the same noise, so that members are ranked, not their luck; private: each draws its
    own (released code), which makes the belief pessimistic about chance in noisy worlds; none: every member moves to
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
    termination: TerminationRule | Literal["learned", "none"] = eqx.field(static=True)
    reward: RewardRule | None = eqx.field(static=True, default=None)
    """What a step earns in the units of the log, where that is known; None takes what the pool learned."""

    def env_action(self, actions: Float[Array, "*rows act"]) -> Float[Array, "*rows act"]:
        """From [-1, 1] to the units of the log."""
        return self.action_low + 0.5 * (actions + 1.0) * (self.action_high - self.action_low)

    def trust(self, observations: Float[Array, "*rows obs"], config: WorldConfig) -> Float[Array, "*rows"]:
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
    env_actions = world.env_action(actions)
    predictions = (
        world.pool.predict(members, observations, env_actions) if predictions is None else take(predictions, members)
    )
    if observations.ndim == 3:
        observations, env_actions = observations[:, None], env_actions[:, None]
    spread = 0.0 if config.noise == "none" else predictions.next_std[:, None]
    successors = predictions.next_mean[:, None] + spread * noise
    if world.termination == "none":
        alive = jnp.ones(successors.shape[:-1])
    elif world.termination == "learned":
        alive = jnp.broadcast_to(1.0 - predictions.done_probability[:, None], successors.shape[:-1])
    else:
        assert callable(world.termination)
        alive = 1.0 - world.termination(observations, env_actions, successors).astype(successors.dtype)
    rewards = predictions.reward_mean
    if world.reward is not None:
        rewards = jnp.mean(world.reward(observations, env_actions, successors), axis=1)
    return Imagined(successors, rewards / world.reward_scale, alive, world.trust(successors, config))
