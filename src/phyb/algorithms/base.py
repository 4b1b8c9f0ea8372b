"""What all algorithms share: an identity made of their settings, and what they say about themselves."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, cast

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms import settings as presets_of
from phyb.algorithms.problem import Problem
from phyb.algorithms.settings import Settings
from phyb.data.dataset import Rows
from phyb.envs.tasks import Task
from phyb.errors import UsageError
from phyb.fields import Changes, Count, Fraction, Layers, Positive, Share
from phyb.networks import parameter_count
from phyb.policy.policy import Policy

if TYPE_CHECKING:
    from rich.console import Console

    from phyb.data.files import LogFiles
    from phyb.data.log import Log
    from phyb.training.run import Run

Config = TypeVar("Config")
State = TypeVar("State")
Metrics = dict[str, Array]
RewardUnits = Literal["raw", "range", "returns"]


class Algorithm(Generic[Config, State]):
    """An algorithm with its settings; `init`, `update` and `policy` are pure functions of what they are given.

    Equal algorithms share their compiled code: equality depends on the class, its own settings and the number of
    updates alone.

    Args:
        settings: settings of the algorithm itself, an instance of `config_class`; or all settings of a run. None takes
            a preset.
        preset: where settings that are not given come from.
        task: what the log is about: a task, its name or the id of its environment. None leaves it to the log.
        dataset: a data set of D4RL whose published settings the preset "paper" takes.
        changes: single settings, named as on the command line: `PhyB(subset_size=3, steps=50_000)`.

    Attributes:
        settings: every setting of a run.
        config: those of the algorithm, `settings.agent`.
        total_steps: updates of a run.
        preset: the name of the preset.

    Raises:
        UsageError: a setting is not known, cannot have its value, or has no effect beside the others.

    Class attributes say the rest: `name` on the command line and in folder names; `config_class`, the dataclass of
    its settings; `needs_pool`, whether a pool of models is trained first; `presets`, what each preset changes in the
    defaults of "pool", "agent" and "training"; `tasks`, what a preset changes further for a kind of task, such as
    "locomotion", or for one task by its short name, such as "hopper"; `datasets`, what the preset "paper" changes
    further for one dataset, such as "hopper-medium", by the names of settings.
    """

    name: ClassVar[str]
    config_class: ClassVar[type]
    needs_pool: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Changes]] = {"cpu": {}}
    tasks: ClassVar[Mapping[str, Mapping[str, Changes]]] = {}
    datasets: ClassVar[Mapping[str, Changes]] = {}

    def __init__(
        self,
        settings: Config | Settings | None = None,
        *,
        preset: str = "cpu",
        task: Task | str | None = None,
        dataset: str = "",
        **changes: Any,
    ) -> None:
        if isinstance(settings, Settings):
            base = settings
        else:
            base = presets_of.preset(preset, type(self), task, dataset)
            base = base if settings is None else dataclasses.replace(base, agent=settings)
        if not isinstance(base.agent, self.config_class) or (base.pool is None) is self.needs_pool:
            raise UsageError(f"These settings are not of {self.name}; take them from preset('cpu', {self.name!r}).")
        self._given = (settings, task, dataset, changes)
        self.preset = preset
        self.settings = base.with_changes(**changes)
        self.config: Config = self.settings.agent
        self.total_steps = self.settings.training.steps
        self.setup()

    def setup(self) -> None:
        """Build what follows from the settings alone, such as optimisers; called once."""

    def for_task(self, task: Task | str | None, dataset: str = "") -> Self:
        """The same algorithm, with the same changes, on the preset of a task and data set where it names none itself.

        An algorithm that was given all settings stays as it is.
        """
        settings, own_task, own_dataset, changes = self._given
        if isinstance(settings, Settings):
            return self
        task, dataset = own_task if own_task is not None else task, own_dataset or dataset
        return type(self)(settings, preset=self.preset, task=task, dataset=dataset, **changes)

    def fit(
        self,
        data: LogFiles | Log,
        *,
        env: str | None = None,
        task: str | None = None,
        dataset: str = "",
        seed: int = 0,
        out: str | os.PathLike[str] | None = None,
        resume: bool = False,
        callbacks: Sequence[Callable[[int, Mapping[str, Any]], Any]] = (),
        cache: str | os.PathLike[str] | None = None,
        rows_in: Literal["auto", "memory", "disk"] = "auto",
        logger: Literal["tensorboard", "wandb", "mlflow"] | Callable[[int, Mapping[str, Any]], Any] | None = None,
        console: Console | None = None,
    ) -> Run:
        """Train on a log and evaluate the policy; everything lands in one run folder.

        Args:
            data: the name of a built-in task ("liquidation"), the path of a log file or of a folder of them, a list of
                files that are one log, or a `Log`.
            env: Gymnasium id of a simulator to evaluate in; without it the policy is evaluated under the belief only.
            task: what the log is about, if neither its own env_id nor `env` says so. It decides the task's part of the
                preset, how episodes end, and the discount.
            dataset: a data set of D4RL whose published settings the preset "paper" takes; "" asks the log.
            seed: seeds the log of a built-in task, the pool, the policy and the evaluation.
            out: run folder; None names it `runs/TASK-ALGORITHM-seedS`.
            resume: go on with the run in that folder, or start it if there is none; a finished run is shown again.
            callbacks: called with (step, metrics); one that returns True ends training early, and the policy there is
                is evaluated and reported. See `phyb.training.loop.Callback`.
            cache: folder of trained pools; None takes $PHYB_CACHE or the user's cache folder.
            rows_in: "memory"; "disk" for a log that does not fit into it, in files below the cache and the run folder;
                or "auto", which takes the disk only if the memory free is less than the run needs. The result is the
                same.
            logger: "wandb" or "mlflow" (phyb[wandb], phyb[mlflow]) hears all metrics; "tensorboard" only makes sure
                that its package is there: events are written whenever it is. A function is one more callback.
            console: where progress is shown; None shows it on the terminal.

        Raises:
            MissingExtraError: the package of the logger is not installed.
            UsageError: the folder exists and `resume` is off, or it holds a run with other settings.
            DataError: the log cannot be used.
            PoorPoolError: the models learned nothing, and `accept_poor_pool` is off.
            DivergenceError: training produced numbers that are not finite.
            BusyError: another process works on the folder.
            StorageError: something cannot be written; what was saved before stays.
            MemoryShortError: the run needs far more memory than is free.
            CallbackError: a callback failed; everything so far is saved.
            InterruptedRunError: Ctrl-C or SIGTERM; everything so far is saved.
        """
        from phyb.pipeline import fit

        return fit(
            self,
            data,
            env=env,
            task=task,
            dataset=dataset,
            seed=seed,
            out=out,
            resume=resume,
            callbacks=callbacks,
            cache=cache,
            rows_in=rows_in,
            logger=logger,
            console=console,
        )

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (self.config, self.total_steps) == (other.config, other.total_steps)

    def __hash__(self) -> int:
        return hash((type(self), self.config, self.total_steps))  # equal algorithms share their compiled code

    @property
    def asks_about_log(self) -> bool:
        """Whether updates ask the pool about logged rows, so that its answers are worth remembering."""
        return False

    def memory(self, observation_size: int, action_size: int) -> int:
        """Bytes of the algorithm's own networks and of one update, beside log and pool; within a factor of about two.

        If not said otherwise, what actor and critics need of a batch.
        """
        config = self.config if isinstance(self.config, AlgorithmConfig) else AlgorithmConfig()
        numbers = 3 * config.batch_size * sum(config.policy_hidden)
        return update_bytes(observation_size, action_size, config.policy_hidden, numbers)

    def init(self, key: PRNGKeyArray, problem: Problem) -> State:
        """The state before the first update."""
        raise NotImplementedError

    def update(self, state: State, problem: Problem) -> tuple[State, Metrics]:
        """One update and its metrics; compiled, so that it may not look at numbers to decide what to do."""
        raise NotImplementedError

    def before_evaluation(self, state: State, problem: Problem) -> State:
        """The state to go on with, asked before every evaluation; if not said otherwise, the state as it is."""
        return state

    def policy(self, state: State, problem: Problem) -> Policy:
        """The policy to evaluate and deploy; if not said otherwise, the mean action of `state.actor`."""
        actor = cast(Any, state).actor
        return Policy(actor, problem.standardizer, problem.action_low, problem.action_high)


@dataclasses.dataclass(frozen=True)
class AlgorithmConfig:
    """Settings that most algorithms have. Subclasses add their own, and change these defaults where they differ."""

    actor: str = "tanh-gaussian"
    """Kind of the policy's network: tanh-gaussian, a name that was registered, or package.module:Class; see
    docs/extending.md."""
    policy_hidden: Layers = (256, 256)
    """Units per hidden layer of actor, critics and value. Wider fits finer detail and costs time."""
    batch_size: Count = 256
    """Rows per update. Larger is smoother and slower."""
    actor_learning_rate: Positive = 3e-4
    """Step of the actor's optimiser. Lower is steadier and slower."""
    actor_decay: Fraction = 1.0
    """Share of its learning rate that the actor has left at the end of the run, after half a cosine. 1 keeps it
    constant, 0 lets the policy come to rest."""

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Settings of a run that this algorithm makes no use of."""
        return ()


@dataclasses.dataclass(frozen=True)
class CriticConfig(AlgorithmConfig):
    """Settings of algorithms that learn values."""

    critic_learning_rate: Positive = 3e-4
    """Step of the critics' optimiser. Lower is steadier, higher tracks a changing policy."""
    target_rate: Share = 5e-3
    """Share by which the target critics follow per update. Lower is steadier and slower."""
    reward_units: RewardUnits = "raw"
    """raw: rewards as they are, which most papers take; range: divided by their range, so that other settings mean the
    same whatever the log's units; returns: times 1000 / the range of the returns of episodes. In larger units entropy,
    penalties and imitation count less beside values."""


