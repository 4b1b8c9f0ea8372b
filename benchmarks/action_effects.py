"""What a run can know about single actions, held against the simulator: models, critics and belief.

At states that the run's reference policy visits, several of its own actions are tried, and the reference goes on with
the same chance after each. What one action adds to another is then known from the simulator, and compared with what
the models say over 1, 5, ... 100 steps, and with what critics and belief say at once.

    python benchmarks/action_effects.py RUN...         measure finished runs, publish all known ones in docs/results.md

The policy, critics and value are those of the first checkpoint that a run kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import mujoco.rollout
import numpy as np
from pages import put_between_marks

from phyb.algorithms.phyb import PhyB, PhyBState
from phyb.algorithms.phyb_config import PhyBConfig
from phyb.algorithms.problem import Problem
from phyb.dynamics.cache import cache_folder
from phyb.envs.tasks import find_task, normalized_score
from phyb.evaluation.reopen import find_log, finished_run, kept_states, problem_of
from phyb.policy.actor import squash, unsquash
from phyb.storage.files import write_json
from phyb.training.progress import Stages

ROOT = Path(__file__).resolve().parent.parent
PAGE, DATA = ROOT / "docs" / "results.md", ROOT / "results" / "action-effects.json"
STATES, ACTIONS, PATHS = 48, 8, 8
MARKS = (1, 3, 5, 10, 20, 50, 100)
LOOKS = (1, 5, 20)
"""Steps that the belief looks ahead before it asks V."""
BURN_IN = 200
EPISODES = 10


class Simulator:
    """Many copies of one MuJoCo body.

    Bodies are whole states of the physics, one a row: Hopper and Walker2d clip velocities in what they show, so that an
    observation does not say all.
    """

    def __init__(self, env_id: str) -> None:
        self.env: Any = gym.make(env_id).unwrapped
        self.env.reset(seed=0)
        self.model, self.data = self.env.model, self.env.data

    def starts(self, count: int) -> np.ndarray:
        """Bodies at the start of episodes."""

        def body(seed: int) -> np.ndarray:
            self.env.reset(seed=seed)
            return np.concatenate([[0.0], self.data.qpos, self.data.qvel])

        return np.stack([body(seed) for seed in range(count)])

    def see(self, bodies: np.ndarray) -> np.ndarray:
        """What is observed of each body."""
        return np.stack([self._put(body)._get_obs() for body in bodies])

    def rebuild(self, observations: np.ndarray) -> np.ndarray:
        """Bodies as somebody would have them who takes what is observed for all there is."""
        return np.concatenate([np.zeros((len(observations), 2)), observations], axis=1)

    def step(self, bodies: np.ndarray, actions: np.ndarray, alive: np.ndarray) -> tuple[np.ndarray, ...]:
        """Successors, rewards and whether each still lives; the dead stay where they are."""
        rows, after, rewards, alive = np.flatnonzero(alive), bodies.copy(), np.zeros(len(bodies)), alive.copy()
        if not len(rows):
            return after, rewards, alive
        control = np.repeat(np.asarray(actions[rows], np.float64)[:, None], self.env.frame_skip, axis=1)
        after[rows] = mujoco.rollout.rollout(self.model, self.data, bodies[rows], control)[0][:, -1]
        for row in rows:
            env = self._put(after[row])
            speed = (after[row, 1] - bodies[row, 1]) / env.dt
            rewards[row] = env._get_rew(speed, actions[row])[0]
            alive[row] = getattr(env, "is_healthy", True)
        return after, rewards, alive

    def _put(self, body: np.ndarray) -> Any:
        self.data.qpos[:], self.data.qvel[:] = body[1 : 1 + self.model.nq], body[1 + self.model.nq :]
        return self.env


@dataclasses.dataclass(frozen=True)
class Trial:
    """States, the actions tried at each, and the policy that goes on."""

    problem: Problem
    state: PhyBState
    simulator: Simulator
    bodies: np.ndarray
    states: np.ndarray
    actions: np.ndarray

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """One row for each action: what is seen, and what is done."""
        return np.repeat(self.states, ACTIONS, axis=0), self.actions.reshape(STATES * ACTIONS, -1)


def reference_actions(problem: Problem, state: PhyBState, observations: Any, noise: Any) -> jax.Array:
    """What the reference does, given its noise."""
    gaussian = state.reference.average(problem.standardizer(jnp.asarray(observations, jnp.float32)))
    return squash(gaussian.mean + jnp.exp(gaussian.log_std) * jnp.asarray(noise, jnp.float32))


def prepare(problem: Problem, state: PhyBState, env_id: str, rng: np.random.Generator) -> Trial:
    """Walk with the reference to states it visits, and draw its actions there."""
    simulator, act = Simulator(env_id), jax.jit(lambda o, e: reference_actions(problem, state, o, e))
    bodies, alive = simulator.starts(STATES), np.ones(STATES, bool)
    leave, kept = rng.integers(20, BURN_IN, STATES), bodies.copy()
    for step in range(BURN_IN):
        alive = alive & (step <= leave)
        kept = np.where(alive[:, None], bodies, kept)
        noise = rng.standard_normal((STATES, problem.action_size))
        bodies, _, alive = simulator.step(bodies, np.asarray(act(simulator.see(bodies), noise)), alive)
    states = simulator.see(kept)
    each = np.repeat(states, ACTIONS, axis=0)
    actions = np.asarray(act(each, rng.standard_normal((len(each), problem.action_size))))
    return Trial(problem, state, simulator, kept, states, actions.reshape(STATES, ACTIONS, -1))


def chance(trial: Trial, rng: np.random.Generator) -> np.ndarray:
    """One path of noise for the reference after the action, the same for all actions at a state."""
    return np.repeat(rng.standard_normal((MARKS[-1], STATES, trial.problem.action_size)), ACTIONS, axis=1)


def simulate(trial: Trial, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Discounted rewards up to each mark, and the states there, in the simulator."""
    act = jax.jit(lambda o, e: reference_actions(trial.problem, trial.state, o, e))
    (states, actions), bodies = trial.rows, np.repeat(trial.bodies, ACTIONS, axis=0)
    alive, total, sums, places = np.ones(len(states), bool), np.zeros(len(states)), [], []
    for step in range(MARKS[-1]):
        taken = actions if step == 0 else np.asarray(act(states, noise[step]))
        bodies, rewards, alive = trial.simulator.step(bodies, taken, alive)
        states = trial.simulator.see(bodies)
        total = total + trial.problem.discount**step * rewards
        if step + 1 in MARKS:
            sums.append(total)
            places.append(states)
    return np.stack(sums), np.stack(places)


