"""Returns of a deployed policy in whole episodes of each model, with and without model noise, and in the simulator.

    python benchmarks/model_episodes.py RUN...         measure finished runs, publish all known ones in docs/results.md

Episodes begin at start states of the log. `truth` is the score of the run in the simulator.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from pages import put_between_marks

from phyb.algorithms.rollback import member_returns
from phyb.envs.tasks import find_task, normalized_score
from phyb.policy.actor import Actor
from phyb.storage.files import write_json
from phyb.training.run import open_run

ROOT = Path(__file__).resolve().parent.parent
PAGE, DATA = ROOT / "docs" / "results.md", ROOT / "results" / "model-episodes.json"
EPISODES = 24


def measure(path: Path) -> dict[str, Any]:
    """One finished run."""
    run = open_run(path)
    problem, policy, task = run.problem, run.policy, find_task(run.config["env_id"])
    assert task is not None, "a MuJoCo task with known reference scores"
    assert isinstance(policy.actor, Actor), "a run of PhyB"
    belief, key = run.settings.agent.belief, jax.random.key(0)
    starts = jax.random.choice(key, problem.starts, (EPISODES,))

    def scores(noise: str) -> list[Any]:
        config = dataclasses.replace(belief, noise=noise)  # pyright: ignore[reportArgumentType]
        whole = jax.jit(lambda actor=policy.actor: member_returns(key, actor, problem, config, starts))()
        return [normalized_score(task, float(value * problem.reward_scale)) for value in whole]

    truth = run.result["normalized_score"]
    return {"run": path.name, "truth": truth, "means": scores("none"), "noise": scores("shared")}


def publish(found: list[dict[str, Any]]) -> None:
    """Write the data and the table of docs/results.md."""
    write_json(DATA, found)
    lines = ["| run | simulator | models, by their means | models, with their noise |", "|---|---|---|---|"]
    for run in found:
        cells = (f"{np.mean(run[k]):.1f} ({min(run[k]):.1f} to {max(run[k]):.1f})" for k in ("means", "noise"))
        lines.append(f"| {run['run']} | {run['truth']:.1f} | " + " | ".join(cells) + " |")
    put_between_marks(PAGE, {"episodes": "\n".join(lines)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs of phyb on MuJoCo logs")
    known = json.loads(DATA.read_text()) if DATA.is_file() else []
    found = {run["run"]: run for run in known}
    for path in parser.parse_args().runs:
        found[path.name] = measure(path)
        publish(list(found.values()))


if __name__ == "__main__":
    main()
