"""The runs behind docs/results.md: train what is missing, resume what was interrupted, gather the numbers.

Each run is one `phyb train` at the cpu preset, in a folder of its own, always with --resume. Finished runs are not
repeated, so the plan can be run in pieces, or on several machines that share the folder of runs.

    python benchmarks/locomotion.py DATA            train and gather
    python benchmarks/locomotion.py DATA --only hopper-medium-replay
    python benchmarks/locomotion.py --gather        only gather what is finished

DATA is the folder with the HDF5 files named in the plan.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from pages import put_between_marks

from phyb.envs.tasks import find_task, normalized_score
from phyb.report.style import drawing, steps_axis
from phyb.storage.files import atomic_path, write_json
from phyb.training.records import read_run

ROOT = Path(__file__).resolve().parent.parent
PAGE, PICTURES, DATA = ROOT / "docs" / "results.md", ROOT / "docs" / "img" / "results", "results/locomotion-cpu.json"


@dataclasses.dataclass(frozen=True)
class Planned:
    """One run of the plan."""

    log: str
    seed: int = 0
    variant: str = ""
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Folder of the run."""
        return "-".join([self.log, *([self.variant] if self.variant else []), f"seed{self.seed}"])

    @property
    def env_id(self) -> str:
        """The simulator for evaluations."""
        return {"hopper": "Hopper-v5", "halfcheetah": "HalfCheetah-v5"}[self.log.split("-")[0]]


ABLATED = "hopper-medium-replay"
ABLATIONS = {
    "kth-min": ("--weight-rule", "kth_min"),
    "single": ("--weight-rule", "single"),
    "average": ("--weight-rule", "uniform", "--subset-size", "4"),
    "no-penalty": ("--disagreement-penalty", "0"),
    "no-noise": ("--action-noise", "0"),
}
"""One change each, all without rollback, which would undo the effect of a change."""
MAIN = (
    *((ABLATED, seed) for seed in (0, 1, 2)),
    ("hopper-medium", 0),
    ("hopper-medium-expert", 0),
    ("hopper-full-replay", 0),
    ("halfcheetah-medium", 0),
    ("halfcheetah-medium-replay", 0),
)
LONGER = ("--steps", "600", "--no-rollback")
"""Half as many updates again on halfcheetah-medium, without rollback."""
CLONE = ("--clone-best", "1", "--steps", "1")
"""A run that stops at the clone of all rows: behaviour cloning as the preset would do it without its selection."""
LEAST_SQUARES = ("--algorithm", "bc")
CLONINGS = {"bc": "least squares", "clone": "clipped Gaussian"}
"""Two ways of behaviour cloning on all rows, to compare with."""
PLAN = (
    *(Planned(log, seed) for log, seed in MAIN),
    *(Planned(log, seed, "clone", CLONE) for log, seed in MAIN),
    *(Planned(log, seed, "bc", LEAST_SQUARES) for log, seed in MAIN),
    *(Planned(ABLATED, 0, variant, ("--no-rollback", *options)) for variant, options in ABLATIONS.items()),
    Planned("halfcheetah-medium", 0, "longer", LONGER),
)


def train(planned: Planned, data: Path, runs: Path) -> None:
    """Train or resume one run of the plan with the command line."""
    command = [
        sys.executable, "-m", "phyb.cli", "train", str(data / f"{planned.log}.hdf5"), "--env", planned.env_id,
        "--seed", str(planned.seed), "--out", str(runs / planned.name), "--resume",
        *(() if "--algorithm" in planned.options else ("--algorithm", "phyb-search")), *planned.options,
    ]  # fmt: skip
    print(f"\n{planned.name}\n  {' '.join(command[2:])}", flush=True)
    subprocess.run(command, check=True)


def gather(runs: Path) -> list[dict[str, Any]]:
    """Results and curves of every finished run of the plan, ready for JSON."""
    found = []
    for planned in PLAN:
        folder = runs / planned.name
        if not (folder / "result.json").is_file():
            continue
        run, task = read_run(folder), find_task(planned.env_id)
        assert task is not None
        result, evaluations = run.result, run.stage("evaluation")
        score = lambda value, task=task: None if value is None else normalized_score(task, value)  # noqa: E731
        found.append(
            {
                "log": planned.log,
                "variant": planned.variant or "phyb",
                "seed": planned.seed,
                "options": list(planned.options),
                "behaviour": score(result["behaviour_return"]),
                "start": evaluations[0]["normalized_score"],
                "score": result["normalized_score"],
                "score_std_error": score(result["std_error"]) - score(0.0),  # pyright: ignore[reportOperatorIssue]
                "belief": score(result.get("belief_return")),
                "episodes": result["episodes"],
                "minutes": {name: round(seconds / 60, 2) for name, seconds in result["wall_seconds"].items()},
                "curve": {
                    "step": [line["step"] for line in evaluations],
                    "score": [line["normalized_score"] for line in evaluations],
                    "belief": [score(line.get("belief_return")) for line in evaluations],
                    "start_value": [line.get("start_value") for line in evaluations],
                    "belief_discounted": [line.get("belief_discounted") for line in evaluations],
                },
                "versions": result["versions"],
            }
        )
    return found


