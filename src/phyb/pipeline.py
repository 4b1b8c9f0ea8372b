"""One run from a log to a judged policy: collect or load, train the pool, optimise, evaluate, report.

The command line and the Python function `phyb.train` are two doors to the same `train` below.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from phyb.algorithms.problem import Problem, cache_predictions, make_problem, prediction_bytes
from phyb.algorithms.registry import find
from phyb.data.collect import collect_liquidation
from phyb.data.log import Log
from phyb.data.validate import validate
from phyb.dynamics.cache import cache_folder, cached_pool
from phyb.dynamics.fit import HoldoutCheck, Keeping, PoolConfig
from phyb.dynamics.pool import Pool
from phyb.dynamics.rows import split_rows
from phyb.dynamics.verdict import how_training_ended, refuse_poor_pool
from phyb.envs import rewards
from phyb.envs.functions import RowFunction
from phyb.envs.liquidation import ENV_ID
from phyb.envs.tasks import Task, find_task
from phyb.envs.termination import Termination, compare, resolve
from phyb.errors import DataError, UsageError, memory_errors
from phyb.evaluation.judging import judge, judge_on_the_way
from phyb.interrupt import stop_requests
from phyb.policy.policy import Policy, load_policy
from phyb.storage.files import read_json, write_json
from phyb.storage.lock import is_in_use, locked
from phyb.training.config import write_or_compare_config
from phyb.training.folder import POLICY_FILES, POOL_FILES, RunFolder
from phyb.training.job import Job
from phyb.training.loop import optimize
from phyb.training.progress import Stages
from phyb.training.rows import RowsIn, load_rows, move_rows, removed_afterwards, tell_memory
from phyb.training.settings import Preset, Settings, check_settings, preset

_MEMORY_ADVICE = (
    "Lower --members-at-once while the pool is trained, or --policy-hidden and the batch size afterwards. "
    " What was saved stays: the same settings go on with --resume on a larger machine."
)


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run: its folder, its policy and what the policy is worth."""

    folder: Path
    policy: Policy
    result: dict[str, Any]


def train(
    data: str | os.PathLike[str] | Log,
    *,
    env: str | None = None,
    algorithm: str = "phyb",
    preset_name: Preset = "cpu",
    settings: Settings | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    cache: str | os.PathLike[str] | None = None,
    rows_in: RowsIn = "auto",
    console: Console | None = None,
) -> Run:
    """Train an algorithm on a log and judge the policy.

    Args:
        data: the name of a built-in task ("liquidation"), the path of a log file, or a `Log`.
        env: Gymnasium id of a simulator to judge the policy in; without it the policy is judged under the belief only.
        algorithm: what to train: a name in `phyb algorithms`, or package.module:Class.
        preset_name: which defaults to take: "cpu", "paper" or, for PhyB, "released".
        settings: every setting, those of the algorithm among them; None takes the preset's.
        seed: seeds the log of a built-in task, the pool, the policy and the evaluation.
        out: run folder; None names it `runs/TASK-ALGORITHM-seedS`.
        resume: go on with the run in that folder, or start it if there is none; a finished run is shown again.
        cache: folder of trained pools; None takes $PHYB_CACHE or the user's cache folder.
        rows_in: "memory"; "disk" for a log that does not fit into it, in files below the cache and the run folder; or
            "auto", which takes the disk only if the memory free is less than the run needs. The result is the same.
        console: where progress is shown; None shows it on the terminal.

    Raises:
        UsageError: the folder exists and `resume` is off, or it holds a run with other settings.
        DataError: the log cannot be used.
        PoorPoolError: the models learned nothing, and `accept_poor_pool` is off.
        DivergenceError: training produced numbers that are not finite.
        BusyError: another process works on the folder.
        StorageError: something cannot be written; what was saved before stays.
        MemoryShortError: the run needs far more memory than is free.
        InterruptedRunError: Ctrl-C or SIGTERM; everything so far is saved.
    """
    learner = find(algorithm)
    settings = settings or preset(preset_name, learner, _words_of(data, env))
    if not isinstance(settings.agent, learner.config_class) or (settings.pool is None) is learner.needs_pool:
        raise UsageError(f"These settings are not of {learner.name}; take them from preset('cpu', {algorithm!r}).")
    check_settings(settings)
    stages = Stages(console)
    name = _name_of(data)
    folder = RunFolder(out if out is not None else Path("runs") / f"{name}-{learner.name}-seed{seed}")
    if not resume and is_in_use(folder.path, folder.manifest.name):
        raise UsageError(
            f"{folder.path}: already exists. Add --resume to go on with it or to see its result, "
            "or choose another folder with --out."
        )
    with (
        locked(folder.path) as lock,
        stop_requests(stages.tell) as stop,
        memory_errors(_MEMORY_ADVICE),
        removed_afterwards(folder.rows),
    ):
        folder.guard = lock.check
        folder.open()
        stages.seconds |= _seconds_before(folder)
        with stages.stage("collect", "log   ", 1) as advance:

            def waiting(reason: str) -> None:
                stop.check()
                advance(0, reason)

            log, env_id = open_log(data, env, settings, seed, rows_in, cache_folder(cache), waiting)
            log = move_rows(log, rows_in, settings, folder.rows)
            advance(1, f"{len(log):,} transitions, {int(log.episode_ends.sum()):,} episodes")
        reward = rewards.resolve(settings.training.reward)
        if reward is not None:
            log = _with_rewards(log, reward, settings.training.reward, stages)
        for finding in validate(log, name):
            if finding.severity == "warning":
                stages.console.print(f"[yellow]warning[/] {finding.message} {finding.advice}", highlight=False)
        task = find_task(env_id or log.env_id or "")
        termination = _termination(log, settings.training.termination, task, stages)
        agent = learner(settings.agent, settings.training.steps)
        job = Job(name, agent, log, task, termination, reward, env_id, settings, seed, folder, stages, stop)
        if not folder.finished:
            tell_memory(log, settings, stages)
        write_or_compare_config(job, preset_name)
        if folder.finished:
            stages.tell(f"{folder.path}: this run is finished; here is its result.")
            if not folder.report.is_file():
                _write_report(job)
            return Run(folder.path, load_policy(folder.path), read_json(folder.result))
        return _carry_out(job, cache_folder(cache))


