"""One run from a log to an evaluated policy, composed of stages that can each be called alone.

    open_log, with_rewards, choose_termination   (training.rows)       the log, and how imagined episodes end
    cached_pool, diagnose                        (dynamics)            models, and how good they are
    make_problem                                 (algorithms.problem)  what an algorithm is given
    optimize                                     (training.loop)       the policy
    final_evaluation                             (evaluation)          what it earns
    write_report                                 (report)              one page about all of it

`Algorithm.fit`, `phyb.train` and the command line all call `fit` below.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from phyb.algorithms.base import Algorithm
from phyb.algorithms.problem import Problem, cache_predictions, make_problem, prediction_bytes
from phyb.algorithms.registry import find
from phyb.algorithms.settings import Settings, dataset_of
from phyb.algorithms.settings import preset as find_preset
from phyb.data.files import LogFiles
from phyb.data.log import Log
from phyb.data.validate import validate
from phyb.dynamics.cache import cache_folder, cached_pool
from phyb.dynamics.fit import HoldoutCheck, Keeping, PoolConfig
from phyb.dynamics.pool import Pool
from phyb.dynamics.registry import MODELS
from phyb.dynamics.rows import split_rows
from phyb.envs import rewards
from phyb.envs.liquidation import ENV_ID
from phyb.envs.tasks import choose_task
from phyb.errors import DataError, UsageError, memory_errors
from phyb.evaluation.in_training import evaluate_in_training, final_evaluation
from phyb.fields import flat, refuse
from phyb.interrupt import StopRequests, stop_requests
from phyb.policy.registry import ACTORS
from phyb.report.page import write_report
from phyb.report.tables import pool_table
from phyb.storage.files import read_json, write_json
from phyb.storage.lock import is_in_use, locked
from phyb.training.folder import POLICY_FILES, RunFolder
from phyb.training.job import Job, write_or_compare_config
from phyb.training.loggers import LoggerName, check_logger, listening
from phyb.training.loop import Callback, Outcome, optimize
from phyb.training.progress import Stages
from phyb.training.rows import (
    BUILT_IN,
    RowsIn,
    choose_termination,
    log_origin,
    move_rows,
    open_log,
    show_memory,
    with_rewards,
)
from phyb.training.run import Run
from phyb.world.diagnose import FORMAT_VERSION as DIAGNOSTICS_FORMAT
from phyb.world.diagnose import diagnose
from phyb.world.verdict import how_training_ended, refuse_poor_pool

_MEMORY_ADVICE = (
    "Lower --members-at-once while the pool is trained, or --policy-hidden and the batch size afterwards. "
    " What was saved stays: the same settings go on with --resume on a larger machine."
)


def fit(
    algorithm: Algorithm[Any, Any],
    data: LogFiles | Log,
    *,
    env: str | None = None,
    task: str | None = None,
    dataset: str = "",
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    cache: str | os.PathLike[str] | None = None,
    rows_in: RowsIn = "auto",
    logger: LoggerName | Callback | None = None,
    console: Console | None = None,
) -> Run:
    """Train an algorithm on a log and evaluate the policy; `Algorithm.fit` says what the arguments mean."""
    check_logger(logger)
    recorded_env, recorded = log_origin(data)
    choice = choose_task(recorded_env, env, task)
    algorithm = algorithm.for_task(choice.task, dataset or dataset_of(choice.task, recorded))
    settings = algorithm.settings
    _find_classes(settings)
    usual = find_preset(algorithm.preset, type(algorithm), choice.task).training.transitions
    if str(data) != BUILT_IN and settings.training.transitions != usual:
        refuse([f"transitions: {settings.training.transitions}, has no effect here: the log given is used whole"])
    stages = Stages(console)
    name = _name_of(data)
    folder = RunFolder(out if out is not None else Path("runs") / f"{name}-{algorithm.name}-seed{seed}")
    if not resume and is_in_use(folder.path, folder.manifest.name):
        raise UsageError(
            f"{folder.path}: already exists. Add --resume to go on with it or to see its result, "
            "or choose another folder with --out."
        )
    with (
        locked(folder.path) as check,
        stop_requests(stages.message) as stop,
        memory_errors(_MEMORY_ADVICE),
        contextlib.ExitStack() as at_the_end,
    ):
        at_the_end.callback(shutil.rmtree, folder.rows, ignore_errors=True)  # made again when they are needed
        folder.guard = check
        folder.open()
        stages.seconds |= _seconds_before(folder)
        log = _open(data, algorithm, seed, rows_in, cache_folder(cache), folder, stages, stop)
        log = with_rewards(log, settings.training.reward, stages.warn)
        for finding in validate(log, name):
            if finding.severity == "warning":
                stages.warn(f"{finding.message} {finding.advice}")
        env_id = env or (ENV_ID if str(data) == BUILT_IN else None)
        stages.console.print(f"  {choice}", style="dim", highlight=False, soft_wrap=True)
        termination = choose_termination(log, settings.training.termination, choice.task, stages.warn)
        job = Job(name, algorithm, log, choice, termination, env_id, seed, folder, stages, stop)
        if not folder.finished:
            show_memory(log, algorithm, stages)
        write_or_compare_config(job)
        if not folder.finished:
            about = {"algorithm": algorithm.name, "seed": seed, "log": name} | flat(settings)
            with listening(logger, folder.path, about, stages.message) as heard:
                return _carry_out(job, cache_folder(cache), [*callbacks, *heard])
        stages.message(f"{folder.path}: this run is finished; here is its result.")
        if not folder.report.is_file():
            _write_report(job)
        return Run(folder.path, algorithm=algorithm, data=log, cache=cache, console=console)


def train(
    data: LogFiles | Log, algorithm: str = "phyb", *, settings: Any = None, preset: str = "cpu", **options: Any
) -> Run:
    """Train an algorithm that is found by its name, see `phyb algorithms`, or as package.module:Class.

    `settings` and `preset` are those of the algorithm's constructor, `options` the arguments of `Algorithm.fit`.
    """
    return find(algorithm)(settings, preset=preset).fit(data, **options)


def _find_classes(settings: Settings) -> None:
    """Import the user's own classes that the settings name. Settings from files never get here."""
    if settings.pool is not None:
        MODELS.find(settings.pool.model)
    if hasattr(settings.agent, "actor"):
        ACTORS.find(settings.agent.actor)


