"""A finished run: its policy and result at once; its log, pool, problem, state and metrics when they are asked for."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
from rich.console import Console
from rich.table import Table

from phyb.algorithms.base import Algorithm
from phyb.algorithms.problem import Problem, make_problem
from phyb.algorithms.registry import load
from phyb.algorithms.settings import Settings
from phyb.data.files import LogFiles
from phyb.data.log import Log
from phyb.dynamics import cache as pools
from phyb.dynamics.pool import Pool
from phyb.envs import rewards, termination
from phyb.envs.tasks import find_task
from phyb.envs.termination import Termination
from phyb.errors import DataError, UsageError
from phyb.policy.policy import Policy, load_policy
from phyb.storage.files import read_json
from phyb.storage.store import FORMAT_VERSION
from phyb.training.folder import POLICY_FILES, RunFolder
from phyb.training.notebook import Page, table_html, table_text
from phyb.training.progress import Stages
from phyb.training.records import Record, RunData, mapping, read_run, text
from phyb.training.result_table import result_table
from phyb.training.rows import BUILT_IN, open_log, with_rewards


class Run:
    """A finished run. `fit` returns one, and `open_run` finds it again in its folder.

    Attributes:
        folder: where everything the run wrote is.
        name: what it is called in tables.
        data: the log or its file, if it is no longer where the run found it.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        data: LogFiles | Log | None = None,
        cache: str | os.PathLike[str] | None = None,
        console: Console | None = None,
        algorithm: Algorithm[Any, Any] | None = None,
        problem: Problem | None = None,
        state: Any = None,
    ) -> None:
        self.files = RunFolder(folder)
        self.folder: Path = self.files.path
        self.name, self.data = name or self.folder.resolve().name, data
        self._cache, self._stages = pools.cache_folder(cache), Stages(console)
        for known, value in (("algorithm", algorithm), ("problem", problem), ("state", state)):
            if value is not None:
                self.__dict__[known] = value

    def __repr__(self) -> str:
        table = self._table()
        return f"Run({str(self.folder)!r})" + ("" if table is None else "\n" + table_text(table))

    def _repr_html_(self) -> str | None:
        table = self._table()
        return None if table is None else table_html(table)

    def _table(self) -> Table | None:
        """What the policy earns; None while there is no result that can be read."""
        try:
            return result_table(self.result)
        except (DataError, KeyError, TypeError, AttributeError):
            return None

    def report(self) -> Page:
        """The report, which a notebook shows as a page."""
        return Page(self.files.report)

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """What config.json says: settings, seed, log, versions."""
        config = self.files.read_config()
        try:
            kinds = type(config["seed"]), type(config["data"]["fingerprint"]), type(config["resolved"]["horizon"])
            if kinds != (int, str, int) or not 0.0 < float(config["resolved"]["discount"]) <= 1.0:
                raise ValueError("a value of another kind")
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{self.files.config}: does not say what the run was made with ({error}).") from error
        return config

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.config["seed"]

    @property
    def fingerprint(self) -> str:
        """What tells its log from others."""
        return self.config["data"]["fingerprint"]

    @functools.cached_property
    def result(self) -> dict[str, Any]:
        """What the policy earns: the content of result.json."""
        return mapping(read_json(self.files.result))

    @functools.cached_property
    def policy(self) -> Policy:
        """The policy to deploy."""
        return load_policy(self.folder)

    @functools.cached_property
    def records(self) -> RunData:
        """All that the folder says, for reports."""
        return read_run(self.folder)

    @property
    def metrics(self) -> list[Record]:
        """The lines of metrics.jsonl: "stage", "step" and the numbers; first the pool's, then those of the policy, then
        the evaluations.
        """
        return [line for lines in self.records.metrics.values() for line in lines]

    @functools.cached_property
    def settings(self) -> Settings:
        """Every setting of the run."""
        try:
            return Settings.from_json(self.config.get("settings", {}), text(self.config.get("algorithm")))
        except DataError as error:
            if self.config["format"] < FORMAT_VERSION:
                found = f"{self.folder}: was written by an earlier version, whose settings had other names ({error})"
                raise DataError(f"{found} It can be evaluated and reported on, no more.") from error
            raise

    @functools.cached_property
    def algorithm(self) -> Algorithm[Any, Any]:
        """The algorithm with the settings of the run."""
        return load(self.config["algorithm"])(self.settings)

    @functools.cached_property
    def log(self) -> Log:
        """The log the run was trained on, with its own reward; anything else is refused."""
        path = mapping(self.config["data"].get("provenance")).get("path")
        path = [str(file) for file in path] if isinstance(path, list) else text(path)
        built_in = self.config.get("task") == BUILT_IN and not path
        source = self.data if self.data is not None else path or (BUILT_IN if built_in else None)
        if source is None:
            raise UsageError(f"{self.folder}: does not say where its log is. Give it with --data FILE.")
        try:
            log = open_log(source, self.algorithm, self.seed, "memory", self._cache)
        except (DataError, UsageError) as error:
            if self.data is not None:
                raise
            raise DataError(f"{error} It is the log of {self.folder}; say where it is now with --data FILE.") from error
        log = with_rewards(log, self.settings.training.reward)
        if log.fingerprint() != self.fingerprint:
            raise DataError(
                f"{'the log given' if isinstance(source, Log) else source}: is not the log that {self.folder} was "
                f"trained on: its fingerprint is {log.fingerprint()[:12]}, expected {self.fingerprint[:12]}. "
                "Give the right one with --data FILE."
            )
        return log

    @property
    def termination(self) -> Termination:
        """How imagined episodes end, as the run took it."""
        if self.config["resolved"].get("termination") == "none":
            return Termination("none", "none")
        named = text(self.config["resolved"].get("task")) or text(self.config.get("env_id"))
        task = find_task(named or self.log.env_id or "")
        return termination.resolve(self.settings.training.termination, task)

    @property
    def pool_key(self) -> str | None:
        """The name of the pool that the run was trained against, if it learned models."""
        learn = self.termination.rule == "learned"
        return None if self.settings.pool is None else pools.pool_key(self.log, self.settings.pool, self.seed, learn)

    @functools.cached_property
    def problem(self) -> Problem:
        """What the algorithm was given: the log and, with models, the pool, found in the cache or trained again."""
        return make_problem(
            self.log,
            self._find_pool(),
            discount=self.config["resolved"]["discount"],
            horizon=self.config["resolved"]["horizon"],
            termination=self.termination.rule,
            reward=rewards.resolve(self.settings.training.reward),
        )

    @property
    def pool(self) -> Pool | None:
        """The models the run was trained against; None for algorithms without models."""
        return None if self.problem.world is None else self.problem.world.pool

    @functools.cached_property
    def state(self) -> Any:
        """The algorithm's state after the last update."""
        states = list(self.states())
        if not states:
            raise DataError(f"{self.folder}: has no checkpoint that can be read.")
        return states[-1][1]

    def states(self, problem: Problem | None = None) -> Iterator[tuple[int, Any]]:
        """Step and state of every kept checkpoint, oldest first; `problem` is one of the same shapes."""
        blank = eqx.filter_eval_shape(self.algorithm.init, jax.random.key(0), problem or self.problem)
        for path in self.files.checkpoint_files():
            name = path.relative_to(self.folder).as_posix()
            about = self.files.about(name)
            if about is not None and about.get("step") is not None:
                yield about["step"], self.files.load_tree(name, blank, "[0]")

    def _find_pool(self) -> Pool | None:
        config, learn = self.settings.pool, self.termination.rule == "learned"
        if config is None:
            return None
        if not pools.is_cached(self.log, config, self.seed, learn_termination=learn, folder=self._cache):
            self._stages.message(
                f"The pool of {self.folder} is not in the cache {self._cache}: its {config.pool_size} models are "
                f"trained again, for up to {config.model_steps:,} steps each. Ctrl-C stops; --cache and --pool-of name "
                "another place or run."
            )
        with self._stages.stage("pool", "pool    ", config.pool_size) as advance:
            return pools.cached_pool(
                self.log,
                config,
                self.seed,
                learn_termination=learn,
                folder=self._cache,
                progress=lambda done, total, loss: advance(config.pool_size * done / total, ""),
            ).pool


def open_run(
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    data: LogFiles | Log | None = None,
    cache: str | os.PathLike[str] | None = None,
    console: Console | None = None,
) -> Run:
    """A finished run, from its folder.

    Args:
        folder: the run folder.
        name: what to call it; None takes the name of the folder.
        data: its log, or the file of it; None looks where the run found it.
        cache: folder of trained pools; None takes $PHYB_CACHE or the user's cache folder.
        console: where progress is shown, should a pool have to be trained again.

    Raises:
        UsageError: the run is not finished.
        DataError: the folder is not a run, or a file of it is damaged.
    """
    run = Run(folder, name=name, data=data, cache=cache, console=console)
    _ = run.config
    if not run.files.vouches(run.files.result.name, *POLICY_FILES):
        raise UsageError(
            f"{run.folder}: is not a finished run. Go on with it with the command it was started with and --resume, or "
            f"see what is wrong with: phyb doctor {run.folder}"
        )
    return run
