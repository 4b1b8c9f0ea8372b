"""The runs behind a table: settings, commands, and which of them share a pool of models."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from phyb.algorithms.registry import ALGORITHMS, load
from phyb.algorithms.settings import Settings, preset
from phyb.errors import UsageError
from phyb.fields import Changes, difference, flat
from phyb.training.folder import RunFolder
from phyb.training.job import refuse_other_settings


@dataclasses.dataclass(frozen=True)
class Planned:
    """One run: an algorithm and a seed on a built-in task, in a folder of its own."""

    task: str
    algorithm: str
    seed: int
    folder: Path
    settings: Settings
    options: tuple[str, ...] = ()
    """Options beyond the preset with which the command line arrives at `settings`."""
    cache: Path | None = None
    """Folder of trained pools; None leaves the choice to the run."""

    @property
    def name(self) -> str:
        """What the run is called in messages, and its folder."""
        return self.folder.name

    @property
    def output(self) -> Path:
        """Where the messages of its process go."""
        return self.folder.parent / f"{self.name}.txt"

    @property
    def recipe(self) -> list[str]:
        """The command line after `phyb` with which anyone can make this run, wherever they keep it."""
        return ["train", self.task, "--algorithm", self.algorithm, "--seed", str(self.seed), *self.options]

    @property
    def process_command(self) -> list[str]:
        """The command with which it is made here."""
        places = [] if self.cache is None else ["--cache", str(self.cache)]
        return [sys.executable, "-m", "phyb.cli", *self.recipe, "--out", str(self.folder), "--resume", *places]

    @property
    def pool(self) -> str | None:
        """Equal for runs that use the same pool of models; None for one without."""
        pool, training = self.settings.pool, self.settings.training
        if pool is None:
            return None
        rows = [self.task, self.seed, training.transitions, training.termination, training.reward]
        return json.dumps([*rows, dataclasses.asdict(pool)])

    @property
    def pool_is_there(self) -> bool:
        """Whether the run has evaluated its pool, which is then in the cache."""
        return RunFolder(self.folder).diagnostics.is_file()

    @property
    def finished(self) -> bool:
        """Whether the run is done.

        Raises:
            UsageError: it is, but was made with other settings than the plan's.
        """
        folder = RunFolder(self.folder)
        if not folder.path.is_dir() or not folder.finished:
            return False
        found = folder.read_config()
        ours = {"task": self.task, "algorithm": self.algorithm, "seed": self.seed}
        lines = difference(ours, {name: found.get(name) for name in ours})
        if not lines:
            theirs = Settings.from_json(found.get("settings", {}), load(self.algorithm)).to_json()
            lines = difference(self.settings.to_json(), theirs)
        refuse_other_settings(folder.path, lines)
        return True


def plan_runs(
    task: str,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    changes: Callable[[Settings], Changes] | None = None,
    cache: Path | None = None,
) -> list[Planned]:
    """All runs, seed after seed, each seed in the order of the algorithms.

    `changes` gives the settings by name that a run changes in its preset "cpu"; those its algorithm does not have are
    passed over.

    Raises:
        UsageError: an algorithm is not in the registry.
    """
    unknown = [name for name in algorithms if name not in ALGORITHMS]
    if unknown:
        known = [name for name in algorithms if name in ALGORITHMS]
        raise UsageError(
            f"This version of phyb does not have the algorithm {', '.join(unknown)}. Leave it out with: "
            f"--algorithms {' '.join(known)}"
        )
    runs = []
    for seed in seeds:
        for name in algorithms:
            usual = preset("cpu", name, task)
            known = flat(usual)
            asked = changes(usual) if changes is not None else {}
            fitting = {setting: value for setting, value in asked.items() if setting in known}
            settings, options = usual.with_changes(**fitting), tuple(options_of(fitting))
            runs.append(Planned(task, name, seed, out / f"{name}-seed{seed}", settings, options, cache))
    return runs


def options_of(changes: Changes) -> list[str]:
    """Changed settings as options of `phyb train`: {"policy_hidden": (8, 8)} is --policy-hidden 8 8."""
    found: list[str] = []
    for name, value in changes.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{option}" if value else f"--no-{option}")
        else:
            found += [f"--{option}", *map(str, value if isinstance(value, tuple) else (value,))]
    return found
