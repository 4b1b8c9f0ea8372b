"""The work behind `phyb collect`: train SAC in an environment and write the six kinds of logs of D4RL."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from phyb.algorithms.sac import SACConfig
from phyb.collection.copies import Act, Copies, RandomStreams, Task, record
from phyb.collection.logs import KINDS, Kind, Recorded, package_versions, to_log
from phyb.collection.settings import CollectConfig
from phyb.collection.trainer import Record, SACTrainer, sample_actions
from phyb.data.files import load_log, save_log
from phyb.errors import DataError, UsageError, memory_errors
from phyb.fields import check, difference, refuse
from phyb.interrupt import StopRequests, stop_requests
from phyb.policy.actor import Actor
from phyb.storage.files import read_json, remove_leftovers
from phyb.storage.lock import is_in_use, locked
from phyb.storage.store import Store
from phyb.training.job import refuse_other_settings, report_other_versions
from phyb.training.progress import Stages

CONFIG = "collect.json"
FORMAT_VERSION = 1
_ROLLOUT, _ACTIONS = 4, 5


def collect(
    env_id: str,
    out: str | os.PathLike[str],
    *,
    config: CollectConfig | None = None,
    sac: SACConfig | None = None,
    seed: int = 0,
    resume: bool = False,
    console: Console | None = None,
) -> dict[Kind, Path]:
    """Train SAC in an environment and write the six kinds of logs as HDF5 files.

    Args:
        env_id: a Gymnasium id with vectors as observations and bounded vectors as actions.
        out: the folder for the files and for all that is needed to go on after an interruption.
        config: how much to collect.
        sac: settings of SAC.
        seed: seeds everything; the same seed gives the same files on the same machine with the same versions.
        resume: go on with the collection in that folder, or start it if there is none.
        console: where progress is shown; None shows it on the terminal.

    Returns:
        The file of each kind.

    Raises:
        UsageError: the environment cannot be recorded, the folder exists and `resume` is off, or it holds a collection
            with other settings.
        DivergenceError: training produced numbers that are not finite.
        BusyError: another process works on the folder.
        InterruptedRunError: Ctrl-C or SIGTERM; all finished rounds and files are saved.
    """
    if seed < 0:
        raise UsageError(f"the seed must be 0 or more, got {seed}")
    config, sac = config or CollectConfig(), sac or SACConfig()
    refuse([*check(config), *check(sac)])
    store, stages = Store(out), Stages(console)
    if not resume and is_in_use(store.path):
        raise UsageError(
            f"{store.path}: already exists. Add --resume to go on with it, or choose another folder with --out."
        )
    with (
        contextlib.closing(Copies(env_id, config.copies)) as copies,
        locked(store.path) as guard,
        stop_requests(stages.message) as stop,
        memory_errors("Lower --rows, --steps or --copies. What was saved stays: go on with --resume."),
    ):
        store.guard = guard
        store.start()
        remove_leftovers(store.path)
        _write_or_compare_config(store, copies.task, config, sac, seed, stages)
        job = _Collection(copies, config, sac, seed, store, stages, stop)
        if store.vouches(*(job.path(kind).name for kind in KINDS)):
            stages.message(f"{store.path}: this collection is finished.")
        else:
            job.run()
        return {kind: job.path(kind) for kind in KINDS}


def choose_medium(records: list[Record], random_return: float, share: float) -> Record:
    """The first policy that made `share` of the way from the random return to the best; the best if none improved."""
    best = records[-1].value
    mark = min(best, random_return + share * (best - random_return))
    return next(record for record in records if record.value >= mark)


@dataclasses.dataclass
class _Collection:
    """One collection: what its stages share."""

    copies: Copies
    config: CollectConfig
    sac: SACConfig
    seed: int
    store: Store
    stages: Stages
    stop: StopRequests

    def __post_init__(self) -> None:
        self.task = self.copies.task
        self._rollouts: dict[Kind, Recorded] = {}

    def path(self, kind: Kind) -> Path:
        """The file of a kind, such as hopper-medium.hdf5 for Hopper-v5."""
        name = re.sub(r"-v\d+$", "", re.split("[:/]", self.task.env_id)[-1]).lower()
        return self.store.path / f"{name}-{kind}.hdf5"

    def run(self) -> None:
        """Record random actions, train, then record policies and replay; existing files are kept."""
        self._write("random", lambda: [self._random_actions()], "uniform random actions", 0)
        trainer = SACTrainer(self.copies, self.sac, self.config, self.seed, self.store, self.stop)
        with self.stages.stage("train", "training     ", trainer.rows()) as advance:
            training = trainer.train(advance)
        expert, medium = training.records[-1], self._medium(training.records)

        def rollouts(*parts: tuple[Kind, Record]) -> Callable[[], list[Recorded]]:
            return lambda: [self._policy(kind, trainer.actor(record)) for kind, record in parts]

        def replay(rounds: int) -> Callable[[], list[Recorded]]:
            return lambda: trainer.replay(training, rounds)

        template = "stochastic SAC policy after {:,} steps of training, evaluated at a return of {:,.2f}"
        as_medium, as_expert = (template.format(record.steps, record.value) for record in (medium, expert))
        both = rollouts(("medium", medium), ("expert", expert))
        self._write("medium", rollouts(("medium", medium)), as_medium, medium.steps)
        self._write("expert", rollouts(("expert", expert)), as_expert, expert.steps)
        self._write("medium-expert", both, f"one half: {as_medium}; other half: {as_expert}", expert.steps)
        self._rollouts.clear()
        so_far = "everything SAC did in training, from its first step {}"
        self._write("medium-replay", replay(medium.round), so_far.format("to the policy of medium"), medium.steps)
        self._write("full-replay", replay(training.rounds), so_far.format("to its last"), trainer.rows())

    def _medium(self, records: list[Record]) -> Record:
        found = load_log(self.path("random")).provenance["returns"]
        random_return = records[0].value if found is None else found["mean"]  # no episode ended within the log
        medium, expert = choose_medium(records, random_return, self.config.medium_share), records[-1]
        if medium == expert:
            self.stages.message(
                f"SAC's best policy earned {expert.value:,.1f}, random actions {random_return:,.1f}; no policy between "
                "the two was found, so medium and expert are the same policy. Raise --steps."
            )
        return medium

    def _random_actions(self) -> Recorded:
        generator = RandomStreams(self.seed, _ACTIONS).generator
        size = self.task.action_size
        return self._roll("random", lambda observations, step: generator.uniform(-1.0, 1.0, (len(observations), size)))

    def _policy(self, kind: Kind, actor: Actor) -> Recorded:
        """Rows of a policy; those of medium and expert are used twice."""
        if kind not in self._rollouts:
            key = RandomStreams(self.seed, _ACTIONS, KINDS.index(kind)).key
            self._rollouts[kind] = self._roll(kind, lambda rows, step: sample_actions(actor, key, step, rows))
        return self._rollouts[kind]

    def _roll(self, kind: Kind, act: Act) -> Recorded:
        with self.stages.stage(kind, f"{kind:13}", self.config.rows) as advance:

            def on_progress(rows: int) -> None:
                self.stop.check()
                advance(rows, "")

            random = RandomStreams(self.seed, _ROLLOUT, KINDS.index(kind))
            return record(self.copies, self.config.rows, random, act, on_progress)

    def _write(self, kind: Kind, recorded: Callable[[], list[Recorded]], behaviour: str, training_steps: int) -> None:
        path = self.path(kind)
        if self.store.vouches(path.name):
            return
        self.stop.check()
        about = {
            "kind": kind,
            "behaviour": behaviour,
            "training_steps": training_steps,
            "seed": self.seed,
            "collect": dataclasses.asdict(self.config),
            "sac": dataclasses.asdict(self.sac),
        }
        log = to_log(self.task, recorded(), about)
        self.store.guard()
        save_log(log, path)
        self.store.add(path.name)


def _write_or_compare_config(
    store: Store, task: Task, config: CollectConfig, sac: SACConfig, seed: int, stages: Stages
) -> None:
    settings = {"collect": dataclasses.asdict(config), "sac": dataclasses.asdict(sac)}
    same: dict[str, Any] = {"env_id": task.env_id, "seed": seed, "settings": settings}
    content = {"format": FORMAT_VERSION, **same, "versions": package_versions()}
    if CONFIG not in store.entries:
        if store.entries:
            raise DataError(f"{store.path}: is not a folder of phyb collect (no {CONFIG}). Choose another with --out.")
        store.save_json(CONFIG, content)
        return
    found = read_json(store.path / CONFIG)
    if not isinstance(found, dict) or found.get("format") != FORMAT_VERSION:
        raise DataError(f"{store.path / CONFIG}: is damaged, or was written by another version of phyb.")
    lines = difference(same, {name: found.get(name) for name in same})
    refuse_other_settings(store.path, lines)
    report_other_versions(content["versions"], found.get("versions"), stages.message)
