"""Commands about finished runs: evaluate, select, report, doctor."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from phyb.errors import UsageError
from phyb.evaluation.fitted_q import FittedQConfig


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Run the policy of a finished run in its simulator and show what it earns.

    Try:  phyb evaluate runs/liquidation-phyb-seed0 --episodes 100000
    or:   phyb evaluate runs/hopper --env Hopper-v5 --episodes 100 --render hopper.gif
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run folder."""
    episodes: int | None = None
    """Episodes to run; by default 20,000 where the simulator is vectorised, else 100. The interval shrinks with the
    square root of their number."""
    env: str | None = None
    """Gymnasium id of another simulator than the run's own."""
    seed: int = 12_345
    """Seeds the simulator."""

    render: Path | None = None
    """Film one episode, at most 10 simulated seconds, and write it to this file: .gif, or .mp4 with
    phyb[mp4]. MuJoCo needs OpenGL for it."""

    def run(self, console: Console) -> None:
        """Evaluate and print a table."""
        from phyb.evaluation.evaluate import evaluate_run
        from phyb.report.tables import evaluation_table

        found = evaluate_run(self.run_folder, self.episodes, self.env, self.seed, console, self.render)
        console.print(evaluation_table(found))
        if found["film"] is not None:
            console.print(
                f"Film: {found['film']['path']} ({found['film']['steps']:,} steps)", highlight=False, soft_wrap=True
            )


@dataclasses.dataclass(frozen=True)
class Select:
    """Rank the policies of finished runs without a simulator: which one should be deployed?

    Three estimates need only the log: the return under the belief, the return in the plain average of the models, and
    fitted Q evaluation. All candidates are judged on the same log, by the same pool, from the same start states. Where
    real returns are known, the rank correlation with them is shown. What each is worth: docs/select.md.

    Try:  phyb select runs/hopper-a runs/hopper-b runs/hopper-c
    or:   phyb select runs/hopper-* --checkpoints --pool-of runs/hopper-judge --out ranking.json
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN...")]
    """Run folders, all trained on the same log."""
    checkpoints: bool = False
    """Rank every kept checkpoint of the runs too."""
    pool_of: Path | None = None
    """Run whose pool, belief settings, discount and ending rule judge all candidates; by default the first
    that learned models. A run that is not ranked itself is the fairest judge."""
    data: str | None = None
    """File of the log, or minari:ID, if it is no longer where the run found it."""
    episodes: int | None = None
    """Imagined episodes per candidate; by default as many as in the last evaluation of a run. More shrinks the standard
    error."""
    seed: int = 0
    """Seeds fits and imagined episodes, for all candidates alike."""
    out: Path | None = None
    """File to write everything to as JSON; an existing file is never overwritten."""
    cache: Path | None = None
    """Folder of trained pools; by default $PHYB_CACHE, else phyb in the user's cache folder."""
    fit: FittedQConfig = dataclasses.field(default_factory=FittedQConfig)

    def run(self, console: Console) -> None:
        """Judge all candidates, print the ranking and how far to trust it."""
        from phyb.evaluation.select import select_policies
        from phyb.report.tables import selection_table
        from phyb.storage.files import write_json

        if self.out is not None and self.out.exists():
            raise UsageError(f"{self.out}: already exists. Choose another name with --out, or delete it first.")
        arguments = {name: value for name, value in vars(self).items() if name != "out"}
        found = select_policies(**arguments, console=console)
        console.print(selection_table(found))
        for sentence in found["advice"]:
            console.print(f"- {sentence}", highlight=False, markup=False, soft_wrap=True)
        if self.out is not None:
            write_json(self.out, found)
            console.print(f"Written: {self.out}", highlight=False, soft_wrap=True)


@dataclasses.dataclass(frozen=True)
class Report:
    """Write report.html of a run folder anew, also of one that is still running; or lay two runs over each other.

    Try:  phyb report runs/liquidation-phyb-seed0
    or:   phyb report runs/liquidation-phyb-seed0 runs/liquidation-cql-seed0 --out phyb-and-cql.html
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN]")]
    """One run folder, or two to compare."""
    out: Path | None = None
    """Page to write, replaced if it is there; by default report.html in the run folder, and comparison.html in the
    current folder for two runs."""

    def run(self, console: Console) -> None:
        """Write the page and say where it is."""
        from phyb.report.comparison import write_comparison
        from phyb.report.page import write_report
        from phyb.training.folder import RunFolder

        for folder in self.runs:
            RunFolder(folder).read_config()
        if len(self.runs) == 1:
            page = write_report(self.runs[0], self.out)
        elif len(self.runs) == 2:
            page = write_comparison(*self.runs, self.out or "comparison.html")
        else:
            raise UsageError(f"report: found {len(self.runs)} run folders, expected one or two.")
        console.print(f"Report: {page.resolve()}", highlight=False, soft_wrap=True)


@dataclasses.dataclass(frozen=True)
class Doctor:
    """Check every file of a run against its manifest; say what is damaged and what can still be used.

    Exit code 0 if all is well, 1 if something is damaged or missing. Nothing is changed.

    Try:  phyb doctor runs/liquidation-phyb-seed0
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run folder."""

    def run(self, console: Console) -> None:
        """Examine and print."""
        from phyb.training.doctor import examine, render

        diagnosis = examine(self.run_folder)
        render(diagnosis, console, str(self.run_folder))
        if not diagnosis.healthy:
            raise SystemExit(1)