def _open(
    data: LogFiles | Log,
    algorithm: Algorithm[Any, Any],
    seed: int,
    rows_in: RowsIn,
    cache: Path,
    folder: RunFolder,
    stages: Stages,
    stop: StopRequests,
) -> Log:
    with stages.stage("collect", "log   ", 1) as advance:

        def waiting(reason: str) -> None:
            stop.check()
            advance(0, reason)

        log = move_rows(open_log(data, algorithm, seed, rows_in, cache, waiting), rows_in, algorithm, folder.rows)
        advance(1, f"{len(log):,} transitions, {int(log.episode_ends.sum()):,} episodes")
    return log


def _carry_out(job: Job, cache: Path, callbacks: Sequence[Callback]) -> Run:
    """All stages of a run whose log is loaded; whatever the folder already vouches for is not done again."""
    folder, algorithm = job.folder, job.algorithm
    job.stop.check()
    pool, curve = _train_pool(job, cache) if algorithm.needs_pool else (None, [])
    if pool is None and job.env_id is None:
        job.stages.message(
            f"Nothing will evaluate this policy: {algorithm.name} learns no models, and --env names no simulator."
        )
    job.stop.check()
    problem = make_problem(
        job.log,
        pool,
        discount=job.discount,
        horizon=job.horizon,
        termination=job.termination.rule,
        reward=rewards.resolve(job.settings.training.reward),
        rows_in=job.rows_in,
    )
    outcome = _optimize(job, problem, curve, callbacks)
    policy = algorithm.policy(outcome.state, problem)
    folder.guard()
    policy.save(folder.policy)
    folder.add(*POLICY_FILES)
    folder.save_json(folder.result.name, final_evaluation(job, policy, problem, outcome.stopped_at))
    _write_report(job)
    # Rows on disk are removed at the end of the run: what is asked of such a run later is made again.
    known = {} if job.log.on_disk else {"data": job.log, "problem": problem, "state": outcome.state}
    return Run(folder.path, algorithm=algorithm, cache=cache, console=job.stages.console, **known)


def _write_report(job: Job) -> None:
    with job.stages.stage("report", "report", 1):
        write_report(job.folder.path)


def _seconds_before(folder: RunFolder) -> dict[str, float]:
    """Seconds per stage that earlier parts of this run took; they say nothing that could not be lost."""
    try:
        found = read_json(folder.timing)
        return {str(name): float(seconds) for name, seconds in found.items()}
    except (DataError, AttributeError, TypeError, ValueError):
        return {}


