"""All systems of the paper on two locomotion logs: the runs behind docs/systems.md.

Each run is one `phyb train LOG --env ENV --algorithm NAME --seed 0` at the cpu preset, in a folder of its own, always
with --resume. Finished runs are not repeated.

    python benchmarks/systems.py DATA                 train what is missing, then gather
    python benchmarks/systems.py DATA --only mobile   train runs whose name matches
    python benchmarks/systems.py --gather             only gather what is finished

DATA is the folder with hopper-medium-replay.hdf5 and halfcheetah-medium-replay.hdf5.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from pages import put_between_marks

from phyb.algorithms.registry import ALGORITHMS, title_of
from phyb.envs.published import published_score
from phyb.envs.tasks import find_task, normalized_score
from phyb.storage.files import read_json, write_json

ROOT = Path(__file__).resolve().parent.parent
PAGE, DATA = ROOT / "docs" / "systems.md", ROOT / "results" / "systems-cpu.json"
LOGS = {"hopper-medium-replay": "Hopper-v5", "halfcheetah-medium-replay": "HalfCheetah-v5"}
KEPT = ("options", "steps", "episodes", "std_error", "cvar_10", "belief_return", "belief_is_lower_bound", "versions")


def name_of(log: str, algorithm: str) -> str:
    """Folder of a run."""
    return f"{log}-{algorithm}-seed0"


def train(log: str, algorithm: str, data: Path, runs: Path) -> None:
    """Train or resume one run with the command line; a failed one does not stop the others."""
    command = [
        sys.executable, "-m", "phyb.cli", "train", str(data / f"{log}.hdf5"), "--env", LOGS[log], "--seed", "0",
        "--algorithm", algorithm, "--out", str(runs / name_of(log, algorithm)), "--resume",
    ]  # fmt: skip
    print(f"\n{' '.join(command[2:])}", flush=True)
    code = subprocess.run(command, check=False).returncode
    if code:
        print(f"{name_of(log, algorithm)}: exit code {code}", flush=True)


def gather(runs: Path) -> list[dict[str, Any]]:
    """Results of finished runs, and of those published before whose runs are not here."""
    found = {(run["log"], run["algorithm"]): run for run in (json.loads(DATA.read_text()) if DATA.is_file() else [])}
    for log, env_id in LOGS.items():
        task = find_task(env_id)
        assert task is not None
        for algorithm in ALGORITHMS:
            path = runs / name_of(log, algorithm) / "result.json"
            if path.is_file():
                result = read_json(path)
                about = {"log": log, "algorithm": algorithm, "seed": 0, "score": result["normalized_score"]}
                about["behaviour"] = normalized_score(task, result["behaviour_return"])
                about["minutes"] = {name: round(took / 60, 1) for name, took in result["wall_seconds"].items()}
                found[log, algorithm] = about | {name: result[name] for name in KEPT if name in result}
    return [
        found[key] for key in sorted(found, key=lambda key: (list(LOGS).index(key[0]), list(ALGORITHMS).index(key[1])))
    ]


def table(found: list[dict[str, Any]]) -> str:
    """A row for each system: our score on each log, the paper's on D4RL's log of that name, and minutes."""
    runs = {(run["log"], run["algorithm"]): run for run in found}
    lines = [
        "| system | " + " | ".join(f"{log}, ours | D4RL's, paper" for log in LOGS) + " | minutes |",
        "|---|" + "---:|" * (2 * len(LOGS) + 1),
    ]
    for algorithm in ALGORITHMS:
        ours = [runs.get((log, algorithm)) for log in LOGS]
        if not any(ours):
            continue
        cells = []
        for log, run in zip(LOGS, ours, strict=True):
            paper = published_score(log, title_of(algorithm))
            cells += [f"{run['score']:.1f}" if run else "–", str(paper) if paper else "–"]
        minutes = [sum(run["minutes"].values()) - run["minutes"].get("pool", 0.0) for run in ours if run]
        lines.append(f"| {title_of(algorithm)} | {' | '.join(cells)} | {' / '.join(f'{m:.0f}' for m in minutes)} |")
    behaviour = {run["log"]: run["behaviour"] for run in found}
    cells = [cell for log in LOGS for cell in (f"{behaviour[log]:.1f}" if log in behaviour else "–", "–")]
    return "\n".join([*lines, f"| behaviour (the log) | {' | '.join(cells)} | – |"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, help="folder with the logs")
    parser.add_argument("--runs", type=Path, default=Path("runs/systems"), help="folder of the runs")
    parser.add_argument("--only", default="", help="regular expression that the names of runs to train must match")
    parser.add_argument("--gather", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    if not arguments.gather:
        if arguments.data is None or not arguments.data.is_dir():
            parser.error("name the folder with the logs, or add --gather")
        for log in LOGS:
            for algorithm in ALGORITHMS:
                if re.search(arguments.only, name_of(log, algorithm)):
                    train(log, algorithm, arguments.data, arguments.runs)
    found = gather(arguments.runs)
    if not found:
        sys.exit(f"{arguments.runs}: no run is finished")
    write_json(DATA, found)
    put_between_marks(PAGE, {"systems": table(found)})
    print(table(found))


if __name__ == "__main__":
    main()
