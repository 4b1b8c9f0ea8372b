"""Which policy to deploy when there is no simulator: finished runs ranked by estimates that need only the log.

Every candidate is evaluated by the same protocol: one log, one pool, the same start states, common random numbers.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from rich.console import Console

from phyb.algorithms.problem import Problem
from phyb.belief.backup import BeliefConfig
from phyb.data.log import Log
from phyb.errors import UsageError
from phyb.evaluation.advice import advice
from phyb.evaluation.belief_return import belief_returns
from phyb.evaluation.fitted_q import FittedQConfig, fit_q, steps_of_fit
from phyb.evaluation.in_training import belief_episodes
from phyb.fields import check, refuse
from phyb.policy.policy import Policy
from phyb.training.progress import Stages
from phyb.training.records import number
from phyb.training.run import Run, open_run
from phyb.world.calibration import rank_correlation

ESTIMATES = ("belief_return", "model_average", "fitted_q")
"""In the order in which they count: the first one orders the table."""
Values = Float[np.ndarray, "fits starts"]


@dataclasses.dataclass(frozen=True)
class _Candidate:
    run: Run
    step: int
    name: str
    policy: Policy
    real_return: float | None
    real_std_error: float | None


def select_policies(
    runs: Sequence[str | os.PathLike[str]],
    *,
    checkpoints: bool = False,
    pool_of: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | Log | None = None,
    episodes: int | None = None,
    seed: int = 0,
    fit: FittedQConfig | None = None,
    cache: str | os.PathLike[str] | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Rank the policies of finished runs without a simulator; docs/select.md says what each estimate is worth.

    Args:
        runs: run folders, all trained on the same log.
        checkpoints: rank every kept checkpoint of the runs too.
        pool_of: the run whose pool, belief settings, discount and termination score all; None takes the first that
            has a pool.
        data: the log, or its file; None finds it as that run did.
        episodes: imagined episodes per candidate; None takes as many as the last evaluation of a run.
        seed: seeds the fits and the imagined episodes, for all candidates alike.
        fit: settings of fitted Q evaluation; None takes its defaults.
        cache: folder of trained pools; None takes $PHYB_CACHE or the user's cache folder.
        console: where progress is shown; None shows it on the terminal.

    Returns:
        The protocol, every candidate with its estimates, ranks and real return (best under the belief first), rank
        correlations with the real returns, and `advice`, sentences that say how far to trust it; all of it JSON.

    Raises:
        UsageError: the runs are not finished, were trained on different logs, or the log cannot be found.
        DataError: the log found is not theirs, or a file is damaged.
    """
    fit, stages = fit or FittedQConfig(), Stages(console)
    refuse(check(fit))
    if episodes is not None and episodes < 1:
        raise UsageError(f"episodes: found {episodes}, must be 1 or more.")
    options = {"cache": cache, "console": console}
    finished = _open_runs(runs, options)
    reference = _first_with_pool(finished if pool_of is None else [open_run(pool_of, **options)])
    _refuse_other_logs(finished, reference)
    reference.data = data
    with stages.stage("log", "log     ", 1) as advance:
        log = reference.log
        advance(1, f"{len(log):,} transitions")
    for run in finished:
        run.data = log
    problem = reference.problem
    fit = dataclasses.replace(fit, fit_steps=steps_of_fit(fit, problem))
    episodes = episodes or belief_episodes(problem.horizon)
    candidates = [candidate for run in finished for candidate in _candidates(run, problem, checkpoints)]
    belief = getattr(reference.settings.agent, "belief", BeliefConfig())
    values, drifts = _estimate(candidates, problem, belief, fit, episodes, seed, stages)
    found = {
        "format": 1,
        "log": {"fingerprint": log.fingerprint(), "rows": len(log), "episodes": len(problem.starts)},
        "protocol": {
            "run": str(reference.folder),
            "pool": reference.pool_key,
            "trained_on_pool": [run.name for run in finished if run.pool_key == reference.pool_key],
            "discount": problem.discount,
            "horizon": problem.horizon,
            "termination": reference.termination.name,
            "belief": dataclasses.asdict(belief),
            "episodes": episodes,
            "seed": seed,
            "fit": dataclasses.asdict(fit),
        },
        **_ranking(candidates, values, drifts),
    }
    return found | {"advice": advice(found)}


def _open_runs(paths: Sequence[str | os.PathLike[str]], options: Mapping[str, Any]) -> list[Run]:
    """The runs, each once, under names that tell them apart."""
    unique = list({Path(path).resolve(): Path(path) for path in paths}.values())
    if not unique:
        raise UsageError("There is no run to rank. Name at least one run folder.")
    names = [path.resolve().name for path in unique]
    return [
        open_run(path, name=name if names.count(name) == 1 else str(path), **options)
        for path, name in zip(unique, names, strict=True)
    ]


def _first_with_pool(runs: Sequence[Run]) -> Run:
    found = next((run for run in runs if run.settings.pool is not None), None)
    if found is None:
        raise UsageError(
            f"{runs[0].folder}: learned no models, which the estimates need. Name a run with a pool on the same log "
            "with --pool-of RUN, such as one of phyb train DATA --algorithm phyb."
        )
    return found


def _refuse_other_logs(runs: Sequence[Run], reference: Run) -> None:
    others = [run for run in runs if run.fingerprint != reference.fingerprint]
    if others:
        rows = [f"{run.folder}: log {run.fingerprint[:12]}" for run in (reference, *others)]
        raise UsageError(
            "These runs were trained on different logs, on which estimates cannot be compared:\n  "
            + "\n  ".join(rows)
            + "\nRank runs of one log at a time. Every seed of a built-in task collects its own: to compare seeds, "
            "write one log with `phyb data make` and train all of them on that file."
        )


