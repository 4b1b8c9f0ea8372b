"""Commands about the paper: the optimum of its task, its claims, its tables."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from rich.console import Console
from tyro.conf import Positional


@dataclasses.dataclass(frozen=True)
class Oracle:
    """Show the exact optimum of a task: its value, the optimal thresholds, and what simple rules earn.

    Try:  phyb oracle liquidation --discount 0.99
    """

    task: Positional[Literal["liquidation"]] = "liquidation"
    """Task with a known optimum."""
    discount: float = 1.0
    """Discount the optimum is computed for; all returns shown are undiscounted."""

    def run(self, console: Console) -> None:
        """Solve and print."""
        from phyb.report.tables import oracle_tables

        for table in oracle_tables(self.discount):
            console.print(table)


@dataclasses.dataclass(frozen=True)
class Verify:
    """Check the paper's claims on random finite worlds, where everything can be computed exactly.

    Prints, for each claim, the condition it is stated under, the violations found inside and outside of it, and a
    verdict. Exit code 1 if a claim is violated where we say it holds.

    Try:  phyb verify --out claims
    or:   phyb verify --claim monotone-k --trials 100000
    """

    claim: str | None = None
    """Check only this claim, named as in the table."""
    trials: int = 10_000
    """Random cases per claim. More find rarer violations."""
    seed: int = 0
    """Seeds the cases of each claim."""
    out: Path | None = None
    """Folder to write verify.json, verify.html (with pictures and counterexamples) and figures/CLAIM.svg to."""

    def run(self, console: Console) -> None:
        """Check, print the table, and write what was asked for."""
        from phyb.theory.command import run

        run([self.claim] if self.claim else None, trials=self.trials, seed=self.seed, out=self.out, console=console)


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Make a table of the paper again: train what is missing, compare with what the paper reports.

    table2 is the liquidation task: PhyB, nine other algorithms and behaviour cloning. Finished runs are kept and
    broken-off ones gone on with, so that the same command is also how to continue, and how to write the table anew.
    Written to the folder of --out: table2.md, .tex, .csv, .json, .svg and .png; each run has a folder there, and its
    messages beside it in a file .txt. What the numbers mean: docs/table2.md.

    Try:  phyb reproduce table2 --quick
    or:   phyb reproduce table2 --seeds 4
    or:   phyb reproduce table2 --algorithms phyb cql --seeds 2 --out runs/two-rows
    """

    table: Positional[str]
    """Which table: table2, or package.module:attribute for one of your own; see docs/extending.md."""
    seeds: int | None = None
    """Runs per algorithm, with the seeds 0, 1, ...; by default 4 as in the paper, with --quick 1. More narrow the
    intervals."""
    quick: bool = False
    """Show the whole path in minutes, with rough numbers that are marked as such, in a folder of their own."""
    out: Path | None = None
    """Folder of runs, tables and figure; by default runs/table2, with --quick runs/table2-quick."""
    jobs: int | None = None
    """Runs at a time; by default one per core, or fewer if memory is short (1.5 GiB each). The cores are shared among
    them. Fewer leave the machine to others."""
    algorithms: tuple[str, ...] = ()
    """Rows of the table; by default all."""
    gather: bool = False
    """Train nothing; write the table of what is finished."""
    cache: Path | None = None
    """Folder of trained pools; by default $PHYB_CACHE, else phyb in the user's cache folder."""

    def run(self, console: Console) -> None:
        """Train, compare, write."""
        from phyb.reproduce.command import reproduce

        reproduce(**vars(self), console=console)