def _name_of(data: LogFiles | Log) -> str:
    if isinstance(data, Log):
        return (data.env_id or "log").replace("/", "-").lower()
    if isinstance(data, str | os.PathLike):
        if os.path.isdir(data):
            return Path(data).resolve().name
        name = str(data).removeprefix("minari:")
        return Path(name).stem if Path(name).suffix else name.replace("/", "-")
    first, *others = [_name_of(word) for word in data]
    return first if not others else f"{first}-and-{others[0] if len(others) == 1 else f'{len(others)}-more'}"


def _train_pool(job: Job, cache: Path) -> tuple[Pool, list[HoldoutCheck]]:
    """The pool and its learning curve, after it has been diagnosed on hold-out episodes and found fit for use."""
    config, learn = job.settings.pool, job.termination.rule == "learned"
    assert config is not None, "this algorithm needs a pool"
    keeping = Keeping(job.folder, job.settings.training.pool_checkpoint_seconds, job.stop)
    with job.stages.stage("pool", "pool  ", config.pool_size * config.model_steps) as advance:

        def progress(done: int, total: int, loss: float) -> None:
            advance(
                done * config.pool_size * config.model_steps / total,
                f"hold-out loss {loss:.3f}" if loss == loss else "",
            )

        found = cached_pool(
            job.log,
            config,
            job.seed,
            learn_termination=learn,
            folder=cache,
            progress=progress,
            keeping=keeping,
            rows_in=job.rows_in,
        )
        pool = found.pool
        advance(config.pool_size * config.model_steps, f"hold-out loss {float(pool.holdout_nll.mean()):.3f}")
    if found.not_kept is not None:
        job.stages.message(f"The pool is kept in the run folder only, the cache failed: {found.not_kept}")
    else:
        where = "kept in" if found.trained else "found in"
        job.stages.console.print(f"  {pool.size} models, {where} the pool cache {cache}", style="dim", highlight=False)
    _diagnose_pool(job, config, pool, found.curve)
    return pool, found.curve


def _diagnose_pool(job: Job, config: PoolConfig, pool: Pool, curve: list[HoldoutCheck]) -> None:
    """Write diagnostics.json unless it is there, show it, and refuse a pool that knows nothing."""
    if job.folder.vouches(job.folder.diagnostics.name):
        found = read_json(job.folder.diagnostics)
    else:
        _, holdout = split_rows(job.log, config.holdout_fraction, job.seed)
        training = how_training_ended(curve, config, int(np.sum(np.asarray(pool.outputs.scale) > 0)))
        found = diagnose(pool, job.log, holdout, termination=job.termination.rule, training=training)
        job.folder.save_json(job.folder.diagnostics.name, found)
    if found.get("format") == DIAGNOSTICS_FORMAT:  # runs of earlier versions go on as they began
        job.stages.console.print(pool_table(found))
        if not job.settings.training.accept_poor_pool:
            refuse_poor_pool(found)


def _optimize(job: Job, problem: Problem, curve: list[HoldoutCheck], callbacks: Sequence[Callback]) -> Outcome[Any]:
    training, algorithm, asked = job.settings.training, job.algorithm, problem
    if algorithm.asks_about_log and prediction_bytes(problem) <= training.prediction_memory * 2**30:
        asked = cache_predictions(problem)

    def evaluate(state: Any, step: int) -> dict[str, Any]:
        return evaluate_in_training(job, algorithm.policy(state, problem), problem, step)

    with job.stages.stage("policy", "policy", training.steps) as advance:

        def progress(step: int, known: dict[str, Any]) -> None:
            job.folder.guard()
            write_json(job.folder.timing, job.stages.seconds_so_far())
            shown = {"return under the belief": "belief_return", "score": "normalized_score"}
            found = {words: known[key] for words, key in shown.items() if known.get(key) is not None}
            advance(step, " · ".join(f"{words} {number:.1f}" for words, number in found.items()))

        preface = [("pool", check.steps, {"holdout_nll": check.loss}) for check in curve]
        return optimize(
            algorithm,
            asked,
            training,
            job.seed,
            folder=job.folder,
            evaluate=evaluate,
            preface=preface,
            progress=progress,
            stop=job.stop,
            callbacks=callbacks,
            on_message=job.stages.message,
        )