def imagine(trial: Trial, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same as each member of the pool has it, by its mean predictions."""
    problem, world = trial.problem, trial.problem.world
    assert world is not None
    states, actions = (jnp.asarray(part, jnp.float32) for part in trial.rows)

    def member(index: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carry: tuple[jax.Array, ...], inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
            observations, alive, total = carry
            number, epsilon = inputs
            taken = jnp.where(number == 0, actions, reference_actions(problem, trial.state, observations, epsilon))
            told = world.pool.predict(index[None], observations, world.env_action(taken))
            successor, reward = told.next_mean[0], told.reward_mean[0]
            total = total + problem.discount**number * alive * reward
            if callable(world.termination):
                ended = world.termination(observations, world.env_action(taken), successor)
                alive = alive * (1.0 - ended.astype(jnp.float32))
            return (successor, alive, total), (total, successor)

        first = (states, jnp.ones(len(states)), jnp.zeros(len(states)))
        steps = jnp.arange(MARKS[-1], dtype=jnp.float32)
        return jax.lax.scan(step, first, (steps, jnp.asarray(noise, jnp.float32)))[1]

    sums, places = jax.jit(lambda: jax.lax.map(member, jnp.arange(world.pool.size)))()
    at = np.asarray(MARKS) - 1
    return np.asarray(sums)[:, at], np.asarray(places)[:, at]


def added(values: Any) -> np.ndarray:
    """What each action adds to the mean of the actions at its state."""
    table = np.asarray(values, np.float64).reshape(STATES, ACTIONS)
    return (table - table.mean(axis=1, keepdims=True)).ravel()


def agreement(one: Any, other: Any) -> float:
    """Correlation of what actions add, within states."""
    x, y = added(one), added(other)
    return float(np.sum(x * y) / np.sqrt(np.sum(x**2) * np.sum(y**2)))


def effects(trial: Trial, rng: np.random.Generator) -> list[dict[str, float]]:
    """Along one path of noise: the models' error of states, what actions do to them, and the agreement on rewards."""
    noise = chance(trial, rng)
    (true, there), (told, imagined) = simulate(trial, noise), imagine(trial, noise)
    scale = np.asarray(trial.problem.rows.observations).std(axis=0)

    def typical(difference: np.ndarray) -> float:
        return float(np.sqrt(np.median(np.mean((difference / scale) ** 2, axis=-1))))

    found = []
    for number, steps in enumerate(MARKS):
        by_state = there[number].reshape(STATES, ACTIONS, -1)
        found.append(
            {
                "steps": steps,
                "state_error": typical(imagined[:, number] - there[number]),
                "state_spread": typical(by_state - by_state.mean(axis=1, keepdims=True)),
                "agreement": agreement(told[:, number].mean(axis=0), true[number]),
            }
        )
    return found


def judges(trial: Trial, agent: PhyBConfig, rng: np.random.Generator) -> dict[str, Any]:
    """How well critics and belief know what an action adds in 100 steps, averaged over paths of noise.

    A correlation with an average of few paths is too low; it is divided by the square root of the average's own
    reliability, found from its two halves.
    """
    halves = [np.mean([simulate(trial, chance(trial, rng))[0][-1] for _ in range(PATHS // 2)], axis=0) for _ in "ab"]
    between = max(agreement(*halves), 1e-6)
    reliability, truth = 2 * between / (1 + between), np.mean(halves, axis=0)
    problem, state = trial.problem, trial.state
    states, actions = jnp.asarray(trial.states, jnp.float32), jnp.asarray(trial.actions, jnp.float32)
    critics = state.slow_critics.judge(problem.standardizer(states), actions, agent.critic_vote)

    def belief(steps: int) -> np.ndarray:
        """What the belief says of every action when it looks so many steps ahead, averaged over its own chance."""
        looks = dataclasses.replace(agent, judge="belief", value_of="reference", lookahead=steps)
        foresee = jax.jit(PhyB(looks, 1)._foresee)
        keys = jax.random.split(jax.random.key(0), PATHS)
        return np.mean([foresee(key, state, problem, states, unsquash(actions)).worth for key in keys], axis=0)

    return {
        "true_mean": float(truth.mean()),
        "true_spread": float(added(truth).std() * np.sqrt(reliability)),
        "reliability": reliability,
        "critics": agreement(critics, truth) / np.sqrt(reliability),
        "critics_mean": float(jnp.mean(critics) * problem.reward_scale),
        "belief": {str(steps): agreement(belief(steps), truth) / np.sqrt(reliability) for steps in LOOKS},
    }


def hidden(trial: Trial) -> dict[str, float]:
    """Mean return of the deployed policy, and that in a world which holds no more than what is observed of it.

    Hopper shows no velocity beyond 10: the second world is the most that models of the log could know.
    """
    simulator, problem, state = trial.simulator, trial.problem, trial.state
    act = jax.jit(lambda o: reference_actions(problem, state, o, jnp.zeros((EPISODES, problem.action_size))))

    def earned(forget: bool) -> float:
        bodies, alive, total = simulator.starts(EPISODES), np.ones(EPISODES, bool), np.zeros(EPISODES)
        for _ in range(problem.horizon):
            seen = simulator.see(bodies)
            bodies = simulator.rebuild(seen) if forget else bodies
            bodies, rewards, alive = simulator.step(bodies, np.asarray(act(seen)), alive)
            total += rewards
        return float(total.mean())

    return {"whole": earned(False), "observed": earned(True)}


def measure(path: Path) -> dict[str, Any]:
    """All of it for one run."""
    stages, rng = Stages(), np.random.default_rng(0)
    run = finished_run(path, path.name)
    problem = problem_of(run, find_log(run, None), cache_folder(), stages)
    step, _, state = next(kept_states(run, problem))
    trial = prepare(problem, state, run.config["env_id"], rng)
    agent, task = run.settings.agent, find_task(run.config["env_id"])
    assert task is not None, "a MuJoCo task with known reference scores"
    return {
        "run": path.name,
        "step": step,
        "states": STATES,
        "actions": ACTIONS,
        "paths": PATHS,
        "effects": effects(trial, rng),
        "judges": judges(trial, agent, rng),
        "hidden": {name: normalized_score(task, value) for name, value in hidden(trial).items()},
    }


def publish(found: list[dict[str, Any]]) -> None:
    """Write the data and the two tables of docs/results.md."""
    write_json(DATA, found)
    lines = ["| run | | " + " | ".join(f"{steps} steps" for steps in MARKS) + " |", "|---|---|" + "---|" * len(MARKS)]
    rows = {
        "state_error": "the models' error",
        "state_spread": "what actions change",
        "agreement": "agreement on rewards",
    }
    for run in found:
        for key, words in rows.items():
            lines.append(f"| {run['run']} | {words} | " + " | ".join(f"{at[key]:.2f}" for at in run["effects"]) + " |")
    judged = [
        "| run | what actions add (std) | critics | " + " | ".join(f"belief, {n} ahead" for n in LOOKS) + " |",
        "|---|---|---|" + "---|" * len(LOOKS),
    ]
    shown = ["| run | score | score if only what is observed were true |", "|---|---|---|"]
    for run in found:
        told, score = run["judges"], run["hidden"]
        belief = " | ".join(f"{told['belief'][str(n)]:.2f}" for n in LOOKS)
        judged.append(f"| {run['run']} | {told['true_spread']:.1f} | {told['critics']:.2f} | {belief} |")
        shown.append(f"| {run['run']} | {score['whole']:.1f} | {score['observed']:.1f} |")
    tables = {"effects": lines, "judges": judged, "hidden": shown}
    put_between_marks(PAGE, {name: "\n".join(table) for name, table in tables.items()})


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
