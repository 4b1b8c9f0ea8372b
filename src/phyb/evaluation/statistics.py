"""Statistics over a few seeds: aggregates over tasks, bootstrap intervals, comparisons, performance profiles.

Scores are normalised so that 1 is the reference (a score of 100 is 1.0). They come as an array (seeds, tasks) or as a
mapping from the name of a task to its seeds, which may be of different numbers. The arrays of a mapping may have
leading axes: statistics work on the last axis and keep the others, which is how the bootstrap is vectorised.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from phyb.errors import UsageError

Scores = Mapping[str, ArrayLike] | ArrayLike
Runs = dict[str, Float[np.ndarray, "*batch seeds"]]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number with the ends of its interval, where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


def runs_by_task(scores: Scores) -> Runs:
    """The scores of each task, the seeds along the last axis; columns of an array are named by their number.

    Raises:
        UsageError: there is no score, a score is not finite, or the array does not have two axes.
    """
    if not isinstance(scores, Mapping):
        table = np.asarray(scores, np.float64)
        if table.ndim != 2:
            raise UsageError(f"scores have shape {table.shape}; expected (seeds, tasks), for one task (seeds, 1)")
        scores = {str(task): column for task, column in enumerate(table.T)}
    runs = {task: np.atleast_1d(np.asarray(found, np.float64)) for task, found in scores.items()}
    if not runs:
        raise UsageError("there are no scores: name at least one task")
    for task, found in runs.items():
        if found.shape[-1] == 0:
            raise UsageError(f"task {task} has no scores")
        if not np.all(np.isfinite(found)):
            raise UsageError(f"task {task}: {np.count_nonzero(~np.isfinite(found))} of its scores are not finite")
    if len({found.shape[:-1] for found in runs.values()}) > 1:
        raise UsageError(f"leading axes differ between tasks: { ({task: x.shape for task, x in runs.items()}) }")
    return runs


def mean_and_std(scores: Scores) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation (n - 1) over the seeds of each task; the latter is not a number for one seed."""
    return {
        task: (float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else float("nan"))
        for task, found in _single_numbers(scores).items()
    }


def mean(scores: Scores) -> Float[np.ndarray, "*batch"]:
    """Mean over tasks of each task's mean: every task counts the same, whatever its number of seeds."""
    return np.mean(_task_means(scores), axis=0)


def median(scores: Scores) -> Float[np.ndarray, "*batch"]:
    """Median over tasks of each task's mean; of a single task that is its mean."""
    return np.median(_task_means(scores), axis=0)


def interquartile_mean(scores: Scores) -> Float[np.ndarray, "*batch"]:
    """Mean of the middle half of all runs, pooled over tasks.

    Of n runs the floor(n / 4) lowest and as many highest are left out, as in SciPy's `trim_mean(runs, 0.25)` and in the
    literature that reports this number. No run counts in part: up to 3 runs it is the mean, of 4 runs the mean of the
    middle two.

    Raises:
        UsageError: tasks have different numbers of seeds, so that pooling would favour those with more.
    """
    runs = runs_by_task(scores)
    counts = {task: found.shape[-1] for task, found in runs.items()}
    if len(set(counts.values())) > 1:
        raise UsageError(
            f"the interquartile mean pools all runs and needs as many seeds of every task, found {counts}; "
            "run the missing seeds or leave out the surplus ones"
        )
    pooled = np.sort(np.concatenate(list(runs.values()), axis=-1), axis=-1)
    cut = pooled.shape[-1] // 4
    return np.mean(pooled[..., cut : pooled.shape[-1] - cut], axis=-1)


def optimality_gap(scores: Scores, gamma: float = 1.0) -> Float[np.ndarray, "*batch"]:
    """What is missing to the score gamma on average: `gamma - E[min(x, gamma)]`, tasks weighed alike.

    Runs above gamma do not make up for runs below it. Lower is better; 0 means that every run reached gamma.
    """
    return gamma - mean({task: np.minimum(found, gamma) for task, found in runs_by_task(scores).items()})