PAPER_TRAINING: Changes = {"log_every": 1000, "evaluate_every": 5000, "checkpoint_every": 10_000, "discount": 0.99}
"""How the preset "paper" records its long runs, and the discount that all these papers take."""


def locomotion_tasks(
    config: type, presets: Mapping[str, Changes], steps: int, pool: Changes | None = None, **changes: Any
) -> Mapping[str, Mapping[str, Changes]]:
    """The `tasks` of an algorithm whose "cpu" takes its published settings for locomotion, for so many updates.

    `changes` are settings in which it differs from them all the same.
    """
    published = config()
    agent = {name: getattr(published, name) for name in presets["cpu"]["agent"]} | changes
    training = {"steps": steps, "log_every": 500, "evaluate_every": 5000, "checkpoint_every": 5000}
    return {"cpu": {"locomotion": {"agent": agent, "training": training} | ({"pool": pool} if pool else {})}}


def reward_factor(problem: Problem, units: str) -> Float[Array, ""]:
    """What the problem's rewards, which are divided by their range, are multiplied by to be in these units."""
    return {"raw": problem.reward_scale, "returns": 1000.0 / problem.return_range}.get(units, jnp.ones(()))


def logged_rows(key: PRNGKeyArray, problem: Problem, config: CriticConfig) -> Rows:
    """A batch of logged rows as critics take them: observations standardised, rewards in the units asked for."""
    return critic_rows(problem, problem.sample(key, config.batch_size), config)


def critic_rows(problem: Problem, rows: Rows, config: CriticConfig) -> Rows:
    """Rows in the units of the problem as critics take them."""
    rows = standardized(problem, rows)
    return rows._replace(rewards=rows.rewards * reward_factor(problem, config.reward_units))


def standardized(problem: Problem, rows: Rows) -> Rows:
    """Rows whose observations are standardised, as all networks of this library take them."""
    return rows._replace(
        observations=problem.standardizer(rows.observations),
        next_observations=problem.standardizer(rows.next_observations),
    )


def update_bytes(observation_size: int, action_size: int, hidden: tuple[int, ...], numbers: int) -> int:
    """Bytes of the networks with their copies and moments, and of the numbers that one update holds at a time."""
    return 4 * (30 * parameter_count((observation_size, *hidden, 2 * action_size)) + numbers)


def decaying(rate: float, share: float, steps: int) -> optax.GradientTransformation:
    """Adam whose learning rate falls along half a cosine to a share of itself over the run; a share of 1 is plain."""
    return optax.adam(rate if share == 1.0 else optax.cosine_decay_schedule(rate, max(steps, 1), share))
