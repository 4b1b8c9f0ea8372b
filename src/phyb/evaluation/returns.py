"""Real returns: run a policy in the simulator and summarise what it earned."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from jaxtyping import Float

from phyb.envs.making import env_errors, registered_id
from phyb.errors import UsageError

MAX_VECTOR_ENVS = 5000
MAX_SYNC_ENVS = 16
SLOW_EPISODES = 100
"""Episodes of an evaluation in a simulator that is not vectorised, if not said otherwise."""
Environment = str | gymnasium.Env[Any, Any] | VectorEnv
"""A Gymnasium id, or an environment that its owner made and closes."""


@dataclasses.dataclass(frozen=True)
class ReturnSummary:
    """What a set of episode returns says about a policy."""

    mean: float
    std_error: float
    """Standard error of the mean; not a number for a single episode."""
    cvar_10: float
    """Mean of the lowest tenth of the returns: what a bad episode earns."""
    episodes: int
    min: float
    max: float


def episode_returns(
    act: Callable[[np.ndarray], np.ndarray],
    env: Environment,
    episodes: int,
    seed: int,
    progress: Callable[[int], None] | None = None,
) -> Float[np.ndarray, " episodes"]:
    """Undiscounted returns of `episodes` whole episodes of the policy `act` in an environment.

    `act` maps a batch of observations to a batch of actions, always with the same batch size; actions are
    clipped to the action space. Each sub-environment runs a fixed number of episodes, settled beforehand: to
    take the first that finish would favour short episodes. `progress` is told how many have finished so far.
    """
    if episodes < 1:
        raise UsageError(f"evaluation needs at least 1 episode, asked for {episodes}")
    with _opened(env, episodes) as made:
        return _run(act, made, name_of_env(env), episodes, seed, progress)


def start_observations(env_id: str, episodes: int, seed: int) -> Float[np.ndarray, "starts obs"]:
    """The states in which `episode_returns` with the same arguments starts the first episode of each copy."""
    with _opened(env_id, episodes) as env:
        return np.asarray(env.reset(seed=_seeds(env, seed))[0])  # pyright: ignore[reportArgumentType]


def name_of_env(env: Environment) -> str:
    """The id of an environment; for one that was never registered, the name of its class."""
    if isinstance(env, str):
        return env
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def runs_fast(env: Environment) -> bool:
    """Whether the environment has a vectorised simulator, for which thousands of episodes take no time."""
    if not isinstance(env, str):
        return isinstance(env, VectorEnv) and not isinstance(env.unwrapped, gymnasium.vector.SyncVectorEnv)
    with _opened(env, 1) as made:
        return made.spec is not None and made.spec.vector_entry_point is not None


def cvar(returns: Float[np.ndarray, " episodes"], level: float = 0.1) -> float:
    """Mean of the lowest `level` share of the returns, rounded down to whole episodes, at least one."""
    # The small number undoes representation error: 0.29 * 100 must count 29 episodes, not 28.
    count = max(1, int(level * len(returns) + 1e-9))
    return float(np.sort(returns)[:count].mean())


def summarize(returns: Float[np.ndarray, " episodes"]) -> ReturnSummary:
    """Mean, standard error, CVaR at 10 % and range of episode returns."""
    if len(returns) == 0:
        raise UsageError("there are no episode returns to summarise")
    spread = float(np.std(returns, ddof=1)) if len(returns) > 1 else float("nan")
    return ReturnSummary(
        mean=float(np.mean(returns)),
        std_error=spread / len(returns) ** 0.5,
        cvar_10=cvar(returns, 0.1),
        episodes=len(returns),
        min=float(np.min(returns)),
        max=float(np.max(returns)),
    )


def mean_interval(
    returns: Float[np.ndarray, " episodes"], level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float] | None:
    """Interval for the mean return: percentiles of the means of episodes drawn anew (bootstrap); None for one episode.

    Episodes that fall early make returns skewed, and an interval from the standard error would be even on both sides.
    It tells how well these episodes fix the mean of this one policy, nothing about other training seeds.
    """
    if len(returns) < 2:
        return None
    generator = np.random.default_rng(seed)
    means = [np.mean(generator.choice(returns, len(returns))) for _ in range(resamples)]
    low, high = np.quantile(means, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


@contextlib.contextmanager
def _opened(env: Environment, episodes: int) -> Iterator[VectorEnv]:
    """A vector environment with at most one copy per episode, closed afterwards; one that is given stays open."""
    if isinstance(env, str):
        with env_errors(env):
            registered = registered_id(env)
            vectorised = gymnasium.spec(registered).vector_entry_point is not None
            count = min(MAX_VECTOR_ENVS if vectorised else MAX_SYNC_ENVS, episodes)
            mode = "vector_entry_point" if vectorised else "sync"
            made = gymnasium.make_vec(registered, num_envs=count, vectorization_mode=mode)
    else:
        made = env if isinstance(env, VectorEnv) else gymnasium.vector.SyncVectorEnv([lambda: env])
    try:
        if not isinstance(made.single_action_space, gymnasium.spaces.Box):
            name, space = name_of_env(env), made.single_action_space
            raise UsageError(f"{name} has actions in {space}; they must be continuous (Box)")
        yield made
    finally:
        if isinstance(env, str):
            made.close()


def _run(
    act: Callable[[np.ndarray], np.ndarray],
    env: VectorEnv,
    env_id: str,
    episodes: int,
    seed: int,
    progress: Callable[[int], None] | None,
) -> np.ndarray:
    mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    if mode is AutoresetMode.DISABLED:
        raise UsageError(f"{env_id} does not start new episodes by itself, which evaluation relies on")
    low, high = env.action_space.low, env.action_space.high  # pyright: ignore[reportAttributeAccessIssue]
    count = env.num_envs
    quota = np.full(count, episodes // count) + (np.arange(count) < episodes % count)
    first_slot = np.cumsum(quota) - quota
    returns = np.empty(episodes)
    finished = np.zeros(count, dtype=int)
    running_return = np.zeros(count)
    resetting = np.zeros(count, dtype=bool)

    observations, _ = env.reset(seed=_seeds(env, seed))  # pyright: ignore[reportArgumentType]
    while np.any(finished < quota):
        actions = np.asarray(act(observations))
        if actions.shape != low.shape or not np.all(np.isfinite(actions)):
            raise UsageError(
                f"the policy gave actions of shape {actions.shape}, "
                f"{np.count_nonzero(~np.isfinite(actions))} of them not finite; "
                f"{env_id} expects finite actions of shape {low.shape}"
            )
        observations, rewards, terminated, truncated, _ = env.step(np.clip(actions, low, high).astype(low.dtype))
        # In next-step mode the step after an end only starts the next episode: it belongs to neither.
        running_return = np.where(resetting, 0.0, running_return + rewards)
        ended = (terminated | truncated) & ~resetting
        counted = np.flatnonzero(ended & (finished < quota))
        returns[first_slot[counted] + finished[counted]] = running_return[counted]
        finished[counted] += 1
        running_return[ended] = 0.0
        resetting = ended if mode is AutoresetMode.NEXT_STEP else np.zeros_like(ended)
        if progress is not None and len(counted):
            progress(int(finished.sum()))
    return returns


def _seeds(env: VectorEnv, seed: int) -> int | list[int]:
    """One seed per sub-environment where that is possible.

    Gymnasium would seed copy i with seed + i: evaluations with neighbouring seeds would share most episodes.
    """
    if isinstance(env.unwrapped, gymnasium.vector.SyncVectorEnv):
        return np.random.SeedSequence(seed).generate_state(env.num_envs).tolist()
    return seed
