"""A vector of environments stepped together, and their transitions as rows of plain numbers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Float, PRNGKeyArray

from phyb.envs.making import env_errors, registered_id
from phyb.errors import DataError, UsageError

Act = Callable[[np.ndarray, int], np.ndarray]
"""From (one observation per copy, number of the step) to one action in [-1, 1] per copy."""


@dataclasses.dataclass(frozen=True)
class Task:
    """The facts about an environment that a recording needs."""

    env_id: str
    action_low: Float[np.ndarray, " act"]
    action_high: Float[np.ndarray, " act"]
    observation_size: int
    episode_limit: int | None
    """Steps after which the environment truncates an episode; None if not stated."""

    @property
    def action_size(self) -> int:
        """Numbers in one action."""
        return len(self.action_low)

    @property
    def width(self) -> int:
        """Numbers in one recorded row: observation, action, reward, successor, terminated, truncated."""
        return 2 * self.observation_size + self.action_size + 3

    def columns(self, rows: Float[np.ndarray, "*rows width"]) -> dict[str, np.ndarray]:
        """The fields of recorded rows by name; actions are in [-1, 1], flags are 0 and 1."""
        obs, act = self.observation_size, self.action_size
        cuts = np.cumsum([obs, act, 1, obs, 1])
        parts = np.split(rows, cuts, axis=-1)
        names = ("observations", "actions", "rewards", "next_observations", "terminated", "truncated")
        flat = ("rewards", "terminated", "truncated")
        return {name: part[..., 0] if name in flat else part for name, part in zip(names, parts, strict=True)}

    def scaled(self, actions: Float[np.ndarray, "*rows act"]) -> Float[np.ndarray, "*rows act"]:
        """Actions in [-1, 1] in the units of the environment, never outside of its bounds."""
        low, high = self.action_low, self.action_high
        return np.clip(low + 0.5 * (actions + 1.0) * (high - low), low, high).astype(np.float32)


class RandomStreams:
    """The random numbers of one stage: a key, a generator and environment seeds, derived from the seed and the stage.

    No random state passes from one stage to the next, so an interrupted collection restarts a stage with the same
    numbers.
    """

    def __init__(self, seed: int, *stage: int) -> None:
        environments, numbers, key = np.random.SeedSequence((seed, *stage)).spawn(3)
        self._environments = environments
        self.generator = np.random.default_rng(numbers)
        self.key: PRNGKeyArray = jax.random.key(int(key.generate_state(1)[0]))

    def environment_seeds(self, copies: int) -> list[int]:
        """A seed for the reset of each copy."""
        return self._environments.generate_state(copies).tolist()


class Copies:
    """Copies of an environment stepped together; a `UsageError` if they cannot be made or recorded.

    They are made once, since some simulators are slow and noisy to make. A reset with seeds must bring everything back,
    as Gymnasium asks of environments: then nothing passes from one stage to the next.
    """

    def __init__(self, env_id: str, count: int) -> None:
        self.count = count
        self._env = _make(env_id, count)
        try:
            self.task = _task(self._env, env_id)
        except UsageError:
            self._env.close()
            raise
        self.observations = np.zeros((count, self.task.observation_size), np.float32)

    def close(self) -> None:
        """Close them."""
        self._env.close()

    def start(self, random: RandomStreams) -> None:
        """A new episode in every copy."""
        seeds = random.environment_seeds(self.count)
        self.observations = _float32(self._env.reset(seed=seeds)[0])  # pyright: ignore[reportArgumentType]

    def step(self, actions: Float[np.ndarray, "copies act"]) -> Float[np.ndarray, "copies width"]:
        """One step of every copy: the rows it records. An episode that ends is followed by a new one at once.

        The successor of a row that ends an episode is the state that was reached, not the state after the reset.
        """
        actions = np.asarray(actions, np.float32)
        found, rewards, terminated, truncated, infos = self._env.step(self.task.scaled(actions))
        successors = found = _float32(found)
        ended = terminated | truncated
        if ended.any():
            successors = found.copy()
            successors[ended] = np.stack([_float32(last) for last in infos["final_obs"][ended]])
        flags = (rewards, terminated, truncated & ~terminated)
        reward, terminal, timeout = (np.asarray(flag, np.float32)[:, None] for flag in flags)
        rows = np.concatenate([self.observations, actions, reward, successors, terminal, timeout], axis=1)
        if not np.isfinite(rows).all():
            raise DataError(f"{self.task.env_id}: the simulator gave a number that is not finite")
        self.observations = found
        return rows


def record(
    copies: Copies, rows: int, random: RandomStreams, act: Act, on_progress: Callable[[int], None]
) -> Float[np.ndarray, "steps copies width"]:
    """Rows of all copies side by side, at least `rows` in all; `on_progress` gets the rows so far."""
    steps = -(-rows // copies.count)
    recorded = np.empty((steps, copies.count, copies.task.width), np.float32)
    copies.start(random)
    for step in range(steps):
        recorded[step] = copies.step(act(copies.observations, step))
        on_progress(min((step + 1) * copies.count, rows))
    return recorded


def episode_returns(copies: Copies, episodes: int, random: RandomStreams, act: Act) -> Float[np.ndarray, " episodes"]:
    """Returns of at least `episodes` whole episodes, equally many of each copy.

    Taking the first to finish would favour short episodes.
    """
    quota = -(-episodes // copies.count)
    returns, finished = np.zeros((copies.count, quota + 1)), np.zeros(copies.count, int)
    all_copies = np.arange(copies.count)
    copies.start(random)
    for step in itertools.count():
        columns = copies.task.columns(copies.step(act(copies.observations, step)))
        returns[all_copies, finished] += columns["rewards"]  # the last place takes what comes after the quota
        finished = np.minimum(finished + (columns["terminated"] + columns["truncated"] > 0.5), quota)
        if np.all(finished == quota):
            break
    return returns[:, :quota].reshape(-1)


def _task(env: gymnasium.vector.VectorEnv, env_id: str) -> Task:
    action, observation = env.single_action_space, env.single_observation_space
    box = gymnasium.spaces.Box
    if not isinstance(action, box) or len(action.shape) != 1 or not np.isfinite([action.low, action.high]).all():
        raise UsageError(f"{env_id} has actions in {action}; they must be a bounded vector of continuous numbers")
    if not isinstance(observation, box) or len(observation.shape) != 1:
        raise UsageError(f"{env_id} has observations in {observation}; they must be a vector of numbers")
    limit = env.spec.max_episode_steps if env.spec is not None else None
    low, high = action.low.astype(np.float32), action.high.astype(np.float32)
    return Task(env_id, low, high, observation.shape[0], limit)


def _make(env_id: str, copies: int) -> gymnasium.vector.VectorEnv:
    with env_errors(env_id):
        mode = {"autoreset_mode": AutoresetMode.SAME_STEP}
        return gymnasium.make_vec(registered_id(env_id), copies, vectorization_mode="sync", vector_kwargs=mode)


def _float32(observations: Any) -> np.ndarray:
    return np.asarray(observations, np.float32)
