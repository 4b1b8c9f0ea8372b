"""What a policy is worth: in the simulator if there is one, and under the belief."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from rich.console import Console

from phyb.algorithms.problem import Problem
from phyb.belief.backup import BeliefConfig
from phyb.envs.oracle import rule_return
from phyb.envs.rules import RULES
from phyb.envs.tasks import find_task, normalized_score
from phyb.errors import UsageError
from phyb.evaluation.belief_return import Episodes, belief_returns
from phyb.evaluation.film import check_film_path, film_episode
from phyb.evaluation.fitted_q import FittedQConfig, fit_q
from phyb.evaluation.returns import (
    episode_returns,
    mean_interval,
    runs_fast,
    start_observations,
    summarize,
)
from phyb.interrupt import StopRequests
from phyb.policy.policy import Policy, load_policy
from phyb.training.folder import RunFolder, versions
from phyb.training.job import FINAL_SLOW_EPISODES, Job
from phyb.training.progress import Stages
from phyb.training.settings import TrainingConfig


def judge_on_the_way(job: Job, policy: Policy, state: Any, problem: Problem, step: int) -> dict[str, Any]:
    """A quick look at the policy during training: true return if there is a simulator, return under the belief if
    there are models, and the learned value of start states if there is one.

    The first look, at the policy that training starts from, is as thorough as the last.
    """
    found: dict[str, Any] = {}
    starts = np.asarray(problem.starts[: job.belief_episodes(False)])
    if job.env_id is not None:
        act = _stoppable(policy, job.stop)
        real = summarize(episode_returns(act, job.env_id, job.episodes(step == 0), job.seed + 1))
        found |= {"true_return": real.mean, "true_std_error": real.std_error}
        if job.task is not None:
            found["normalized_score"] = normalized_score(job.task, real.mean)
    episodes, value = _believed(job, policy, state, problem, starts, step), job.algorithm.value(state, problem)
    if episodes is not None:
        imagined = summarize(episodes.total)
        found |= {
            "belief_return": imagined.mean,
            "belief_std_error": imagined.std_error,
            "belief_discounted": float(episodes.discounted.mean()),
        }
    if value is not None:
        found["start_value"] = float(value(problem.standardizer(problem.starts)).mean() * problem.reward_scale)
    return found


def _stoppable(policy: Policy, stop: StopRequests) -> Callable[[np.ndarray], np.ndarray]:
    """The policy's actions, until somebody asks to stop: simulated episodes can take minutes."""

    def act(observations: np.ndarray) -> np.ndarray:
        stop.check()
        return policy.act(observations)

    return act


def _believed(
    job: Job, policy: Policy, state: Any, problem: Problem, starts: np.ndarray, step: int, *, final: bool = False
) -> Episodes | None:
    """Episodes under the belief, whose models are ranked by the value that the algorithm learned.

    For one that learns none, the last policy is valued by fitted Q evaluation, which is too slow for evaluations on the
    way. None without models, or without a value to rank them by. Algorithms without a belief are judged under the
    default one.
    """
    value = job.algorithm.value(state, problem)
    if problem.world is None or (value is None and not final):
        return None
    key = jax.random.fold_in(jax.random.key(job.seed), 1_000_000_007 + step)
    if value is None:
        value = fit_q(jax.random.fold_in(key, 1), policy, problem, starts, FittedQConfig()).q
    belief = getattr(job.settings.agent, "belief", BeliefConfig())
    return belief_returns(key, policy, value, problem, belief, starts)