def _carry_out(job: Job, cache: Path) -> Run:
    """All stages of a run whose log is loaded; whatever the folder already vouches for is not done again."""
    folder, algorithm = job.folder, job.algorithm
    job.stop.check()
    pool, curve = _train_pool(job, cache) if algorithm.needs_pool else (None, [])
    if pool is None and job.env_id is None:
        job.stages.tell(
            f"Nothing will judge this policy: {algorithm.name} learns no models, and --env names no simulator."
        )
    job.stop.check()
    problem = make_problem(
        job.log,
        pool,
        discount=job.discount,
        horizon=job.horizon,
        termination=job.termination.rule,
        reward=job.reward,
        rows_in=job.rows_in,
    )
    if algorithm.asks_about_log and prediction_bytes(problem) <= job.settings.training.prediction_memory * 2**30:
        problem = cache_predictions(problem)
    state = _optimize(job, problem, curve)
    policy = algorithm.policy(state, problem)
    folder.guard()
    policy.save(folder.policy)
    folder.add(*POLICY_FILES)
    folder.save_json(folder.result.name, judge(job, policy, state, problem))
    _write_report(job)
    return Run(folder.path, policy, read_json(folder.result))


def _write_report(job: Job) -> None:
    from phyb.report.page import write_report

    with job.stages.stage("report", "report", 1):
        write_report(job.folder.path)


def _seconds_before(folder: RunFolder) -> dict[str, float]:
    """Seconds per stage that earlier parts of this run took; they say nothing that could not be lost."""
    try:
        found = read_json(folder.timing)
        return {str(name): float(seconds) for name, seconds in found.items()}
    except (DataError, AttributeError, TypeError, ValueError):
        return {}


def _name_of(data: str | os.PathLike[str] | Log) -> str:
    if isinstance(data, Log):
        return (data.env_id or "log").replace("/", "-").lower()
    name = str(data).removeprefix("minari:")
    return Path(name).stem if Path(name).suffix else name.replace("/", "-")


def _words_of(data: str | os.PathLike[str] | Log, env: str | None) -> str:
    """All that is said about where the log comes from."""
    return f"{data.env_id if isinstance(data, Log) else data} {env or ''}"


def open_log(
    data: str | os.PathLike[str] | Log,
    env: str | None,
    settings: Settings,
    seed: int,
    rows_in: RowsIn,
    cache: Path,
    waiting: Callable[[str], None],
) -> tuple[Log, str | None]:
    """The log, and the id of the simulator to judge in."""
    if isinstance(data, Log):
        return data, env
    if str(data) == "liquidation":
        return collect_liquidation(settings.training.transitions, seed), env or ENV_ID
    if not Path(data).suffix and not Path(data).exists() and not str(data).startswith("minari:"):
        raise UsageError(
            f"{data}: there is no such task or file. Built-in tasks: liquidation. "
            "Or give a log file (.hdf5 in D4RL layout, or .npz), or minari:ID."
        )
    log = load_rows(data, rows_in, settings, cache, waiting)
    return dataclasses.replace(log, provenance={**log.provenance, "path": str(data)}), env


