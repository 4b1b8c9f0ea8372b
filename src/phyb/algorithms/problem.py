"""The problem an algorithm solves: the log on the device, in learning units, and the frozen world learned from it."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.belief.backup import RewardRule, TerminationRule, World
from phyb.data.log import Log
from phyb.dynamics.pool import Pool
from phyb.networks import Standardizer


class Rows(NamedTuple):
    """Transitions on the device: actions in [-1, 1], rewards divided by the reward scale."""

    observations: Float[Array, "rows obs"]
    actions: Float[Array, "rows act"]
    rewards: Float[Array, " rows"]
    next_observations: Float[Array, "rows obs"]
    terminated: Float[Array, " rows"]


class Problem(eqx.Module):
    """Everything that stays fixed while a policy is optimised."""

    rows: Rows
    starts: Float[Array, "episodes obs"]
    standardizer: Standardizer
    action_low: Float[Array, " act"]
    action_high: Float[Array, " act"]
    reward_scale: Float[Array, ""]
    value_low: Float[Array, ""]
    value_high: Float[Array, ""]
    world: World | None
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    @property
    def observation_size(self) -> int:
        """Numbers in one observation."""
        return self.rows.observations.shape[1]

    @property
    def action_size(self) -> int:
        """Numbers in one action."""
        return self.rows.actions.shape[1]

    def sample(self, key: PRNGKeyArray, count: int) -> Rows:
        """`count` logged transitions, drawn with replacement."""
        chosen = jax.random.randint(key, (count,), 0, self.rows.rewards.shape[0])
        return Rows(*(leaf[chosen] for leaf in self.rows))


def make_problem(
    log: Log,
    pool: Pool | None,
    *,
    discount: float,
    horizon: int,
    termination: TerminationRule | str = "learned",
    reward: RewardRule | None = None,
) -> Problem:
    """Put a log and a pool into learning units.

    Rewards are divided by their range and never shifted: a shift would pay for staying alive. Values are bounded by
    what the rewards allow: `H min(r, 0)` to `H max(r, 0)` with `H = 1 / (1 - gamma)`, or the horizon if that is less.

    Args:
        log: the transitions.
        pool: the models learned from it; None for model-free algorithms.
        discount: gamma.
        horizon: the most steps an episode can take.
        termination: a rule on (observation, action, next observation), or "learned" or "none".
        reward: a function of the same that gives what a step earns; None takes what the pool learned.
    """
    spread = float(np.ptp(log.rewards)) or max(abs(float(log.rewards[0])), 1.0)
    rewards = log.rewards / spread
    steps = min(horizon, 1.0 / (1.0 - discount)) if discount < 1 else float(horizon)
    low, high = (jnp.asarray(log.action_low, jnp.float32), jnp.asarray(log.action_high, jnp.float32))
    actions = 2.0 * (log.actions - log.action_low) / (log.action_high - log.action_low) - 1.0
    value_low = jnp.asarray(steps * min(float(rewards.min()), 0.0), jnp.float32)
    value_high = jnp.asarray(steps * max(float(rewards.max()), 0.0), jnp.float32)
    scale = jnp.asarray(spread, jnp.float32)
    first_rows = np.concatenate([[0], np.flatnonzero(log.episode_ends[:-1]) + 1])
    world = None
    if pool is not None:
        visited = np.concatenate([log.observations, log.next_observations])
        least, most = visited.min(axis=0), visited.max(axis=0)
        middle, width = jnp.asarray(0.5 * (least + most)), jnp.asarray(most - least)
        world = World(pool, low, high, scale, middle, width, value_low, termination, reward)  # pyright: ignore[reportArgumentType]
    rows = Rows(
        *(
            jnp.asarray(x, jnp.float32)
            for x in (log.observations, actions, rewards, log.next_observations, log.terminated)
        )
    )
    return Problem(
        rows,
        rows.observations[first_rows],
        Standardizer.fit(rows.observations),
        low,
        high,
        scale,
        value_low,
        value_high,
        world,
        discount,
        horizon,
    )