def judge(job: Job, policy: Policy, state: Any, problem: Problem) -> dict[str, Any]:
    """Everything result.json says; null where there is no simulator, no reference or no belief."""
    seed = job.seed + 10_007
    finished = job.log.episode_returns()[: int((job.log.terminated | job.log.truncated).sum())]
    result: dict[str, Any] = {
        "task": job.name,
        "algorithm": job.algorithm.name,
        "preset": job.folder.read_config()["preset"],
        "seed": job.seed,
        "steps": job.settings.training.steps,
        "normalized_score": None,
        "mean_return": None,
        "std_error": None,
        "cvar_10": None,
        "optimal_return": job.task.optimal_return if job.task is not None else None,
        "regret": None,
        "behaviour_return": float(finished.mean()),
        "episodes": None,
        "rules": {},
    }
    starts = np.asarray(problem.starts[: job.belief_episodes(True)])
    with job.stages.stage("evaluate", "judge ", job.episodes(True)) as advance:
        if job.env_id is not None:
            count = job.episodes(True)
            act = _stoppable(policy, job.stop)
            returns = episode_returns(act, job.env_id, count, seed, lambda done: advance(done, ""))
            real = summarize(returns)
            starts = start_observations(job.env_id, count, seed)[: job.belief_episodes(True)]
            result |= {
                "mean_return": real.mean,
                "std_error": _finite_or_none(real.std_error),
                "cvar_10": real.cvar_10,
                "episodes": real.episodes,
            }
            if job.task is not None:
                result["normalized_score"] = normalized_score(job.task, real.mean)
            if result["optimal_return"] is not None:
                result["regret"] = result["optimal_return"] - real.mean
        episodes = _believed(job, policy, state, problem, starts, job.settings.training.steps + 1, final=True)
    result |= {"belief_return": None, "belief_std_error": None}
    if episodes is not None:
        imagined = summarize(episodes.total)
        result |= {"belief_return": imagined.mean, "belief_std_error": _finite_or_none(imagined.std_error)}
    result["belief_is_lower_bound"] = _is_lower_bound(result)
    if job.task is not None and job.task.name == "liquidation":
        for name, rule in RULES.items():
            value = rule_return(rule)
            result["rules"][name] = {
                "mean_return": value,
                "normalized_score": normalized_score(job.task, value),
            }
    result["wall_seconds"] = {name: round(seconds, 2) for name, seconds in job.stages.seconds.items()}
    result["versions"] = versions()
    return result


def _is_lower_bound(result: dict[str, Any]) -> bool | None:
    """Whether the return under the belief is at or below the true one within two standard errors of their gap."""
    if result["mean_return"] is None or result["std_error"] is None or result["belief_std_error"] is None:
        return None
    error = float(np.hypot(result["std_error"], result["belief_std_error"]))
    return bool(result["belief_return"] <= result["mean_return"] + 2.0 * error)


def _finite_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


def evaluate_run(
    run_folder: str | os.PathLike[str],
    episodes: int | None = None,
    env: str | None = None,
    seed: int = 12_345,
    console: Console | None = None,
    render: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Run the policy of a run folder in a simulator and summarise what it earns.

    Args:
        run_folder: a finished run.
        episodes: how many episodes to run; None runs 20,000 where the simulator is vectorised, else 100.
        env: another simulator than the run's own.
        seed: seeds the simulator.
        console: where progress is shown.
        render: where to write a film of one episode, a name ending in .gif or .mp4; None films nothing.
    """
    config = RunFolder(run_folder).read_config()
    env_id = env or config.get("env_id")
    if env_id is None:
        raise UsageError(f"{run_folder}: this run has no simulator. Name one with --env, such as --env Hopper-v5.")
    if render is not None:
        check_film_path(render)
    policy, task = load_policy(run_folder), find_task(env_id)
    if episodes is None:
        episodes = TrainingConfig.final_episodes if runs_fast(env_id) else FINAL_SLOW_EPISODES
    stages, film = Stages(console), None
    if render is not None:  # first, since it can fail and is soon done
        with stages.stage("film", "film    ", 1):
            film = film_episode(policy.act, env_id, render, seed)
    with stages.stage("evaluate", "episodes", episodes) as advance:
        returns = episode_returns(policy.act, env_id, episodes, seed, lambda done: advance(done, ""))
    found, interval = summarize(returns), mean_interval(returns)
    optimum = task.optimal_return if task is not None else None

    def score(mean_return: float) -> float | None:
        return normalized_score(task, mean_return) if task is not None else None

    return {
        "env_id": env_id,
        "mean_return": found.mean,
        "interval_95": interval,
        "std_error": _finite_or_none(found.std_error),
        "cvar_10": found.cvar_10,
        "episodes": found.episodes,
        "min": found.min,
        "max": found.max,
        "normalized_score": score(found.mean),
        "normalized_interval_95": None if interval is None or score(0.0) is None else tuple(map(score, interval)),
        "regret": optimum - found.mean if optimum is not None else None,
        "film": None if film is None else dataclasses.asdict(film),
    }
