"""The command line. Every command calls a function that is open to Python users too."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro
from rich.console import Console
from rich.markup import escape
from tyro.conf import OmitArgPrefixes, Positional, arg, subcommand

from phyb.algorithms.registry import find
from phyb.algorithms.settings import Preset, Settings, TrainingConfig, check_settings, dataset_of, preset
from phyb.commands.deploy import Export, Monitor, Serve
from phyb.commands.logs import Collect, Data
from phyb.commands.paper import Oracle, Reproduce, Verify
from phyb.commands.runs import Doctor, Evaluate, Report, Select
from phyb.dynamics.fit import PoolConfig
from phyb.envs.tasks import choose_task
from phyb.errors import InterruptedRunError, PhybError, UsageError
from phyb.registry import use_plugins
from phyb.training.loggers import LoggerName
from phyb.training.rows import log_origin

DESCRIPTION = """PhyB turns a fixed log of experience into a policy, and tells you how far to trust it.

Start with:  phyb train liquidation

Exit codes: 0 done, 1 verify or doctor found something wrong or runs of reproduce failed, 2 the request or the data
cannot be used, 3 training diverged, 4 a file cannot be written, 5 memory ran short, 6 another process works on the
run, 7 monitor raises an alarm, 8 monitor cannot tell, 130 stopped on request."""


Agent = TypeVar("Agent")
Models = TypeVar("Models")


@dataclasses.dataclass(frozen=True)
class NoModels:
    """Stands where the settings of the pool would, for algorithms without one."""


@dataclasses.dataclass(frozen=True)
class Train(Generic[Models, Agent]):
    """Train an algorithm on a log and evaluate the policy.

    DATA is a built-in task (liquidation), a log file (.hdf5 in D4RL layout, .npz, .csv, .parquet), minari:ID from the
    local cache, a folder of logs, or several of them, which are one log. Stages: collect or load the log, train the
    pool of models, optimise the policy, evaluate it, write the report. Everything lands in one run folder; trained
    pools are also kept in a cache, so that the same log and settings never train them twice.

    Try:  phyb train liquidation --seed 1
    or:   phyb train hopper-medium.hdf5 --env Hopper-v5 --out runs/hopper
    or:   phyb train mylog.npz --subset-size 3 --steps 50000
    or:   phyb train hopper-medium.hdf5 hopper-expert.hdf5
    or:   phyb train liquidation --algorithm bc
    and:  phyb train --algorithm bc --help  for the settings of another algorithm
    """

    data: Annotated[Positional[tuple[str, ...]], arg(metavar="DATA...")]
    """Built-in task or paths of log files."""
    env: str | None = None
    """Gymnasium id of a simulator to evaluate the policy in (module:id imports the module first). Without it the policy
    is trained all the same and evaluated under the belief only."""
    task: str | None = None
    """Task whose settings, termination rule and discount are taken: liquidation, hopper, halfcheetah, walker2d, ant,
    pendulum. By default the task of --env, else the one that the log itself records; a file name decides nothing."""
    dataset: str = ""
    """Data set of D4RL, such as hopper-medium-replay, whose published settings --preset paper takes; by default what
    the log itself records."""
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
    logger: LoggerName | None = None
    """Service that hears all metrics (phyb[wandb], phyb[mlflow]). tensorboard only makes sure that its package is
    there: events are written into the run folder whenever it is."""
    pool: Models = tyro.MISSING
    agent: Agent = tyro.MISSING
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)

    @property
    def source(self) -> str | tuple[str, ...]:
        """What is trained on."""
        return self.data[0] if len(self.data) == 1 else self.data

    @property
    def settings(self) -> Settings:
        """Every setting."""
        return Settings(self.pool if isinstance(self.pool, PoolConfig) else None, self.agent, self.training)

    def run(self, console: Console) -> None:
        """Train, then show the result."""
        from phyb.training.result_table import result_table

        names = ("env", "task", "dataset", "seed", "out", "resume", "cache", "rows_in", "logger")
        arguments = {name: getattr(self, name) for name in names}
        run = find(self.algorithm)(self.settings, preset=self.preset).fit(self.source, **arguments, console=console)
        console.print(result_table(run.result))
        console.print(f"Report: {(run.folder / 'report.html').resolve()}", highlight=False, soft_wrap=True)


@dataclasses.dataclass(frozen=True)
class Algorithms:
    """List the algorithms that phyb train knows: what they do, whether they learn models, their family and papers.

    Try:  phyb algorithms
    """

    def run(self, console: Console) -> None:
        """Print the table."""
        from phyb.report.tables import algorithm_table

        console.print(algorithm_table())


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command `phyb`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    console, errors = Console(), Console(stderr=True)
    try:
        use_plugins(*filter(None, os.environ.get("PHYB_PLUGINS", "").split(",")))
        parse(arguments).run(console)
    except InterruptedRunError as error:
        errors.print(str(error), highlight=False, markup=False, soft_wrap=True)
        raise SystemExit(error.exit_code) from None
    except PhybError as error:
        errors.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        sys.stderr.close()
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        errors.print("Stopped at once. What was saved before stays; go on with the same command and --resume.")
        raise SystemExit(130) from None


@dataclasses.dataclass(frozen=True)
class Choices:
    """The options that decide which settings there are, and their defaults."""

    algorithm: str = "phyb"
    preset: Preset = "cpu"
    env: str | None = None
    task: str | None = None
    dataset: str = ""


def parse(arguments: list[str]) -> Any:
    """The command in the arguments. Settings that are not given come from the algorithm and the preset that are.

    The options of `Choices` are parsed first: they decide which settings there are. Then everything is parsed to find
    DATA, whose task decides the defaults, and once more with these.

    Raises:
        UsageError: an option of an earlier version, the message gives its new name; or settings that cannot be used.
    """
    _refuse_old_names(arguments)
    if arguments[:1] != ["train"]:
        return _parse(arguments, Choices(), preset(), tyro.MISSING)
    words = [word for word in arguments if word not in ("-h", "--help")]
    chosen, _ = tyro.cli(Choices, args=words[1:], return_unknown_args=True, prog="phyb train")
    general = preset(chosen.preset, chosen.algorithm)
    found = _parse(words, chosen, general, ())
    env_id, recorded = log_origin(found.source) if found.data else (None, None)
    task = choose_task(env_id, chosen.env, chosen.task).task
    usual = preset(chosen.preset, chosen.algorithm, task, chosen.dataset or dataset_of(task, recorded))
    command = _parse(arguments, chosen, usual, tyro.MISSING)
    if not command.data:
        raise UsageError("train: DATA is missing: name a log file, or a built-in task, as in: phyb train liquidation")
    if Choices(*(getattr(command, field.name) for field in dataclasses.fields(Choices))) != chosen:
        raise UsageError("train: an option stands where it can be read in two ways; write it as --option=value.")
    if chosen.dataset and chosen.preset != "paper":
        raise UsageError("--dataset: has an effect only with --preset paper.")
    check_settings(command.settings, usual)
    return command


def _parse(arguments: list[str], chosen: Choices, usual: Settings, data: Any) -> Any:
    """The command in the arguments, where settings that are not given are the usual ones."""
    pool = usual.pool or NoModels()
    train = Train(data, pool=pool, agent=usual.agent, training=usual.training)
    kind = Train[type(pool), find(chosen.algorithm).config_class]
    commands = (
        Annotated[OmitArgPrefixes[kind], subcommand("train", default=train)]
        | Annotated[Algorithms, subcommand("algorithms")]
        | Annotated[Evaluate, subcommand("evaluate")]
        | Annotated[OmitArgPrefixes[Select], subcommand("select")]
        | Annotated[Export, subcommand("export")]
        | Annotated[Serve, subcommand("serve")]
        | Annotated[Monitor, subcommand("monitor")]
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


RENAMED = {
    "--retreat": "--rollback",
    "--no-retreat": "--no-rollback",
    "--doubt-cost": "--disagreement-penalty, with --algorithm phyb-search",
    "--judge": "--algorithm phyb-search, for candidates that are whole policies, else --algorithm phyb",
    "--reward-units=log": "--reward-units=raw",
}
"""Options of earlier versions, alone or with a value, and what stands in their place."""


def _refuse_old_names(arguments: list[str]) -> None:
    for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        for old in (name, f"{name}={value if equals else after}"):
            if old in RENAMED:
                raise UsageError(f"{old}: this option has another name now: {RENAMED[old]}.")


if __name__ == "__main__":
    main()
