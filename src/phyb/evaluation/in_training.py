"""Evaluations of a run: at intervals during training, and the last one, which is reported.

The return under the belief ranks models by fitted Q evaluation of the very policy, for every algorithm, as
`phyb select` does: whatever values the algorithm itself has learned play no part in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from phyb.algorithms.problem import Problem
from phyb.algorithms.registry import word_of
from phyb.belief.backup import BeliefConfig
from phyb.envs.oracle import rule_return
from phyb.envs.rules import RULES
from phyb.envs.tasks import normalized_score
from phyb.evaluation.belief_return import Episodes, belief_returns
from phyb.evaluation.fitted_q import QUICK_FIT, FittedQConfig, fit_q
from phyb.evaluation.returns import (
    SLOW_EPISODES,
    ReturnSummary,
    episode_returns,
    runs_fast,
    start_observations,
    summarize,
)
from phyb.policy.policy import Policy
from phyb.training.folder import versions
from phyb.training.job import Job
from phyb.training.records import number

# Steps imagined for one estimate of the return under the belief: during training, and at the end.
_BELIEF_STEPS, _FINAL_BELIEF_STEPS = 20_000, 100_000
_QUICK_SLOW_EPISODES = 20


def evaluate_in_training(job: Job, policy: Policy, problem: Problem, step: int) -> dict[str, Any]:
    """An evaluation during training: the true return if there is a simulator, the return under the belief if there are
    models.

    The first one, of the policy that training starts from, is as thorough as the last; those between are quicker.
    """
    found: dict[str, Any] = {}
    starts = np.asarray(problem.starts[: belief_episodes(problem.horizon, final=False)])
    real = _in_simulator(job, policy, _episodes(job, final=step == 0), job.seed + 1)
    if real is not None:
        found |= {"true_return": real.mean, "true_std_error": real.std_error}
        if job.task is not None:
            found["normalized_score"] = normalized_score(job.task, real.mean)
    episodes = _under_belief(job, policy, problem, starts, step, FittedQConfig() if step == 0 else QUICK_FIT)
    if episodes is not None:
        imagined = summarize(episodes.total)
        found |= {
            "belief_return": imagined.mean,
            "belief_std_error": imagined.std_error,
            "belief_discounted": float(episodes.discounted.mean()),
        }
    return found


def final_evaluation(job: Job, policy: Policy, problem: Problem, stopped_at: int | None = None) -> dict[str, Any]:
    """Everything result.json says; null where there is no simulator, no reference or no belief.

    `stopped_at` is the update after which a callback stopped the run.
    """
    seed = job.seed + 10_007
    finished = job.log.episode_returns()[: int((job.log.terminated | job.log.truncated).sum())]
    result: dict[str, Any] = {
        "task": job.name,
        "algorithm": word_of(type(job.algorithm)),
        "preset": job.algorithm.preset,
        "seed": job.seed,
        "steps": job.settings.training.steps,
        "stopped_at": stopped_at,
        "normalized_score": None,
        "mean_return": None,
        "std_error": None,
        "cvar_10": None,
        "optimal_return": job.task.optimal_return if job.task is not None else None,
        "regret": None,
        "behaviour_return": float(finished.mean()),
        "episodes": None,
        "rules": {},
        "belief_return": None,
        "belief_std_error": None,
    }
    count, imagined_episodes = _episodes(job, final=True), belief_episodes(problem.horizon)
    starts = np.asarray(problem.starts[:imagined_episodes])
    with job.stages.stage("evaluate", "evaluation", count) as advance:
        real = _in_simulator(job, policy, count, seed, lambda done: advance(done, ""))
        if real is not None and job.env_id is not None:
            starts = start_observations(job.env_id, count, seed)[:imagined_episodes]
            result |= {
                "mean_return": real.mean,
                "std_error": number(real.std_error),
                "cvar_10": real.cvar_10,
                "episodes": real.episodes,
            }
            if job.task is not None:
                result["normalized_score"] = normalized_score(job.task, real.mean)
            if result["optimal_return"] is not None:
                result["regret"] = result["optimal_return"] - real.mean
        episodes = _under_belief(job, policy, problem, starts, job.settings.training.steps + 1, FittedQConfig())
    if episodes is not None:
        imagined = summarize(episodes.total)
        result |= {"belief_return": imagined.mean, "belief_std_error": number(imagined.std_error)}
    result["belief_is_lower_bound"] = _is_lower_bound(result)
    if job.task is not None and job.task.name == "liquidation":
        for name, rule in RULES.items():
            value = rule_return(rule)
            result["rules"][name] = {"mean_return": value, "normalized_score": normalized_score(job.task, value)}
    result["wall_seconds"] = {name: round(seconds, 2) for name, seconds in job.stages.seconds.items()}
    result["versions"] = versions()
    return result


def belief_episodes(horizon: int, *, final: bool = True) -> int:
    """Imagined episodes of an evaluation: fewer where episodes are long."""
    return max(50, (_FINAL_BELIEF_STEPS if final else _BELIEF_STEPS) // horizon)


def _episodes(job: Job, *, final: bool) -> int:
    """Simulated episodes of an evaluation: as set, but few where the simulator is slow."""
    training = job.settings.training
    asked = training.final_episodes if final else training.evaluation_episodes
    if job.env_id is None or runs_fast(job.env_id):
        return asked
    return min(asked, SLOW_EPISODES if final else _QUICK_SLOW_EPISODES)


def _under_belief(
    job: Job, policy: Policy, problem: Problem, starts: np.ndarray, step: int, fit: FittedQConfig
) -> Episodes | None:
    """Episodes under the belief, with models ranked by fitted Q evaluation of the policy; None without models.

    Algorithms without a belief are evaluated under the default one. The key is none of those of training.
    """
    if problem.world is None:
        return None
    key = jax.random.fold_in(jax.random.key(job.seed), 1_000_000_007 + step)
    fit = dataclasses.replace(fit, fit_steps=job.settings.training.fit_steps)
    value = fit_q(jax.random.fold_in(key, 1), policy, problem, starts, fit, stop=job.stop).q
    belief = getattr(job.settings.agent, "belief", BeliefConfig())
    return belief_returns(key, policy, value, problem, belief, starts)


def _in_simulator(
    job: Job, policy: Policy, episodes: int, seed: int, progress: Callable[[int], None] | None = None
) -> ReturnSummary | None:
    """What the policy earns in the simulator; None without one. It may take minutes, and stops where that is asked."""
    if job.env_id is None:
        return None

    def act(observations: np.ndarray) -> np.ndarray:
        job.stop.check()
        return policy.act(observations)

    return summarize(episode_returns(act, job.env_id, episodes, seed, progress))


def _is_lower_bound(result: dict[str, Any]) -> bool | None:
    """Whether the return under the belief is at or below the true one within two standard errors of their gap."""
    if result["mean_return"] is None or result["std_error"] is None or result["belief_std_error"] is None:
        return None
    error = float(np.hypot(result["std_error"], result["belief_std_error"]))
    return bool(result["belief_return"] <= result["mean_return"] + 2.0 * error)