def _termination(log: Log, word: str, task: Task | None, stages: Stages) -> Termination:
    """How imagined episodes end, after a rule has been tried on the log; says loudly where the two differ."""
    termination = resolve(word, task)
    differ = compare(termination, log.observations, log.actions, log.next_observations, log.terminated)
    if differ:
        stages.console.print(
            f"[bold yellow]warning[/] the termination rule {termination.name} disagrees with the log on "
            f"{differ.rule_only + differ.log_only:,} of {len(log):,} rows: it ends {differ.rule_only:,} rows that went "
            f"on, and lets {differ.log_only:,} of {int(log.terminated.sum()):,} terminated rows go on. Imagined "
            "episodes will end by the rule. If the log is right, choose another rule, or --termination learned.",
            highlight=False,
        )
    return termination


def _with_rewards(log: Log, function: RowFunction, word: str, stages: Stages) -> Log:
    """The log with the user's rewards, so that log, values and imagination speak of one reward."""
    found = rewards.on_logged_rows(function, word, log.observations, log.actions, log.next_observations)
    off = np.abs(found - log.rewards)
    differ = int(np.sum(off > 1e-3 * (float(np.ptp(log.rewards)) or 1.0)))
    if differ:
        stages.console.print(
            f"[bold yellow]warning[/] the reward {word} differs from the log's on {differ:,} of {len(log):,} rows, by "
            f"up to {off.max():.4g}. Training follows the function; simulators pay their own reward all the same.",
            highlight=False,
        )
    return dataclasses.replace(log, rewards=found)


def _train_pool(job: Job, cache: Path) -> tuple[Pool, list[HoldoutCheck]]:
    """The pool and its learning curve, after it has been judged on hold-out episodes and found fit for use.

    Raises:
        PoorPoolError: it is no better than a guess that nothing changes, and that was not accepted beforehand.
    """
    config, learn = job.settings.pool, job.termination.rule == "learned"
    assert config is not None, "this algorithm needs a pool"
    keeping = Keeping(job.folder, POOL_FILES, job.settings.training.pool_checkpoint_seconds, job.stop)
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
        job.stages.tell(f"The pool is kept in the run folder only, the cache failed: {found.not_kept}")
    else:
        where = "kept in" if found.trained else "found in"
        job.stages.console.print(f"  {pool.size} models, {where} the pool cache {cache}", style="dim", highlight=False)
    _judge_pool(job, config, pool, found.curve)
    return pool, found.curve


def _judge_pool(job: Job, config: PoolConfig, pool: Pool, curve: list[HoldoutCheck]) -> None:
    """Write diagnostics.json unless it is there, show it, and refuse a pool that knows nothing."""
    from phyb.dynamics.diagnose import FORMAT_VERSION, diagnose
    from phyb.report.tables import pool_table

    if job.folder.vouches(job.folder.diagnostics.name):
        judged = read_json(job.folder.diagnostics)
    else:
        _, holdout = split_rows(job.log, config.holdout_fraction, job.seed)
        training = how_training_ended(curve, config, int(np.sum(np.asarray(pool.outputs.scale) > 0)))
        judged = diagnose(pool, job.log, holdout, termination=job.termination.rule, training=training)
        job.folder.save_json(job.folder.diagnostics.name, judged)
    if judged.get("format") == FORMAT_VERSION:  # runs of earlier versions go on as they began
        job.stages.console.print(pool_table(judged))
        if not job.settings.training.accept_poor_pool:
            refuse_poor_pool(judged)


def _optimize(job: Job, problem: Problem, curve: list[HoldoutCheck]) -> Any:
    training, algorithm = job.settings.training, job.algorithm

    def evaluate(state: Any, step: int) -> dict[str, Any]:
        return judge_on_the_way(job, algorithm.policy(state, problem), state, problem, step)

    with job.stages.stage("policy", "policy", training.steps) as advance:

        def progress(step: int, known: dict[str, Any]) -> None:
            job.folder.guard()
            write_json(job.folder.timing, job.stages.seconds_so_far())
            shown = {"return under the belief": "belief_return", "score": "normalized_score"}
            found = {words: known[key] for words, key in shown.items() if known.get(key) is not None}
            advance(step, " · ".join(f"{words} {number:.1f}" for words, number in found.items()))

        preface = [("pool", look.steps, {"holdout_nll": look.loss}) for look in curve]
        return optimize(
            algorithm,
            problem,
            training,
            job.seed,
            folder=job.folder,
            evaluate=evaluate,
            preface=preface,
            progress=progress,
            stop=job.stop,
            tell=job.stages.tell,
        )
