"""Opening a finished run again: its settings, its log, its pool and the states it kept."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from phyb.algorithms.base import Algorithm
from phyb.algorithms.problem import Problem, make_problem
from phyb.algorithms.registry import load
from phyb.data.log import Log
from phyb.dynamics.cache import cache_folder, cached_pool, is_cached, pool_key
from phyb.dynamics.pool import Pool
from phyb.envs import rewards, termination
from phyb.envs.tasks import find_task
from phyb.envs.termination import Termination
from phyb.errors import DataError, UsageError
from phyb.pipeline import open_log
from phyb.report.source import mapping, text
from phyb.training.folder import POLICY_FILES, RunFolder
from phyb.training.progress import Stages
from phyb.training.settings import Settings

_BUILT_IN = "liquidation"


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A finished run and what it was made with."""

    folder: RunFolder
    name: str
    config: dict[str, Any]
    settings: Settings

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.config["seed"]

    @property
    def fingerprint(self) -> str:
        """What tells its log from others."""
        return self.config["data"]["fingerprint"]


def finished_run(path: Path, name: str) -> FinishedRun:
    """The finished run in a folder, under a name; one that is not finished is refused."""
    folder = RunFolder(path)
    config = folder.read_config()
    if not folder.vouches(folder.result.name, *POLICY_FILES):
        raise UsageError(
            f"{path}: is not a finished run. Go on with it with the command it was started with and --resume, or see "
            f"what is wrong with: phyb doctor {path}"
        )
    settings = Settings.from_json(config.get("settings", {}), text(config.get("algorithm")))
    run = FinishedRun(folder, name, config, settings)
    try:
        kinds = type(run.seed), type(run.fingerprint), type(config["resolved"]["horizon"])
        if kinds != (int, str, int) or not 0.0 < float(config["resolved"]["discount"]) <= 1.0:
            raise ValueError("a value of another kind")
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder.config}: does not say what the run was made with ({error}).") from error
    return run


def find_log(run: FinishedRun, data: str | os.PathLike[str] | Log | None) -> Log:
    """The log the run was trained on, with its own reward; anything else is refused."""
    path = text(mapping(run.config["data"].get("provenance")).get("path"))
    built_in = run.config.get("task") == _BUILT_IN and not path
    source = data if data is not None else path or (_BUILT_IN if built_in else None)
    if source is None:
        raise UsageError(f"{run.folder.path}: does not say where its log is. Give it with --data FILE.")
    try:
        log, _ = open_log(source, None, run.settings, run.seed, "memory", cache_folder(), lambda reason: None)
    except (DataError, UsageError) as error:
        if data is not None:
            raise
        raise DataError(f"{error} It is the log of {run.folder.path}; say where it is now with --data FILE.") from error
    word = run.settings.training.reward
    function = rewards.resolve(word)
    if function is not None:
        paid = rewards.on_logged_rows(function, word, log.observations, log.actions, log.next_observations)
        log = dataclasses.replace(log, rewards=paid)
    if log.fingerprint() != run.fingerprint:
        raise DataError(
            f"{'the log given' if isinstance(source, Log) else source}: is not the log that {run.folder.path} was "
            f"trained on: its fingerprint is {log.fingerprint()[:12]}, expected {run.fingerprint[:12]}. "
            "Give the right one with --data FILE."
        )
    return log


def termination_of(run: FinishedRun, log: Log) -> Termination:
    """When episodes end, as the run took it."""
    task = find_task(text(run.config.get("env_id")) or log.env_id or "")
    return termination.resolve(run.settings.training.termination, task)


def own_pool_key(run: FinishedRun, log: Log) -> str | None:
    """The name of the pool that the run was trained against, if it learned models."""
    learn = termination_of(run, log).rule == "learned"
    return None if run.settings.pool is None else pool_key(log, run.settings.pool, run.seed, learn)


def problem_of(run: FinishedRun, log: Log, cache: Path, stages: Stages) -> Problem:
    """The problem the run was given: its log with its pool, found in the cache or trained again."""
    termination = termination_of(run, log)
    return make_problem(
        log,
        _find_pool(run, log, termination, cache, stages),
        discount=run.config["resolved"]["discount"],
        horizon=run.config["resolved"]["horizon"],
        termination=termination.rule,
        reward=rewards.resolve(run.settings.training.reward),
    )


def _find_pool(run: FinishedRun, log: Log, termination: Termination, cache: Path, stages: Stages) -> Pool:
    config, learn = run.settings.pool, termination.rule == "learned"
    assert config is not None, "the judge has a pool"
    if not is_cached(log, config, run.seed, learn_termination=learn, folder=cache):
        stages.tell(
            f"The pool of {run.folder.path} is not in the cache {cache}: its {config.pool_size} models are trained "
            "again, for up to "
            f"{config.model_steps:,} steps each. Ctrl-C stops; --cache and --pool-of name another place or run."
        )
    with stages.stage("pool", "pool    ", config.pool_size) as advance:
        return cached_pool(
            log,
            config,
            run.seed,
            learn_termination=learn,
            folder=cache,
            progress=lambda done, total, loss: advance(config.pool_size * done / total, ""),
        ).pool


def kept_states(run: FinishedRun, problem: Problem) -> Iterator[tuple[int, Algorithm[Any, Any], Any]]:
    """Step, algorithm and state of every kept checkpoint, oldest first."""
    algorithm = load(run.config["algorithm"])(run.settings.agent, run.settings.training.steps)
    blank = eqx.filter_eval_shape(algorithm.init, jax.random.key(0), problem)
    for path in run.folder.checkpoint_files():
        name = path.relative_to(run.folder.path).as_posix()
        about = run.folder.about(name)
        if about is not None and about.get("step") is not None:
            yield about["step"], algorithm, run.folder.load_tree(name, blank, "[0]")
