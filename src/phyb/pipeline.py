"""One run from a log to a judged policy: collect or load, train the pool, optimise, evaluate, report.

The command line and the Python function `phyb.train` are two doors to the same `train` below.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from phyb.algorithms.phyb import PhyB, PhyBState
from phyb.algorithms.problem import Problem, make_problem
from phyb.data.collect import collect_liquidation
from phyb.data.files import load_log
from phyb.data.log import Log
from phyb.data.validate import validate
from phyb.dynamics.cache import cache_folder, cached_pool
from phyb.dynamics.fit import Keeping, split_rows
from phyb.dynamics.pool import Pool
from phyb.envs import rewards
from phyb.envs.endings import Ending, compare, resolve
from phyb.envs.functions import RowFunction
from phyb.envs.liquidation import ENV_ID
from phyb.envs.oracle import rule_return
from phyb.envs.rules import RULES
from phyb.envs.tasks import Task, find_task, normalized_score
from phyb.errors import DataError, MemoryShortError, UsageError
from phyb.evaluation.belief_return import belief_returns
from phyb.evaluation.film import check_film_path, film_episode
from phyb.evaluation.returns import (
    ReturnSummary,
    episode_returns,
    mean_interval,
    runs_fast,
    start_observations,
    summarize,
)
from phyb.interrupt import StopRequests, stop_requests
from phyb.policy.policy import Policy, load_policy
from phyb.storage.files import json_bytes, read_json, write_json
from phyb.storage.lock import NAME as LOCK
from phyb.storage.lock import locked
from phyb.storage.store import FORMAT_VERSION
from phyb.training.folder import POLICY_FILES, POOL_FILES, RunFolder, versions
from phyb.training.loop import optimize
from phyb.training.progress import Stages
from phyb.training.settings import Preset, Settings, TrainingConfig, check_settings, difference, preset

# Steps imagined for one estimate of the return under the belief, and episodes of a simulator that is not vectorised:
# on the way, and at the end.
_BELIEF_STEPS, _FINAL_BELIEF_STEPS = 20_000, 100_000
_SLOW_EPISODES, _FINAL_SLOW_EPISODES = 20, 100


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run: its folder, its policy and what the policy is worth."""

    folder: Path
    policy: Policy
    result: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class _Job:
    """What `train` was asked for, resolved."""

    name: str
    log: Log
    task: Task | None
    ending: Ending
    reward: RowFunction | None
    env_id: str | None
    settings: Settings
    seed: int
    folder: RunFolder
    stages: Stages
    stop: StopRequests

    @property
    def discount(self) -> float:
        chosen = self.settings.training.discount
        return chosen if chosen is not None else self.task.discount if self.task is not None else 0.99

    @property
    def horizon(self) -> int:
        return self.task.horizon if self.task is not None else int(self.log.episode_lengths().max())

    def belief_episodes(self, final: bool) -> int:
        """Imagined episodes of an evaluation: fewer where episodes are long."""
        return max(50, (_FINAL_BELIEF_STEPS if final else _BELIEF_STEPS) // self.horizon)

    def episodes(self, final: bool) -> int:
        """Episodes of an evaluation: as set, but few where the simulator is slow."""
        training = self.settings.training
        asked = training.final_episodes if final else training.evaluation_episodes
        if self.env_id is None or runs_fast(self.env_id):
            return asked
        return min(asked, _FINAL_SLOW_EPISODES if final else _SLOW_EPISODES)


def train(
    data: str | os.PathLike[str] | Log,
    *,
    env: str | None = None,
    preset_name: Preset = "cpu",
    settings: Settings | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    cache: str | os.PathLike[str] | None = None,
    console: Console | None = None,
) -> Run:
    """Train PhyB on a log and judge the policy.

    Args:
        data: the name of a built-in task ("liquidation"), the path of a log file, or a `Log`.
        env: Gymnasium id of a simulator to judge the policy in; without it the policy is judged under the belief only.
        preset_name: which defaults to take: "cpu", "paper" or "released".
        settings: every setting; None takes the preset's.
        seed: seeds the log of a built-in task, the pool, the policy and the evaluation.
        out: run folder; None names it `runs/TASK-phyb-seedS`.
        resume: go on with the run in that folder, or start it if there is none; a finished run is shown again.
        cache: folder of trained pools; None takes $PHYB_CACHE or the user's cache folder.
        console: where progress is shown; None shows it on the terminal.

    Raises:
        UsageError: the folder exists and `resume` is off, or it holds a run with other settings.
        DataError: the log cannot be used.
        DivergenceError: training produced numbers that are not finite.
        BusyError: another process works on the folder.
        StorageError: something cannot be written; what was saved before stays.
        InterruptedRunError: Ctrl-C or SIGTERM; everything so far is saved.
    """
    settings = settings or preset(preset_name)
    check_settings(settings)
    stages = Stages(console)
    name = _name_of(data)
    folder = RunFolder(out if out is not None else Path("runs") / f"{name}-{PhyB.name}-seed{seed}")
    if not resume and _in_use(folder):
        raise UsageError(
            f"{folder.path}: already exists. Add --resume to go on with it or to see its result, "
            "or choose another folder with --out."
        )
    with locked(folder.path) as lock, stop_requests(stages.tell) as stop, _memory_errors():
        folder.guard = lock.check
        folder.open()
        stages.seconds |= _seconds_before(folder)
        with stages.stage("collect", "log   ", 1) as advance:
            log, env_id = _open(data, env, settings, seed)
            advance(1, f"{len(log):,} transitions, {int(log.episode_ends.sum()):,} episodes")
        reward = rewards.resolve(settings.training.reward)
        if reward is not None:
            log = _with_rewards(log, reward, settings.training.reward, stages)
        for finding in validate(log, name):
            if finding.severity == "warning":
                stages.console.print(f"[yellow]warning[/] {finding.message} {finding.advice}", highlight=False)
        task = find_task(env_id or log.env_id or "")
        ending = _ending(log, settings.training.termination, task, stages)
        job = _Job(name, log, task, ending, reward, env_id, settings, seed, folder, stages, stop)
        _write_or_compare_config(job, preset_name)
        if folder.finished:
            stages.tell(f"{folder.path}: this run is finished; here is its result.")
            if not folder.report.is_file():
                _write_report(job)
            return Run(folder.path, load_policy(folder.path), read_json(folder.result))
        return _carry_out(job, cache_folder(cache))


def _carry_out(job: _Job, cache: Path) -> Run:
    """All stages of a run whose log is loaded; whatever the folder already vouches for is not done again."""
    folder, settings = job.folder, job.settings
    job.stop.check()
    pool, curve = _train_pool(job, cache)
    job.stop.check()
    problem = make_problem(
        job.log, pool, discount=job.discount, horizon=job.horizon, termination=job.ending.how, reward=job.reward
    )
    algorithm = PhyB(settings.agent, settings.training.steps)
    state = _optimize(job, algorithm, problem, curve)
    policy = algorithm.policy(state, problem)
    folder.guard()
    policy.save(folder.policy)
    folder.add(*POLICY_FILES)
    folder.save_json(folder.result.name, _judge(job, policy, state, problem))
    _write_report(job)
    return Run(folder.path, policy, read_json(folder.result))


def _write_report(job: _Job) -> None:
    from phyb.report.page import write_report

    with job.stages.stage("report", "report", 1):
        write_report(job.folder.path)


def _in_use(folder: RunFolder) -> bool:
    """Whether a folder holds anything but what a run leaves that was refused before it began: lock and manifest."""
    if not folder.path.is_dir():
        return folder.path.exists()
    return any(item.name not in (LOCK, folder.manifest.name) for item in folder.path.iterdir())


def _seconds_before(folder: RunFolder) -> dict[str, float]:
    """Seconds per stage that earlier parts of this run took; they say nothing that could not be lost."""
    try:
        found = read_json(folder.timing)
        return {str(name): float(seconds) for name, seconds in found.items()}
    except (DataError, AttributeError, TypeError, ValueError):
        return {}


@contextlib.contextmanager
def _memory_errors() -> Iterator[None]:
    """Say in plain words that memory ran out, which numpy and XLA tell in different ways."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryShortError(
            f"Memory ran short ({str(error).splitlines()[0] if str(error) else 'no more could be had'}). Lower "
            "--members-at-once while the pool is trained, or --real-batch-size, --rollouts and --policy-hidden "
            "afterwards. What was saved stays: the same settings go on with --resume on a larger machine."
        ) from error


def _name_of(data: str | os.PathLike[str] | Log) -> str:
    if isinstance(data, Log):
        return (data.env_id or "log").replace("/", "-").lower()
    name = str(data).removeprefix("minari:")
    return Path(name).stem if Path(name).suffix else name.replace("/", "-")


def _open(data: str | os.PathLike[str] | Log, env: str | None, settings: Settings, seed: int) -> tuple[Log, str | None]:
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
    return load_log(data), env


def _ending(log: Log, word: str, task: Task | None, stages: Stages) -> Ending:
    """How imagined episodes end, after a rule has been tried on the log; says loudly where the two differ."""
    ending = resolve(word, task)
    differ = compare(ending, log.observations, log.actions, log.next_observations, log.terminated)
    if differ:
        stages.console.print(
            f"[bold yellow]warning[/] the termination rule {ending.name} disagrees with the log on "
            f"{differ.rule_only + differ.log_only:,} of {len(log):,} rows: it ends {differ.rule_only:,} rows that went "
            f"on, and lets {differ.log_only:,} of {int(log.terminated.sum()):,} terminated rows go on. Imagined "
            "episodes will end by the rule. If the log is right, choose another rule, or --termination learned.",
            highlight=False,
        )
    return ending


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


def _write_or_compare_config(job: _Job, preset_name: str) -> None:
    content = {
        "format": FORMAT_VERSION,
        "task": job.name,
        "algorithm": PhyB.name,
        "preset": preset_name,
        "seed": job.seed,
        "env_id": job.env_id,
        "data": {
            "fingerprint": job.log.fingerprint(),
            "rows": len(job.log),
            "episodes": int(job.log.episode_ends.sum()),
            "provenance": dict(job.log.provenance),
        },
        "resolved": {
            "discount": job.discount,
            "horizon": job.horizon,
            "termination": job.ending.name,
            "reward": job.settings.training.reward,
        },
        "settings": job.settings.to_json(),
        "versions": versions(),
    }
    if not job.folder.config.is_file():
        job.folder.save_json(job.folder.config.name, content)
        return
    if not job.folder.vouches(job.folder.config.name):
        _mend_config(job.folder, content)
    found = job.folder.read_config()
    same = ("task", "algorithm", "seed", "env_id", "settings")
    theirs = {key: found.get(key) for key in same}
    # Settings that did not exist when the run was started have their defaults.
    theirs["settings"] = Settings.from_json(found.get("settings", {})).to_json()
    lines = difference({key: content[key] for key in same}, theirs)
    if found.get("data", {}).get("fingerprint") != content["data"]["fingerprint"]:
        lines.append("data: the log differs from the one the run was started with")
    if lines:
        raise UsageError(
            f"{job.folder.path}: holds a run with other settings:\n  "
            + "\n  ".join(lines)
            + "\nChoose another folder with --out, or give the run's own settings."
        )
    changed = difference(content["versions"], found.get("versions") or {})
    if changed:
        job.stages.tell(
            "This run was started with other versions, so its last digits may differ from an unbroken run:\n  "
            + "\n  ".join(changed)
        )


def _mend_config(folder: RunFolder, content: dict[str, Any]) -> None:
    """Restore a config.json that is not what was written, if the settings given now are the run's own."""
    entry = folder.entries.get(folder.config.name)
    if entry is not None and hashlib.sha256(json_bytes(content)).hexdigest() != entry.sha256:
        raise DataError(
            f"{folder.config}: is damaged, and the settings given now are not those the run was started with, so that "
            f"it cannot be restored. See what can still be used with: phyb doctor {folder.path}"
        )
    folder.save_json(folder.config.name, content)


def _train_pool(job: _Job, cache: Path) -> tuple[Pool, list[tuple[int, float]]]:
    """The pool and its learning curve, judged on hold-out episodes."""
    config, learn = job.settings.pool, job.ending.how == "learned"
    keeping = Keeping(job.folder, POOL_FILES, job.settings.training.pool_checkpoint_seconds, job.stop)
    with job.stages.stage("pool", "pool  ", config.pool_size * config.model_steps) as advance:

        def progress(done: int, total: int, loss: float) -> None:
            advance(
                done * config.pool_size * config.model_steps / total,
                f"hold-out loss {loss:.3f}" if loss == loss else "",
            )

        found = cached_pool(
            job.log, config, job.seed, learn_termination=learn, folder=cache, progress=progress, keeping=keeping
        )
        pool = found.pool
        advance(config.pool_size * config.model_steps, f"hold-out loss {float(pool.holdout_nll.mean()):.3f}")
    if found.not_kept is not None:
        job.stages.tell(f"The pool is kept in the run folder only, the cache failed: {found.not_kept}")
    else:
        where = "kept in" if found.trained else "found in"
        job.stages.console.print(f"  {pool.size} models, {where} the pool cache {cache}", style="dim", highlight=False)
    if not job.folder.vouches(job.folder.diagnostics.name):
        from phyb.dynamics.diagnose import diagnose

        _, holdout = split_rows(job.log, config.holdout_fraction, job.seed)
        found_out = diagnose(pool, job.log, holdout, termination=job.ending.how)
        job.folder.save_json(job.folder.diagnostics.name, found_out)
    return pool, found.curve


def _optimize(job: _Job, algorithm: PhyB, problem: Problem, curve: list[tuple[int, float]]) -> PhyBState:
    training = job.settings.training

    def evaluate(state: PhyBState, step: int) -> dict[str, Any]:
        policy = algorithm.policy(state, problem)
        found: dict[str, Any] = {}
        starts = np.asarray(problem.starts[: job.belief_episodes(False)])
        if job.env_id is not None:
            act = _stoppable(policy, job.stop)
            real = summarize(episode_returns(act, job.env_id, job.episodes(False), job.seed + 1))
            found |= {"true_return": real.mean, "true_std_error": real.std_error}
            if job.task is not None:
                found["normalized_score"] = normalized_score(job.task, real.mean)
        imagined = _belief_summary(job, policy, state, problem, starts, step)
        value = state.slow_value(problem.standardizer(problem.starts)).mean() * problem.reward_scale
        return found | {
            "belief_return": imagined.mean,
            "belief_std_error": imagined.std_error,
            "start_value": float(value),
        }

    with job.stages.stage("policy", "policy", training.steps) as advance:

        def progress(step: int, known: dict[str, Any]) -> None:
            job.folder.guard()
            write_json(job.folder.timing, job.stages.seconds_so_far())
            score = known.get("normalized_score")
            real = f" · score {score:.1f}" if score is not None else ""
            advance(step, f"return under the belief {known['belief_return']:.1f}{real}")

        preface = [("pool", step, {"holdout_nll": loss}) for step, loss in curve]
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


def _stoppable(policy: Policy, stop: StopRequests) -> Callable[[np.ndarray], np.ndarray]:
    """The policy's actions, until somebody asks to stop: simulated episodes can take minutes."""

    def act(observations: np.ndarray) -> np.ndarray:
        stop.check()
        return policy.act(observations)

    return act


def _belief_summary(
    job: _Job, policy: Policy, state: PhyBState, problem: Problem, starts: np.ndarray, step: int
) -> ReturnSummary:
    key = jax.random.fold_in(jax.random.key(job.seed), 1_000_000_007 + step)
    belief = job.settings.agent.belief
    return summarize(belief_returns(key, policy, state.slow_value, problem, belief, starts))


def _judge(job: _Job, policy: Policy, state: PhyBState, problem: Problem) -> dict[str, Any]:
    """Everything result.json says; null where there is no simulator or no reference."""
    seed = job.seed + 10_007
    finished = job.log.episode_returns()[: int((job.log.terminated | job.log.truncated).sum())]
    result: dict[str, Any] = {
        "task": job.name,
        "algorithm": PhyB.name,
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
        imagined = _belief_summary(job, policy, state, problem, starts, job.settings.training.steps + 1)
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
        render: where to write a film of one episode, a name ending in .gif; None films nothing.
    """
    config = RunFolder(run_folder).read_config()
    env_id = env or config.get("env_id")
    if env_id is None:
        raise UsageError(f"{run_folder}: this run has no simulator. Name one with --env, such as --env Hopper-v5.")
    if render is not None:
        check_film_path(render)
    policy, task = load_policy(run_folder), find_task(env_id)
    if episodes is None:
        episodes = TrainingConfig.final_episodes if runs_fast(env_id) else _FINAL_SLOW_EPISODES
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
