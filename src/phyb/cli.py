"""The command line. Every command calls a function that is open to Python users too."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro
from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional, arg, subcommand

from phyb.algorithms.registry import find
from phyb.algorithms.sac import SACConfig
from phyb.collection.settings import CollectConfig
from phyb.dynamics.fit import PoolConfig
from phyb.errors import InterruptedRunError, PhybError, UsageError
from phyb.evaluation.fitted_q import FittedQConfig
from phyb.interrupt import hard_stop
from phyb.training.settings import Preset, Settings, TrainingConfig, preset

DESCRIPTION = """PhyB turns a fixed log of experience into a policy, and tells you how far to trust it.

Start with:  phyb train liquidation

Exit codes: 0 done, 1 verify or doctor found something wrong or runs of reproduce failed, 2 the request or the data
cannot be used, 3 training diverged, 4 a file cannot be written, 5 memory ran short, 6 another process works on the
run, 130 stopped on request."""


Agent = TypeVar("Agent")
Models = TypeVar("Models")


@dataclasses.dataclass(frozen=True)
class NoModels:
    """Stands where the settings of the pool would, for algorithms without one."""


@dataclasses.dataclass(frozen=True)
class Train(Generic[Models, Agent]):
    """Train an algorithm on a log and judge the policy.

    DATA is a built-in task (liquidation), a log file (.hdf5 in D4RL layout, or .npz) or minari:ID from the local
    cache. Stages: collect or load the log, train the pool of models, optimise the policy, judge it, write the
    report. Everything lands in one run folder; trained pools are also kept in a cache, so that the same log and
    settings never train them twice.

    Try:  phyb train liquidation --seed 1
    or:   phyb train hopper-medium.hdf5 --env Hopper-v5 --out runs/hopper
    or:   phyb train mylog.npz --subset-size 3 --steps 50000
    or:   phyb train liquidation --algorithm bc
    and:  phyb train --algorithm bc --help  for the settings of another algorithm
    """

    data: Annotated[Positional[str], arg(metavar="DATA")]
    """Built-in task or path of a log file."""
    env: str | None = None
    """Gymnasium id of a simulator to judge the policy in (module:id imports the module first). Without it the policy
    is trained all the same and judged under the belief only."""
    algorithm: str = "phyb"
    """What to train, see: phyb algorithms; or package.module:Class for one of your own. It decides which settings there
    are below."""
    preset: Preset = "cpu"
    """Defaults of all settings below: cpu (two cores, minutes), paper (what the algorithm's paper says, for the dataset
    at hand where it says so), released (PhyB by the rules of its released research code). The defaults shown here are
    those of the preset on the command line."""
    seed: int = 0
    """Seeds the log of a built-in task, the pool, the policy and the evaluation."""
    out: Path | None = None
    """Run folder; by default runs/TASK-ALGORITHM-seedSEED."""
    resume: bool = False
    """Go on with the run in that folder, or start it if there is none."""
    cache: Path | None = None
    """Folder of trained pools; by default $PHYB_CACHE, else phyb in the user's cache folder."""
    rows_in: Literal["auto", "memory", "disk"] = "auto"
    """Where the rows of the log lie: disk trains on logs larger than memory, with the same result, from files in the
    cache and in the run folder; auto takes the disk only if the memory free is less than the run needs."""
    pool: Models = tyro.MISSING
    agent: Agent = tyro.MISSING
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)

    def run(self, console: Console) -> None:
        """Train, then show the result."""
        from phyb.pipeline import train
        from phyb.report.tables import result_table

        pool = self.pool if isinstance(self.pool, PoolConfig) else None
        settings = Settings(pool, self.agent, self.training)
        run = train(
            self.data,
            env=self.env,
            algorithm=self.algorithm,
            preset_name=self.preset,
            settings=settings,
            seed=self.seed,
            out=self.out,
            resume=self.resume,
            cache=self.cache,
            rows_in=self.rows_in,
            console=console,
        )
        console.print(result_table(run.result))
        console.print(f"Report: {(run.folder / 'report.html').resolve()}", highlight=False, soft_wrap=True)


@dataclasses.dataclass(frozen=True)
class Algorithms:
    """List the algorithms that phyb train knows: what they do, whether they learn models, and their papers.

    Try:  phyb algorithms
    """

    def run(self, console: Console) -> None:
        """Print the table."""
        from phyb.report.tables import algorithm_table

        console.print(algorithm_table())


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
        from phyb.evaluation.judging import evaluate_run
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
        found = select_policies(
            self.runs,
            checkpoints=self.checkpoints,
            pool_of=self.pool_of,
            data=self.data,
            episodes=self.episodes,
            seed=self.seed,
            fit=self.fit,
            cache=self.cache,
            console=console,
        )
        console.print(selection_table(found))
        for sentence in found["advice"]:
            console.print(f"- {sentence}", highlight=False, markup=False, soft_wrap=True)
        if self.out is not None:
            write_json(self.out, found)
            console.print(f"Written: {self.out}", highlight=False, soft_wrap=True)


@dataclasses.dataclass(frozen=True)
class Report:
    """Write report.html of a run folder anew, also of one that is still running.

    Try:  phyb report runs/liquidation-phyb-seed0
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run folder."""

    def run(self, console: Console) -> None:
        """Write the page and say where it is."""
        from phyb.report.page import write_report
        from phyb.training.folder import RunFolder

        RunFolder(self.run_folder).read_config()
        console.print(f"Report: {write_report(self.run_folder).resolve()}", highlight=False, soft_wrap=True)


