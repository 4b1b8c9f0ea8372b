"""What a table is: which algorithms on which task, what came out, and the statistics over seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phyb.algorithms.registry import title_of
from phyb.algorithms.settings import Settings
from phyb.envs.published import Score, published_score
from phyb.errors import DataError
from phyb.evaluation.statistics import Estimate, interquartile_mean, interval, probability_of_improvement
from phyb.fields import Changes
from phyb.reproduce.plan import Planned
from phyb.storage.files import read_json


def quick_changes(usual: Settings) -> Changes:
    """What --quick changes: a fifth of the log, short training everywhere, small evaluations.

    Of the updates a tenth are made, a twentieth for model-based algorithms, and at most 2,000.
    """
    steps = min(max(500, usual.training.steps // (10 if usual.pool is None else 20)), 2000)
    return {
        "model_steps": 600,
        "model_check_every": 100,
        "clone_steps": 300,
        "vae_steps": steps // 4,
        "steps": steps,
        "evaluate_every": steps,
        "checkpoint_every": steps,
        "evaluation_episodes": 500,
        "final_episodes": 5000,
        "transitions": 20_000,
        **({} if usual.pool is None else {"accept_poor_pool": True}),
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
    mean: float | None = None
    std: float | None = None
    """Over seeds, n - 1."""
    iqm: Estimate | None = None
    """Interquartile mean; with one seed it has no interval."""
    cvar_10: float | None = None
    phyb_better: Estimate | None = None
    """Probability that a run of `Table.ours` scores higher than a run of this algorithm."""
    minutes: float | None = None
    """Mean wall time of a run, a pool that it trained included."""
    pool_minutes: float | None = None
    """Share of the pool in it: the first run of a seed trains the pool, those after it find it in the cache."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """A policy to compare with, whose score is known without training."""

    title: str
    score: float
    cvar_10: float


@dataclasses.dataclass(frozen=True)
class Table:
    """A comparison of algorithms on one task: a row per algorithm, a run per seed."""

    name: str
    """Of the files that are written, and of the folder below runs/."""
    title: str
    """Over the table."""
    task: str
    """What `phyb train` is given."""
    rows: tuple[str, ...]
    """Algorithms, in the order of the table."""
    seeds: int = 4
    """Runs per algorithm, if not said otherwise."""
    ours: str = "phyb"
    """The algorithm that the others are compared with."""
    note: str = ""
    """What a reader has to know about this table alone."""
    quick: Callable[[Settings], Changes] = quick_changes
    """What --quick changes in the settings of a run."""
    references: Callable[[], tuple[Reference, ...]] = tuple
    """Policies to compare with, whose scores need no training."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The whole table, filled."""

    table: Table
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
            **{name: float(found[name]) for name in ("mean_return", "std_error", "cvar_10", "behaviour_return")},
            **{name: int(found[name]) for name in ("episodes", "steps")},
            seconds={str(name): float(seconds) for name, seconds in found["wall_seconds"].items()},
            versions={str(name): str(version) for name, version in found["versions"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: is not the result of a run on {planned.task} ({error!r}).") from error


def compare(
    table: Table, outcomes: Sequence[Outcome], algorithms: Sequence[str], *, seeds: int, jobs: int, rough: bool
) -> Comparison:
    """The table of these outcomes, a row per algorithm, whether or not it has runs."""
    runs = {name: [run for run in outcomes if run.algorithm == name] for name in algorithms}
    ours = [run.score for run in runs.get(table.ours, [])]
    rows = tuple(_row(table, name, found, ours) for name, found in runs.items())
    return Comparison(table, rows, table.references(), tuple(outcomes), seeds, jobs, rough)


def _row(table: Table, name: str, runs: Sequence[Outcome], ours: Sequence[float]) -> Row:
    scores = tuple(run.score for run in runs)
    title = title_of(name)
    about = {"algorithm": name, "title": title, "scores": scores, "paper": published_score(table.task, title)}
    if not runs:
        return Row(**about)
    return Row(
        **about,
        mean=float(np.mean(scores)),
        std=float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
        iqm=_estimate(interquartile_mean, scores),
        cvar_10=float(np.mean([run.cvar_10 for run in runs])),
        phyb_better=_estimate(probability_of_improvement, ours, scores) if ours and name != table.ours else None,
        minutes=float(np.mean([sum(run.seconds.values()) for run in runs])) / 60.0,
        pool_minutes=float(np.mean([run.seconds.get("pool", 0.0) for run in runs])) / 60.0,
    )


def _estimate(statistic: Callable[..., Any], *scores: Sequence[float]) -> Estimate:
    tasks = [{"task": np.asarray(each)} for each in scores]
    ends = interval(statistic, *tasks) if min(map(len, scores)) > 1 else (None, None)
    return Estimate(float(statistic(*tasks)), *ends)
