"""What a deployed policy earns in whole episodes of each model alone, with the models' noise and without, and in truth.

    python benchmarks/model_episodes.py RUN...         measure finished runs, publish all known ones in docs/results.md

Episodes begin at start states of the log. The truth is the score that the run found in the simulator.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pages import put_between_marks

from phyb.algorithms.problem import Problem
from phyb.belief.backup import BeliefConfig, imagine
from phyb.dynamics.cache import cache_folder
from phyb.envs.tasks import find_task, normalized_score
from phyb.evaluation.reopen import find_log, finished_run, problem_of
from phyb.policy.policy import Policy, load_policy
from phyb.storage.files import read_json, write_json
from phyb.training.progress import Stages

ROOT = Path(__file__).resolve().parent.parent
PAGE, DATA = ROOT / "docs" / "results.md", ROOT / "results" / "model-episodes.json"
EPISODES = 24


def member_returns(policy: Policy, problem: Problem, config: BeliefConfig) -> np.ndarray:
    """Mean return of whole episodes in each member, in the units of the log."""
    world = problem.world
    assert world is not None
    members, key = jnp.arange(world.pool.size), jax.random.key(0)
    starts = jax.random.choice(key, problem.starts, (EPISODES,))

    def step(carry: tuple[jax.Array, ...], key: jax.Array) -> tuple[tuple[jax.Array, ...], None]:
        here, alive, total = carry
        noise = jax.random.normal(key, (1, 1, EPISODES, problem.observation_size))
        then = imagine(world, config, members, here, policy.normalized(here), noise)
        total = total + alive * then.rewards
        alive = alive * then.alive[:, 0] * (then.trust[:, 0] > 0)
        return (jnp.where((alive > 0)[..., None], then.successors[:, 0], here), alive, total), None

    here = jnp.broadcast_to(starts, (len(members), *starts.shape))
    first = (here, jnp.ones(here.shape[:2]), jnp.zeros(here.shape[:2]))
    walk = jax.jit(lambda: jax.lax.scan(step, first, jax.random.split(key, problem.horizon))[0][2])
    return np.asarray(jnp.mean(walk(), axis=1) * problem.reward_scale)


def measure(path: Path) -> dict[str, Any]:
    """One finished run."""
    run = finished_run(path, path.name)
    problem = problem_of(run, find_log(run, None), cache_folder(), Stages())
    policy, task = load_policy(path), find_task(run.config["env_id"])
    assert task is not None, "a MuJoCo task with known reference scores"
    belief = run.settings.agent.belief

    def scores(noise: str) -> list[float]:
        found = member_returns(policy, problem, dataclasses.replace(belief, noise=noise))  # pyright: ignore[reportArgumentType]
        return [normalized_score(task, float(value)) for value in found]

    truth = read_json(run.folder.result)["normalized_score"]
    return {"run": path.name, "truth": truth, "means": scores("none"), "noise": scores("shared")}


def publish(found: list[dict[str, Any]]) -> None:
    """Write the data and the table of docs/results.md."""
    write_json(DATA, found)
    lines = ["| run | simulator | models, by their means | models, with their noise |", "|---|---|---|---|"]
    for run in found:
        told = (f"{np.mean(run[k]):.1f} ({min(run[k]):.1f} to {max(run[k]):.1f})" for k in ("means", "noise"))
        lines.append(f"| {run['run']} | {run['truth']:.1f} | " + " | ".join(told) + " |")
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