def with_published_clones(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs found, and clones published before whose runs are not here; nothing but their own settings made them."""
    names = [(planned.log, planned.variant or "phyb", planned.seed) for planned in PLAN]
    name_of = lambda run: (run["log"], run["variant"], run["seed"])  # noqa: E731
    here = {name_of(run) for run in found}
    before = json.loads((ROOT / DATA).read_text()) if (ROOT / DATA).is_file() else []
    kept = [run for run in before if run["variant"] in CLONINGS and name_of(run) not in here]
    return sorted([*found, *kept], key=lambda run: names.index(name_of(run)))


def table(found: list[dict[str, Any]], everything: list[dict[str, Any]]) -> str:
    """A Markdown table, one row per run, with both kinds of behaviour cloning beside it."""
    lines = [
        "| log | seed | behaviour | cloning, least squares | cloning, clipped Gaussian | start "
        "| PhyB-search, last checkpoint | belief return | minutes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    cloned = {(run["variant"], run["log"], run["seed"]): f"{run['score']:.1f}" for run in everything}
    for run in found:
        name = run["log"] if run["variant"] == "phyb" else f"{run['log']}, {run['variant']}"
        least, clipped = (cloned.get((kind, run["log"], run["seed"]), "–") for kind in CLONINGS)
        lines.append(
            f"| {name} | {run['seed']} | {run['behaviour']:.1f} | {least} | {clipped} | {run['start']:.1f} "
            f"| **{run['score']:.1f}** ± {run['score_std_error']:.1f} | {run['belief']:.1f} "
            f"| {sum(run['minutes'].values()):.0f} |"
        )
    return "\n".join(lines)


def picture(found: list[dict[str, Any]], everything: list[dict[str, Any]], path: Path) -> None:
    """Draw the score in the simulator and under the belief over the updates, one colour per run."""
    with drawing((6.0, 3.4)) as (figure, axes):
        for number, run in enumerate(found):
            color = f"C{number}"
            label = f"seed {run['seed']}" if run["variant"] in ("phyb", "longer") else run["variant"]
            axes.plot(run["curve"]["step"], run["curve"]["score"], color=color, label=label)
            axes.plot(run["curve"]["step"], run["curve"]["belief"], color=color, linestyle=":", linewidth=1.0)
        of_log = [run for run in everything if (run["log"], run["seed"]) == (found[0]["log"], found[0]["seed"])]
        for kind, style in zip(CLONINGS, ((0, (1, 2)), (0, (4, 3))), strict=True):
            for clone in (run for run in of_log if run["variant"] == kind):
                label = f"cloning, {CLONINGS[kind]}"
                axes.axhline(clone["score"], color="0.5", linestyle=style, linewidth=1.2, label=label)
        axes.set_ylabel("score (dotted: under the belief)")
        axes.legend(frameon=False, fontsize=8)
        steps_axis(axes, np.concatenate([run["curve"]["step"] for run in found]))
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="svg", bbox_inches="tight")


def publish(found: list[dict[str, Any]]) -> None:
    """Write the data, the pictures and the tables of docs/results.md."""
    write_json(ROOT / DATA, found)
    PICTURES.mkdir(parents=True, exist_ok=True)
    main, longer = ([run for run in found if run["variant"] == name] for name in ("phyb", "longer"))
    ablated = [run for run in found if run["log"] == ABLATED and run["variant"] in ABLATIONS]
    whole = [run for run in main if (run["log"], run["seed"]) == (ABLATED, 0)]
    pictures = by_log(main) | {f"{log}-longer": runs for log, runs in by_log(longer).items()}
    for name, runs in (pictures | ({"ablations": [*whole, *ablated]} if ablated else {})).items():
        picture(runs, found, PICTURES / f"{name}.svg")
    put_between_marks(
        PAGE,
        {name: table(runs, found) for name, runs in {"main": main, "longer": longer, "ablations": ablated}.items()},
    )


def by_log(found: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The runs of each log."""
    return {log: [run for run in found if run["log"] == log] for log in dict.fromkeys(run["log"] for run in found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, help="folder with the logs")
    parser.add_argument("--runs", type=Path, default=Path("runs/locomotion"), help="folder of the runs")
    parser.add_argument("--only", default="", help="regular expression that the names of runs to train must match")
    parser.add_argument("--gather", action="store_true", help="train nothing")
    parser.add_argument("--list", action="store_true", help="show the plan and stop")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(planned.name for planned in PLAN))
        return
    if not arguments.gather:
        if arguments.data is None or not arguments.data.is_dir():
            parser.error("name the folder with the logs, or add --gather")
        for planned in PLAN:
            if re.search(arguments.only, planned.name):
                train(planned, arguments.data, arguments.runs)
    found = gather(arguments.runs)
    if not found:
        sys.exit(f"{arguments.runs}: no run of the plan is finished")
    found = with_published_clones(found)
    publish(found)
    print(table([run for run in found if run["variant"] not in CLONINGS], found))


if __name__ == "__main__":
    main()