def _candidates(run: Run, problem: Problem, checkpoints: bool) -> Iterator[_Candidate]:
    """The run's policy, then its checkpoints, oldest first; the last one is the policy itself and left out."""
    last = run.result.get("stopped_at") or run.settings.training.steps
    real = number(run.result.get("mean_return")), number(run.result.get("std_error"))
    yield _Candidate(run, last, run.name, run.policy, *real)
    if not checkpoints:
        return
    evaluations = {int(line["step"]): line for line in run.records.stage("evaluation")}
    for step, state in run.states(problem):
        if step != last:
            line = evaluations.get(step, {})
            real = number(line.get("true_return")), number(line.get("true_std_error"))
            yield _Candidate(run, step, f"{run.name} @ {step:,}", run.algorithm.policy(state, problem), *real)


def average_of_models(config: BeliefConfig) -> BeliefConfig:
    """The belief without its pessimism: every drawn member is kept and weighs the same, whatever its backup."""
    return dataclasses.replace(config, weight_rule="uniform", subset_size=config.ensemble_size, uniform_mix=0.0)


def _no_value(observations: Float[Array, "*rows obs"]) -> Float[Array, "*rows"]:
    """Equal weights need no ranking, hence no value."""
    return jnp.zeros(observations.shape[:-1])


def _estimate(
    candidates: Sequence[_Candidate],
    problem: Problem,
    belief: BeliefConfig,
    fit: FittedQConfig,
    episodes: int,
    seed: int,
    stages: Stages,
) -> tuple[dict[str, list[Values]], list[float]]:
    """Per estimate one array per candidate, all from the same starts and the same keys; and the fits' drifts."""
    fit_key, belief_key = jax.random.split(jax.random.key(seed))
    starts = np.asarray(problem.starts[:episodes])
    again = np.resize(starts, (episodes, starts.shape[1]))  # a log with few episodes starts several from each
    steps, fits = steps_of_fit(fit, problem), []
    with stages.stage("fit", "fitted Q", steps * len(candidates)) as advance:
        for place, candidate in enumerate(candidates):
            progress = lambda done, place=place, name=candidate.name: advance(place * steps + done, name)  # noqa: E731
            fits.append(fit_q(fit_key, candidate.policy, problem, starts, fit, progress))
    values: dict[str, list[Values]] = {name: [] for name in ESTIMATES}
    with stages.stage("belief", "belief  ", len(candidates)) as advance:
        for place, (candidate, fitted) in enumerate(zip(candidates, fits, strict=True)):
            advance(place, candidate.name)
            cautious = belief_returns(belief_key, candidate.policy, fitted.q, problem, belief, again)
            plain = belief_returns(belief_key, candidate.policy, _no_value, problem, average_of_models(belief), again)
            for name, found in zip(ESTIMATES, (cautious.total[None], plain.total[None], fitted.values), strict=True):
                values[name].append(found.astype(np.float64))
    return values, [fitted.drift for fitted in fits]


def std_error(values: Values) -> float:
    """Standard error of the mean over starts and fits: `sqrt(var_starts / starts + var_fits / fits)`.

    The variances are those of the means over the other axis; an axis of length 1 adds nothing, two leave it unknown.
    Of the difference of two candidates, start by start, it leaves out the noise they share.
    """
    means = [values.mean(axis=axis) for axis in (0, 1)]
    parts = [float(np.var(mean, ddof=1)) / len(mean) for mean in means if len(mean) > 1]
    return float(np.sqrt(sum(parts))) if parts else float("nan")


def ranks(values: Sequence[float | None]) -> list[int | None]:
    """1 for the highest; equal values share a rank, the next one skips; None has none."""
    known = [value for value in values if value is not None]
    return [None if value is None else 1 + sum(other > value for other in known) for value in values]


def _ranking(
    candidates: Sequence[_Candidate], values: dict[str, list[Values]], drifts: Sequence[float]
) -> dict[str, Any]:
    """Candidates with estimates and ranks, best under the belief first, and rank correlations with real returns."""
    means = {name: [float(array.mean()) for array in arrays] for name, arrays in values.items()}
    real = [candidate.real_return for candidate in candidates]
    placed = {name: ranks(numbers) for name, numbers in means.items()}
    real_ranks, rows = ranks(real), []
    for at, candidate in enumerate(candidates):
        estimates: dict[str, dict[str, Any]] = {}
        for name, arrays in values.items():
            best = int(np.argmax(means[name]))
            estimates[name] = {
                "mean": means[name][at],
                "std_error": number(std_error(arrays[at])),
                "rank": placed[name][at],
                "behind_best": means[name][best] - means[name][at],
                "behind_best_std_error": number(std_error(arrays[best] - arrays[at])),
            }
        estimates["fitted_q"]["drift"] = drifts[at]
        rows.append(
            {
                "name": candidate.name,
                "run": str(candidate.run.folder),
                "step": candidate.step,
                "env_id": candidate.run.config.get("env_id"),
                "estimates": estimates,
                "real_return": candidate.real_return,
                "real_std_error": candidate.real_std_error,
                "real_rank": real_ranks[at],
            }
        )
    known = [at for at, value in enumerate(real) if value is not None]
    correlations = {
        name: rank_correlation(np.array([numbers[at] for at in known]), np.array([real[at] for at in known]))
        if len(known) > 1
        else None
        for name, numbers in means.items()
    }
    rows.sort(key=lambda row: row["estimates"][ESTIMATES[0]]["rank"])
    return {"candidates": rows, "real_returns_known": len(known), "rank_correlation": correlations}
