"""What is known about each environment id: reference returns, how episodes end, horizon, exact optimum."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from phyb.envs import liquidation, locomotion, oracle
from phyb.errors import UsageError

TerminationRule = Callable[[Any, Any, Any], Any]
"""(observations, actions, next_observations) to a boolean array; works on NumPy and on JAX arrays."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What the library knows about one environment without asking its simulator."""

    env_id: str
    name: str
    """The short name used on the command line and in folder names."""
    horizon: int
    """Steps after which an episode always ends."""
    reference_low: float | None = None
    """Return that scores 0."""
    reference_high: float | None = None
    """Return that scores 100."""
    termination: str | None = None
    """Name of the rule that says where a step terminates its episode; None where none is known: it must be learned."""
    discount: float = 0.99
    """A discount that suits the task; 1 where the horizon is finite and time is observed."""
    optimum: Callable[[], float] | None = None
    """Computes the best expected return, where it is known."""

    @property
    def kind(self) -> str:
        """Tasks of a kind share presets: "locomotion" where a body is to walk or run, else the task's own name."""
        return "locomotion" if self.body in _BODIES else self.body

    @property
    def body(self) -> str:
        """The task's name without a version."""
        return self.name.removesuffix("-v4")

    @property
    def optimal_return(self) -> float | None:
        """The best expected undiscounted return, or None where nobody knows it; computed on first use."""
        return None if self.optimum is None else self.optimum()


def liquidation_termination(observations: Any, actions: Any, next_observations: Any) -> Any:
    """Liquidation ends when time is up (t' >= horizon - 1/2) or less than a sliver is left."""
    return liquidation.has_ended(next_observations)


TERMINATION_RULES: dict[str, TerminationRule] = {
    "hopper": locomotion.hopper_termination,
    "halfcheetah": locomotion.no_termination,
    "walker2d": locomotion.walker2d_termination,
    "ant": locomotion.ant_termination,
    "pendulum": locomotion.no_termination,
    "liquidation": liquidation_termination,
}
"""The known rules, by the names `--termination` takes."""


_BODIES = ("hopper", "halfcheetah", "walker2d", "ant")


def _mujoco(body: str, low: float, high: float) -> list[Task]:
    name = body.lower()
    return [
        Task(f"{body}-{version}", short, 1000, low, high, name)
        for version, short in (("v5", name), ("v4", f"{name}-v4"))
    ]


TASKS: tuple[Task, ...] = (
    Task(
        env_id=liquidation.ENV_ID,
        name="liquidation",
        horizon=liquidation.DEFAULT_SPEC.horizon,
        reference_low=0.0,
        reference_high=135.0,
        termination="liquidation",
        discount=1.0,
        optimum=lambda: oracle.solve().optimal_return,
    ),
    # D4RL's references: the returns of a random and of an expert policy on the v2 environments.
    *_mujoco("Hopper", -20.272305, 3234.3),
    *_mujoco("HalfCheetah", -280.178953, 12135.0),
    *_mujoco("Walker2d", 1.629008, 4592.3),
    *_mujoco("Ant", -325.6, 3879.7),
    Task("Pendulum-v1", "pendulum", 200, termination="pendulum"),
)


def find_task(env_id: str) -> Task | None:
    """The task with this environment id or short name, or None if the library knows nothing about it."""
    return next((task for task in TASKS if env_id in (task.env_id, task.name)), None)


class TaskChoice(NamedTuple):
    """The task that a run is about, and what said so."""

    task: Task | None
    source: str

    def __str__(self) -> str:
        if self.task is not None:
            return f"task {self.task.name}, by {self.source}"
        return f"task unknown, by {self.source}: general settings; --task NAME takes those of a task"


def choose_task(log_env_id: str | None, env: str | None = None, task: str | None = None) -> TaskChoice:
    """The task of a run: the one asked for by name or id, else that of the simulator, else that of the log itself.

    Raises:
        UsageError: the task asked for is not known.
    """
    if task is not None:
        found = find_task(task)
        if found is None:
            raise UsageError(f"--task {task}: is not known. Known are {', '.join(task.name for task in TASKS)}.")
        return TaskChoice(found, "--task")
    words = ((env, f"--env {env}"), (log_env_id, f"the log's env_id {log_env_id}"))
    return next(
        (TaskChoice(find_task(word), source) for word, source in words if word),
        TaskChoice(None, "a log without env_id"),
    )


def normalized_score(task: Task, mean_return: float) -> float | None:
    """D4RL's score, 100 (x - low) / (high - low); None for a task without reference returns."""
    if task.reference_low is None or task.reference_high is None:
        return None
    return 100.0 * (mean_return - task.reference_low) / (task.reference_high - task.reference_low)
