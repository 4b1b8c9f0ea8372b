"""Commands about logs: describe one, make one of a built-in task or a table, collect several in a simulator."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, arg, subcommand

from phyb.algorithms.sac import SACConfig
from phyb.collection.settings import CollectConfig
from phyb.commands.importing import Import
from phyb.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Describe:
    """Show what is in a log: sizes, ranges, episodes, returns, terminals and timeouts, anything suspicious.

    Try:  phyb data describe hopper-medium.hdf5
    or:   phyb data describe hopper-medium.hdf5 hopper-expert.hdf5
    """

    files: Annotated[Positional[tuple[str, ...]], arg(metavar="FILE...")]
    """Log files (.hdf5 in D4RL layout, .npz, .csv, .parquet), a folder of them, or minari:ID; several are one log."""

    def run(self, console: Console) -> None:
        """Load, check and print."""
        from phyb.data.describe import describe, render
        from phyb.data.files import load_log

        render(describe(load_log(self.files), ", ".join(self.files)), console)


@dataclasses.dataclass(frozen=True)
class Make:
    """Collect a log of a built-in task with its behaviour policy and write it to a file.

    Try:  phyb data make liquidation --transitions 100000 --seed 0 --out liquidation.hdf5
    """

    task: Positional[Literal["liquidation"]]
    """Built-in task."""
    out: Path
    """File to write, .hdf5 or .npz; an existing file is never overwritten."""
    transitions: int = 100_000
    """Rows of the log."""
    seed: int = 0
    """Seeds behaviour and prices."""
    hold_encoding: Literal["negative", "zero"] = "negative"
    """How a hold is written as a number: drawn from (-1, 0), or exactly 0. It matters to methods that imitate."""

    def run(self, console: Console) -> None:
        """Collect and save."""
        from phyb.data.collect import collect_liquidation
        from phyb.data.files import save_log

        if self.out.exists():
            raise UsageError(f"{self.out}: already exists. Choose another name with --out, or delete it first.")
        log = collect_liquidation(self.transitions, self.seed, self.hold_encoding)
        save_log(log, self.out)
        console.print(
            f"{self.out}: {len(log):,} transitions, {int(log.episode_ends.sum()):,} episodes", highlight=False
        )


@dataclasses.dataclass(frozen=True)
class Collect:
    """Train SAC in a simulator and write the six D4RL kinds of logs.

    ENV_ID is any Gymnasium id with vectors as observations and as actions. Written to the folder --out, as HDF5 files:
    random, medium, expert, medium-expert, medium-replay, full-replay.

    Try:  phyb collect Hopper-v5 --out logs/hopper
    or:   phyb collect Pendulum-v1 --out logs/pendulum --steps 20000 --rows 20000 --random-steps 1000
    """

    env_id: Annotated[Positional[str], arg(metavar="ENV_ID")]
    """Gymnasium id of the simulator (module:id imports the module first)."""
    out: Path
    """Folder for the files, and for what is needed to go on after an interruption."""
    seed: int = 0
    """Seeds networks, simulator and actions."""
    resume: bool = False
    """Go on with the collection in that folder, or start it if there is none."""
    config: CollectConfig = dataclasses.field(default_factory=CollectConfig)
    sac: SACConfig = dataclasses.field(default_factory=SACConfig)

    def run(self, console: Console) -> None:
        """Collect, then say where the files are."""
        from phyb.collection.collect import collect

        for path in collect(**vars(self), console=console).values():
            console.print(str(path), highlight=False, soft_wrap=True)


@dataclasses.dataclass(frozen=True)
class Data:
    """Describe a log, or make one: of a built-in task, or of a table of your own."""

    action: (
        Annotated[Describe, subcommand("describe")]
        | Annotated[Make, subcommand("make")]
        | Annotated[Import, subcommand("import")]
    )

    def run(self, console: Console) -> None:
        """Do what was asked."""
        self.action.run(console)
