"""What a policy earns in a simulator."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from rich.console import Console

from phyb.algorithms.settings import TrainingConfig
from phyb.envs.tasks import find_task, normalized_score
from phyb.errors import UsageError
from phyb.evaluation.film import film_episode
from phyb.evaluation.returns import SLOW_EPISODES, episode_returns, mean_interval, name_of_env, runs_fast, summarize
from phyb.policy.policy import load_policy
from phyb.training.folder import RunFolder
from phyb.training.progress import Stages
from phyb.training.records import number


class Acts(Protocol):
    """Anything with `act`, which maps a batch of observations to a batch of actions."""

    def act(self, observations: Any, /) -> np.ndarray:
        """Actions in the units of the environment."""
        ...


def evaluate(
    policy: Acts,
    env: str | gymnasium.Env[Any, Any] | VectorEnv,
    episodes: int | None = None,
    seed: int = 12_345,
    console: Console | None = None,
) -> dict[str, Any]:
    """Run a policy in a simulator and summarise what it earns.

    Args:
        policy: what acts, such as `run.policy` or `phyb.load_policy(folder)`.
        env: a Gymnasium id (module:id imports the module first) or an environment, which is left open.
        episodes: how many episodes to run; None runs 20,000 where the simulator is vectorised, else 100.
        seed: seeds the simulator.
        console: where progress is shown; None shows it on the terminal.

    Returns:
        Mean return with its 95 % interval and standard error, the mean of the worst tenth, range, and for known tasks
        the normalised score and the regret.

    Raises:
        UsageError: there is no such environment, or policy and environment do not fit.
    """
    name = name_of_env(env)
    task = find_task(name)
    if episodes is None:
        episodes = TrainingConfig.final_episodes if runs_fast(env) else SLOW_EPISODES
    with Stages(console).stage("evaluate", "episodes", episodes) as advance:
        returns = episode_returns(policy.act, env, episodes, seed, lambda done: advance(done, ""))
    found, interval = summarize(returns), mean_interval(returns)
    optimum = task.optimal_return if task is not None else None

    def score(mean_return: float) -> float | None:
        return normalized_score(task, mean_return) if task is not None else None

    return {
        "env_id": name,
        "mean_return": found.mean,
        "interval_95": interval,
        "std_error": number(found.std_error),
        "cvar_10": found.cvar_10,
        "episodes": found.episodes,
        "min": found.min,
        "max": found.max,
        "normalized_score": score(found.mean),
        "normalized_interval_95": None if interval is None or score(0.0) is None else tuple(map(score, interval)),
        "regret": optimum - found.mean if optimum is not None else None,
    }


def evaluate_run(
    run_folder: str | os.PathLike[str],
    episodes: int | None = None,
    env: str | None = None,
    seed: int = 12_345,
    console: Console | None = None,
    render: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Run the policy of a run folder in a simulator and summarise what it earns, as `evaluate` does.

    Args:
        run_folder: a finished run.
        episodes: how many episodes to run; None runs 20,000 where the simulator is vectorised, else 100.
        env: another simulator than the run's own.
        seed: seeds the simulator.
        console: where progress is shown.
        render: where to write a film of one episode, a name ending in .gif or .mp4; None films nothing.
    """
    env_id = env or RunFolder(run_folder).read_config().get("env_id")
    if env_id is None:
        raise UsageError(f"{run_folder}: this run has no simulator. Name one with --env, such as --env Hopper-v5.")
    policy, film = load_policy(run_folder), None
    if render is not None:  # first, since it can fail and is soon done
        with Stages(console).stage("film", "film    ", 1):
            film = dataclasses.asdict(film_episode(policy.act, env_id, render, seed))
    return evaluate(policy, env_id, episodes, seed, console) | {"film": film}