@dataclasses.dataclass(frozen=True)
class Doctor:
    """Check every file of a run against its manifest; say what is damaged and what can still be used.

    Exit code 0 if all is well, 1 if something is damaged or missing. Nothing is changed unless --repair is given.

    Try:  phyb doctor runs/liquidation-phyb-seed0
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run folder."""
    repair: bool = False
    """If the manifest is lost or damaged, write a new one that lists the files that can be read."""

    def run(self, console: Console) -> None:
        """Examine and print."""
        from phyb.training.doctor import examine, render, repair

        if self.repair:
            console.print(f"New manifest of {len(repair(self.run_folder))} files.", highlight=False)
        diagnosis = examine(self.run_folder)
        render(diagnosis, console, str(self.run_folder))
        if not diagnosis.healthy:
            raise SystemExit(1)


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

    table: Positional[Literal["table2"]]
    """Which table."""
    seeds: int | None = None
    """Runs per algorithm, with the seeds 0, 1, ...; by default 4 as in the paper, with --quick 1. More narrow the
    intervals."""
    quick: bool = False
    """Show the whole path in minutes, with rough numbers that are marked as such, in a folder of their own."""
    out: Path | None = None
    """Folder of runs, tables and figure; by default runs/table2, with --quick runs/table2-quick."""
    jobs: int | None = None
    """Runs at a time; by default one per core. The cores are shared among them. Fewer leave the machine to others."""
    algorithms: tuple[str, ...] = ()
    """Rows of the table; by default all."""
    gather: bool = False
    """Train nothing; write the table of what is finished."""
    cache: Path | None = None
    """Folder of trained pools; by default $PHYB_CACHE, else phyb in the user's cache folder."""

    def run(self, console: Console) -> None:
        """Train, compare, write."""
        from phyb.reproduce.command import reproduce_table2

        reproduce_table2(
            seeds=self.seeds,
            quick=self.quick,
            out=self.out,
            jobs=self.jobs,
            algorithms=self.algorithms,
            gather=self.gather,
            cache=self.cache,
            console=console,
        )


@dataclasses.dataclass(frozen=True)
class Describe:
    """Show what is in a log: sizes, ranges, episodes, returns, terminals and timeouts, anything suspicious.

    Try:  phyb data describe hopper-medium.hdf5
    """

    file: Positional[Path]
    """Log file, .hdf5 in D4RL layout or .npz."""

    def run(self, console: Console) -> None:
        """Load, check and print."""
        from phyb.data.describe import describe, render
        from phyb.data.files import load_log

        render(describe(load_log(self.file), str(self.file)), console)


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

        given = {"config": self.config, "sac": self.sac, "seed": self.seed, "resume": self.resume}
        for path in collect(self.env_id, self.out, **given, console=console).values():
            console.print(str(path), highlight=False, soft_wrap=True)


@dataclasses.dataclass(frozen=True)
class Data:
    """Look at logs, or make one."""

    action: Annotated[Describe, subcommand("describe")] | Annotated[Make, subcommand("make")]

    def run(self, console: Console) -> None:
        """Do what was asked."""
        self.action.run(console)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command `phyb`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    console, errors = Console(), Console(stderr=True)
    try:
        command = parse(arguments)
        with hard_stop():
            command.run(console)
    except InterruptedRunError as error:
        errors.print(str(error), highlight=False, markup=False, soft_wrap=True)
        raise SystemExit(error.exit_code) from None
    except PhybError as error:
        errors.print(f"[bold red]error:[/] {_escape(str(error))}", highlight=False, soft_wrap=True)
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        sys.stderr.close()
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        errors.print("Stopped at once. What was saved before stays; go on with the same command and --resume.")
        raise SystemExit(130) from None


def parse(arguments: list[str]) -> Any:
    """The command in the arguments. Settings that are not given come from the algorithm and the preset that are."""
    algorithm, dataset = _word_after("--algorithm", arguments) or "phyb", _data_in(arguments)
    settings = preset(_preset_in(arguments), algorithm, dataset)
    pool = settings.pool or NoModels()
    train = Train(tyro.MISSING, pool=pool, agent=settings.agent, training=settings.training)
    kind = Train[type(pool), find(algorithm).config_class]
    commands = (
        Annotated[OmitArgPrefixes[kind], subcommand("train", default=train)]
        | Annotated[Algorithms, subcommand("algorithms")]
        | Annotated[Evaluate, subcommand("evaluate")]
        | Annotated[OmitArgPrefixes[Select], subcommand("select")]
        | Annotated[Report, subcommand("report")]
        | Annotated[Doctor, subcommand("doctor")]
        | Annotated[OmitArgPrefixes[Collect], subcommand("collect")]
        | Annotated[OmitArgPrefixes[Data], subcommand("data")]
        | Annotated[Oracle, subcommand("oracle")]
        | Annotated[Verify, subcommand("verify")]
        | Annotated[Reproduce, subcommand("reproduce")]
    )
    try:
        return tyro.cli(commands, prog="phyb", description=DESCRIPTION, args=arguments)  # pyright: ignore
    except ValueError as error:
        raise UsageError(str(error)) from error


def _word_after(option: str, arguments: list[str]) -> str:
    """What an option is set to, read ahead because it decides which other options there are, or their defaults."""
    for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else after
    return ""


def _preset_in(arguments: list[str]) -> Preset:
    name = _word_after("--preset", arguments)
    return name if name in ("cpu", "paper", "released") else "cpu"  # pyright: ignore[reportReturnType]


def _data_in(arguments: list[str]) -> str:
    """What the arguments of train say about the log: where it is, and its simulator."""
    words = [word for word in arguments[1:] if word.startswith("minari:") or word.endswith((".hdf5", ".h5", ".npz"))]
    return " ".join([*words[:1], _word_after("--env", arguments)])


def _escape(text: str) -> str:
    return text.replace("[", r"\[")


if __name__ == "__main__":
    main()
