"""Table 2 of the paper, liquidation: its rows, the paper's scores, and the results of our runs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phyb.algorithms.registry import title_of
from phyb.algorithms.settings import Settings
from phyb.envs.liquidation import ENV_ID
from phyb.envs.oracle import rule_return, solve
from phyb.envs.published import Score, published_score
from phyb.envs.rules import RULES, as_policy
from phyb.envs.tasks import find_task, normalized_score
from phyb.errors import DataError
from phyb.evaluation.returns import cvar, episode_returns
from phyb.evaluation.statistics import Estimate, interquartile_mean, interval, probability_of_improvement
from phyb.fields import Changes
from phyb.reproduce.plan import Planned
from phyb.storage.files import read_json

TASK = "liquidation"
ROWS = ("phyb", "pmdb", "1r2r", "oraac", "rambo", "cql", "iql", "td3bc", "mopo", "combo", "bc")
"""Algorithms in the order of the paper's table, which does not have the last."""
OURS = "phyb"
SEEDS = 4
"""As many as the paper has."""
_REFERENCE_EPISODES = 20_000


def quick_changes(usual: Settings) -> Changes:
    """What --quick changes: a fifth of the log, short training everywhere, small evaluations.

    Of the updates a tenth are made, a twentieth for model-based algorithms, and at most 2,000.
    """
    steps = min(max(500, usual.training.steps // (10 if usual.pool is None else 20)), 2000)
    return {
        "pool": {"model_steps": 600, "model_check_every": 100},
        "agent": {"clone_steps": 300, "vae_steps": steps // 4},
        "training": {
            "steps": steps,
            "evaluate_every": steps,
            "checkpoint_every": steps,
            "evaluation_episodes": 500,
            "final_episodes": 5000,
            "transitions": 20_000,
            **({} if usual.pool is None else {"accept_poor_pool": True}),
        },
    }


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of one run."""

    algorithm: str
    seed: int
    command: str
    score: float
    """The normalised score of the last policy."""
    mean_return: float
    std_error: float
    """Of the mean return over evaluation episodes."""
    cvar_10: float
    behaviour_return: float
    """Mean return of the log's episodes."""
    episodes: int
    steps: int
    seconds: Mapping[str, float]
    """Wall time of every stage."""
    versions: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Row:
    """An algorithm: its runs in one line. Statistics are None where there are too few runs for them."""

    algorithm: str
    title: str
    paper: Score | None
    scores: tuple[float, ...]
    mean: float | None
    std: float | None
    """Over seeds, n - 1."""
    iqm: Estimate | None
    """Interquartile mean; with one seed its interval is not a number."""
    cvar_10: float | None
    phyb_better: Estimate | None
    """Probability that a run of PhyB scores higher than a run of this algorithm."""
    minutes: float | None
    """Mean wall time of a run, a pool that it trained included."""
    pool_minutes: float | None
    """Share of the pool in it: the first run of a seed trains the pool, those after it find it in the cache."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """A policy to compare with, whose score is known without training."""

    title: str
    score: float
    cvar_10: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The whole table."""

    rows: tuple[Row, ...]
    references: tuple[Reference, ...]
    outcomes: tuple[Outcome, ...]
    seeds: int
    """Planned of each algorithm."""
    jobs: int
    """Runs at a time, among which the cores were shared."""
    rough: bool
    """Whether it was made by --quick."""

    @property
    def missing(self) -> list[str]:
        """Algorithms with fewer runs than planned."""
        return [row.title for row in self.rows if len(row.scores) < self.seeds]


def outcome_of(planned: Planned) -> Outcome:
    """Read the result of a finished run.

    Raises:
        DataError: it lacks something, for instance because it was evaluated without a simulator.
    """
    path = planned.folder / "result.json"
    found = read_json(path)
    try:
        return Outcome(
            algorithm=planned.algorithm,
            seed=planned.seed,
            command=" ".join(["phyb", *planned.recipe]),
            score=float(found["normalized_score"]),
            mean_return=float(found["mean_return"]),
            std_error=float(found["std_error"]),
            cvar_10=float(found["cvar_10"]),
            behaviour_return=float(found["behaviour_return"]),
            episodes=int(found["episodes"]),
            steps=int(found["steps"]),
            seconds={str(name): float(seconds) for name, seconds in found["wall_seconds"].items()},
            versions={str(name): str(version) for name, version in found["versions"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: is not the result of a run on {TASK} ({error!r}).") from error


def compare(
    outcomes: Sequence[Outcome], algorithms: Sequence[str], *, seeds: int, jobs: int, rough: bool
) -> Comparison:
    """The table of these outcomes, a row per algorithm, whether or not it has runs."""
    scores = {name: tuple(run.score for run in outcomes if run.algorithm == name) for name in algorithms}
    rows = (_row(name, [run for run in outcomes if run.algorithm == name], scores.get(OURS, ())) for name in algorithms)
    return Comparison(tuple(rows), references(), tuple(outcomes), seeds, jobs, rough)


def _row(name: str, runs: Sequence[Outcome], ours: tuple[float, ...]) -> Row:
    scores = tuple(run.score for run in runs)
    title = title_of(name)
    about = {"algorithm": name, "title": title, "scores": scores, "paper": published_score(TASK, title)}
    if not runs:
        empty = ("mean", "std", "iqm", "cvar_10", "phyb_better", "minutes", "pool_minutes")
        return Row(**about, **dict.fromkeys(empty))
    return Row(
        **about,
        mean=float(np.mean(scores)),
        std=float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
        iqm=_estimate(interquartile_mean, scores),
        cvar_10=float(np.mean([run.cvar_10 for run in runs])),
        phyb_better=_estimate(probability_of_improvement, ours, scores) if ours and name != OURS else None,
        minutes=float(np.mean([sum(run.seconds.values()) for run in runs])) / 60.0,
        pool_minutes=float(np.mean([run.seconds.get("pool", 0.0) for run in runs])) / 60.0,
    )


def _estimate(statistic: Callable[..., Any], *scores: Sequence[float]) -> Estimate:
    tasks = [{TASK: np.asarray(each)} for each in scores]
    value, unknown = float(statistic(*tasks)), float("nan")
    if min(map(len, scores)) < 2:
        return Estimate(value, unknown, unknown)
    low, high = interval(statistic, *tasks)
    return Estimate(value, float(low), float(high))


@functools.cache
def references() -> tuple[Reference, ...]:
    """The optimum and the policy that made the log: exact scores, and their CVaR by simulation."""
    thresholds = solve().thresholds
    task = find_task(ENV_ID)
    assert task is not None

    def optimal(observations: np.ndarray) -> np.ndarray:
        now = np.clip(np.rint(observations[:, 0]).astype(int), 0, len(thresholds) - 1)
        return np.where(observations[:, 2] >= thresholds[now], 1.0, -1.0).astype(np.float32)[:, None]

    def reference(title: str, value: float, act: Callable[[np.ndarray], np.ndarray]) -> Reference:
        returns = episode_returns(act, ENV_ID, _REFERENCE_EPISODES, seed=0)
        score = normalized_score(task, value)
        assert score is not None
        return Reference(title, score, cvar(returns))

    behaviour = RULES["behaviour"]
    return (
        reference("exact optimum", solve().optimal_return, optimal),
        reference("behaviour (the log)", rule_return(behaviour), as_policy(behaviour, seed=0)),
    )