def probability_of_improvement(ours: Scores, theirs: Scores) -> Float[np.ndarray, "*batch"]:
    """Probability that a run of ours scores higher than one of theirs on a random task.

    The mean over tasks of `P(X > Y) + P(X = Y) / 2` over all pairs of a run X of ours and a run Y of theirs, which is
    the Mann-Whitney statistic divided by the number of pairs. It is about how often, not by how much.

    Raises:
        UsageError: the tasks are not the same.
    """
    x, y = runs_by_task(ours), runs_by_task(theirs)
    if x.keys() != y.keys():
        raise UsageError(f"a comparison needs the same tasks, found {sorted(x)} and {sorted(y)}")

    def wins(task: str) -> np.ndarray:
        rivals = np.moveaxis(y[task], -1, 0)[..., None]
        pairs = sum((x[task] > rival) + 0.5 * (x[task] == rival) for rival in rivals)
        return np.mean(pairs, axis=-1) / len(rivals)

    return np.mean([wins(task) for task in x], axis=0)


def run_profile(scores: Scores, thresholds: ArrayLike) -> Float[np.ndarray, "*batch thresholds"]:
    """Share of runs above each threshold, `mean over tasks of P(x > tau)`: one minus the distribution of scores."""
    above = [found[..., None] > np.asarray(thresholds) for found in runs_by_task(scores).values()]
    return np.mean([np.mean(task, axis=-2) for task in above], axis=0)


def task_profile(scores: Scores, thresholds: ArrayLike) -> Float[np.ndarray, "*batch thresholds"]:
    """Share of tasks whose mean score is above each threshold."""
    return np.mean(_task_means(scores)[..., None] > np.asarray(thresholds), axis=0)


def interval(
    statistic: Callable[..., Any], *scores: Scores, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[Any, Any]:
    """Ends of a stratified bootstrap interval: percentiles of the statistic over seeds resampled within each task.

    With few seeds it is too narrow, see docs/statistics.md.

    Args:
        statistic: a function of this module, or any that keeps leading axes.
        scores: what the statistic takes; each is resampled on its own.
        level: nominal coverage.
        resamples: number of bootstrap resamples; more make the ends smoother.
        seed: the same seed gives the same interval.

    Raises:
        UsageError: a task has a single seed.
    """
    if not 0.0 < level < 1.0 or resamples < 1:
        raise UsageError(f"level must lie between 0 and 1 and resamples be at least 1, found {level} and {resamples}")
    generator = np.random.default_rng(seed)

    def resampled(scores: Scores) -> Runs:
        runs = _single_numbers(scores)
        single = [task for task, found in runs.items() if len(found) < 2]
        if single:
            raise UsageError(f"an interval needs at least 2 seeds of every task; only 1 of: {', '.join(single)}")
        return {task: found[generator.integers(0, len(found), (resamples, len(found)))] for task, found in runs.items()}

    values = statistic(*map(resampled, scores))
    low, high = np.quantile(values, [0.5 - level / 2, 0.5 + level / 2], axis=0)
    return low, high


def aggregate(scores: Scores, level: float = 0.95, resamples: int = 10_000, seed: int = 0) -> dict[str, Estimate]:
    """Mean, median, interquartile mean and optimality gap with their intervals."""
    found = {}
    for statistic in (mean, median, interquartile_mean, optimality_gap):
        low, high = interval(statistic, scores, level=level, resamples=resamples, seed=seed)
        found[statistic.__name__] = Estimate(float(statistic(scores)), float(low), float(high))
    return found


def _single_numbers(scores: Scores) -> Runs:
    runs = runs_by_task(scores)
    for task, found in runs.items():
        if found.ndim > 1:
            raise UsageError(f"task {task} has scores of shape {found.shape}; expected one number per seed")
    return runs


def _task_means(scores: Scores) -> Float[np.ndarray, "tasks *batch"]:
    return np.stack([np.mean(found, axis=-1) for found in runs_by_task(scores).values()])
