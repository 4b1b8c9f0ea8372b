"""What a log by itself says about better actions: the policy gradient of its own advantages, and steps along it.

    python benchmarks/log_gradient.py RUN...           the logs of finished runs, from their policies on

No model and no learned Q is asked. Advantages of the logged actions come from the log's rewards and a value fitted to
the returns of the other half of its episodes (generalised advantage estimation). A linear fit of advantages on what
logged actions differ from the policy's, times the observation, is the gradient; that of two halves of the log can be
compared, and the policy that goes along it can be tried in the simulator.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from pages import put_between_marks

from phyb.algorithms.problem import Problem, make_problem
from phyb.data.log import Log
from phyb.envs.tasks import find_task, normalized_score
from phyb.evaluation.reopen import find_log, finished_run
from phyb.evaluation.returns import episode_returns
from phyb.policy.cloning import fit_returns
from phyb.policy.critics import Critics, ValueNetwork
from phyb.policy.policy import load_policy
from phyb.storage.files import write_json

ROOT = Path(__file__).resolve().parent.parent
PAGE, DATA = ROOT / "docs" / "results.md", ROOT / "results" / "log-gradient.json"
DISCOUNT, TRACE, EPISODES = 0.99, 0.95, 20
STEPS = (0.0, 0.005, 0.01, 0.02, 0.04)
"""How far to go along the gradient: root of the mean square change of an action over the log."""


def fitted_value(problem: Problem, seen: Array) -> ValueNetwork:
    """A value fitted to the returns of these rows."""
    taken, sizes = problem.take(seen), (problem.observation_size, problem.action_size)
    critics, value = Critics(jax.random.key(0), *sizes, (8,)), ValueNetwork(jax.random.key(1), sizes[0], (128, 128))
    settings = {"steps": 6000, "learning_rate": 1e-3, "batch_size": 256, "standardizer": problem.standardizer}
    returns = problem.returns[seen]
    return jax.jit(
        lambda key: fit_returns(key, critics, value, taken.observations, taken.actions, returns, **settings)[1]
    )(jax.random.key(2))


def advantages(log: Log, problem: Problem) -> np.ndarray:
    """What each logged action earned more than the value of its state, by a value that did not see its episode."""
    rows, first_half = problem.rows, np.asarray(log.episode_of_row) % 2 == 0
    here, there = np.empty(len(log)), np.empty(len(log))
    for half in (first_half, ~first_half):
        value = fitted_value(problem, jnp.asarray(np.flatnonzero(~half)))
        here[half] = np.asarray(value(problem.standardizer(rows.observations)))[half]
        there[half] = np.asarray(value(problem.standardizer(rows.next_observations)))[half]
    surprise = np.asarray(rows.rewards) + DISCOUNT * (1.0 - np.asarray(rows.terminated)) * there - here
    found, later = np.empty(len(log)), 0.0
    for row in range(len(log) - 1, -1, -1):
        later = surprise[row] + (0.0 if log.episode_ends[row] else DISCOUNT * TRACE * later)
        found[row] = later
    return found - found.mean()


def measure(path: Path) -> dict[str, Any]:
    """The log of one finished run, from the policy of that run on."""
    run = finished_run(path, path.name)
    log, policy, task = find_log(run, None), load_policy(path), find_task(run.config["env_id"])
    assert task is not None, "a MuJoCo task with known reference scores"
    problem = make_problem(log, None, discount=DISCOUNT, horizon=run.config["resolved"]["horizon"])
    seen = np.asarray(problem.standardizer(problem.rows.observations))
    differ = np.asarray(problem.rows.actions) - np.asarray(policy.normalized(problem.rows.observations))
    with_one = np.concatenate([seen, np.ones((len(log), 1))], axis=1)
    inputs = (differ[:, :, None] * with_one[:, None]).reshape(len(log), -1)
    size, gain = inputs.std(axis=0), advantages(log, problem)

    def fit(rows: np.ndarray) -> np.ndarray:
        scaled = inputs[rows] / size
        ridge = 1e-3 * len(rows) * np.eye(scaled.shape[1])
        return np.linalg.solve(scaled.T @ scaled + ridge, scaled.T @ gain[rows])

    first = np.asarray(log.episode_of_row) % 4 < 2
    halves = [fit(np.flatnonzero(half)) for half in (first, ~first)]
    slope = (np.mean(halves, axis=0) / size).reshape(differ.shape[1], -1)
    direction = slope * differ.var(axis=0)[:, None]  # as far in each action as the log itself goes
    direction /= np.sqrt(np.mean((with_one @ direction.T) ** 2))

    def score(far: float) -> list[float]:
        def act(observations: np.ndarray) -> np.ndarray:
            rows = np.asarray(problem.standardizer(jnp.asarray(observations, jnp.float32)))
            moved = np.concatenate([rows, np.ones((len(rows), 1))], axis=1) @ direction.T
            return policy.act(observations) + far * moved * 0.5 * np.asarray(policy.action_high - policy.action_low)

        returns = episode_returns(act, run.config["env_id"], EPISODES, seed=1)
        return [float(normalized_score(task, value)) for value in returns]

    return {
        "run": path.name,
        "deviation": float(differ.std()),
        "agreement": float(np.corrcoef(halves)[0, 1]),
        "scores": {str(far): score(far) for far in STEPS},
    }


def publish(found: list[dict[str, Any]]) -> None:
    """Write the data and the table of docs/results.md."""
    write_json(DATA, found)
    heads = ["run", "logged actions differ by", "halves agree", *(f"{far:g}" for far in STEPS)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for run in found:
        scores = (f"{np.mean(run['scores'][str(far)]):.1f}" for far in STEPS)
        lines.append(f"| {run['run']} | {run['deviation']:.2f} | {run['agreement']:.2f} | " + " | ".join(scores) + " |")
    put_between_marks(PAGE, {"gradient": "\n".join(lines)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs, whose policies are the start")
    publish([measure(path) for path in parser.parse_args().runs])


if __name__ == "__main__":
    main()
