"""All settings of a run in one tree, and the presets that fill it."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from phyb import fields
from phyb.algorithms.registry import find, load
from phyb.dynamics.fit import PoolConfig
from phyb.envs import rewards, termination
from phyb.envs.tasks import Task, choose_task
from phyb.errors import UsageError
from phyb.fields import Count, NonNegative, Share, Whole, only_if

if TYPE_CHECKING:
    from phyb.algorithms.base import Algorithm

Preset = Literal["cpu", "paper", "released"]
BODIES = ("halfcheetah", "hopper", "walker2d")
KINDS = ("random", "medium", "expert", "medium-replay", "medium-expert", "full-replay")
DATASETS = tuple(f"{body}-{kind}" for body in BODIES for kind in KINDS)
"""The data sets of D4RL for which settings are published."""


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Length of a run, and what is recorded on the way."""

    steps: Count = 16_000
    """Updates of the policy. More comes closer to what the belief allows."""
    log_every: Count = 250
    """Updates in one compiled chunk, after which metrics are written. Lower shows more and costs a little time."""
    evaluate_every: Count = 1000
    """Updates between evaluations of the policy, in the simulator if there is one and under the belief."""
    evaluation_episodes: Count = 2000
    """Episodes of such an evaluation. More gives smoother learning curves. Ordinary simulators run at most 20."""
    final_episodes: Count = 20_000
    """Episodes of the last evaluation, the one that is reported. Ordinary simulators run at most 100."""
    fit_steps: Annotated[Count | None, only_if("pool_size")] = None
    """Steps of the fitted Q evaluation that ranks models for the return under the belief; None takes as many as values
    need to travel back through an episode. More is more exact and slower."""
    checkpoint_every: Count = 2000
    """Updates between checkpoints, from which --resume goes on. Lower loses less in a crash and writes more."""
    keep_checkpoints: Count = 2
    """Newest checkpoints kept. Raise it to be able to go back further."""
    keep_best: Whole = 1
    """Checkpoints kept beside them for their return under the belief. The run reports its last policy all the same."""
    pool_checkpoint_seconds: Annotated[NonNegative, only_if("pool_size")] = 30.0
    """Seconds between saved states of a pool in training. Lower loses less in a crash and writes more; 0 saves after
    every check on the hold-out rows."""
    transitions: Count = 100_000
    """Rows of the log that is collected for a built-in task; files are used whole."""
    accept_poor_pool: Annotated[bool, only_if("pool_size")] = False
    """Train a policy even on models that are no better than a guess that nothing changes. Without it such a run stops
    before the policy."""
    discount: Share | None = None
    """gamma; None takes what suits the task: 0.99, or 1 where the horizon is finite and time is observed. Lower cares
    less about the future and learns faster."""
    termination: Annotated[str, only_if("pool_size")] = "auto"
    """How imagined episodes end: auto takes the task's rule where one is known, else learned; none never ends them;
    hopper, halfcheetah, walker2d, ant, pendulum, liquidation are known rules; or package.module:function, which takes
    rows of observations, actions and next observations and gives booleans."""
    prediction_memory: Annotated[NonNegative, only_if("real_target", "belief")] = 2.0
    """Most GiB for what the models predict on logged rows, computed once since the pool is frozen; used where
    `real_target` is belief. 0 asks the models anew in every update, which is slower."""
    reward: str = "learned"
    """What imagined steps earn: learned, or package.module:function, which takes the same rows and gives numbers. The
    rewards of the log are then computed anew by it. Less is left to learn, and nothing of it can be exploited."""

    def __post_init__(self) -> None:
        termination.check_word(self.termination)
        rewards.check_word(self.reward)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Every setting of a run."""

    pool: PoolConfig | None = dataclasses.field(default_factory=PoolConfig)
    """None for algorithms that learn no models."""
    agent: Any = dataclasses.field(default_factory=lambda: load("phyb").config_class())
    """Settings of the algorithm: an instance of its `config_class`."""
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)

    def to_json(self) -> dict[str, Any]:
        """A plain nested dictionary, for config.json."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Any, algorithm: str | type[Algorithm[Any, Any]] = "phyb") -> Settings:
        """The settings that `to_json` wrote, of an algorithm of the library or of the class given.

        Raises:
            DataError: the content is of another kind; the message names the setting.
        """
        learner = load(algorithm) if isinstance(algorithm, str) else algorithm
        kinds = {"pool": PoolConfig if learner.needs_pool else type(None), "agent": learner.config_class}
        empty = {"pool": {} if learner.needs_pool else None, "agent": {}}
        return fields.build(cls, empty | content if isinstance(content, dict) else content, types=kinds)

    def with_changes(self, **changes: Any) -> Settings:
        """These settings with some changed, named as on the command line: `with_changes(subset_size=3, steps=100)`.

        Raises:
            UsageError: a setting is not known, cannot have its value, or has no effect beside the others.
        """
        found = fields.with_changes(self, changes)
        check_settings(found, self)
        return found


def preset(
    name: str = "cpu",
    algorithm: str | type[Algorithm[Any, Any]] = "phyb",
    task: Task | str | None = None,
    dataset: str = "",
) -> Settings:
    """The settings of a preset.

    Args:
        name: "cpu" is sized for two cores and minutes, "paper" has the published values and sizes, and "released",
            where there is one, the rules of the released research code.
        algorithm: a name in the registry, package.module:Class, or the class itself.
        task: a task, its name or the id of its environment: presets differ by task. None takes the general ones, or
            those of the task of `dataset`.
        dataset: a data set of D4RL such as "hopper-medium-replay", for which "paper" takes what was published.

    Raises:
        UsageError: the algorithm, task or data set is not known, or the algorithm has no such preset.
    """
    learner = find(algorithm) if isinstance(algorithm, str) else algorithm
    if name not in learner.presets:
        raise UsageError(f"--preset {name}: {learner.name} has only the presets {', '.join(learner.presets)}.")
    dataset = re.sub(r"-v\d+$", "", dataset)
    if dataset and dataset not in DATASETS:
        raise UsageError(f"--dataset {dataset}: is not known. Known are {', '.join(DATASETS)}.")
    word = task or dataset.partition("-")[0]
    found = word if isinstance(word, Task) else choose_task(None, None, word or None).task
    settings = Settings(PoolConfig() if learner.needs_pool else None, learner.config_class())
    settings = fields.changed(settings, learner.presets[name])
    for kind in () if found is None else (found.kind, found.body):
        settings = fields.changed(settings, learner.tasks.get(name, {}).get(kind, {}))
    published = learner.datasets.get(dataset, {}) if name == "paper" else {}
    return fields.with_changes(settings, published)


def dataset_of(task: Task | None, recorded: str | None) -> str:
    """The data set of D4RL that a log says it is, or "".

    Args:
        task: the task of the log.
        recorded: what the log records: a kind such as "medium-replay", or the id of a Minari data set.
    """
    kind = re.sub(r"-v\d+$", "", (recorded or "").rpartition("/")[2])
    name = "" if task is None else f"{task.body}-{kind}"
    return name if name in DATASETS else ""


def check_settings(settings: Settings, base: Settings | None = None) -> None:
    """Refuse settings that no run could use, all of them at once and before anything is trained.

    Args:
        settings: those of a run.
        base: the settings they were made from; what differs from them must have an effect. None skips this check.

    Raises:
        UsageError: names every setting, what was found, and what it may be.
    """
    found, flat = fields.check(settings, base), fields.flat(settings)
    usual = flat if base is None else fields.flat(base)
    for name in getattr(settings.agent, "without_effect", ()):
        if flat[name] != usual[name]:
            found.append(f"{name}: {flat[name]}, has no effect here: the algorithm makes no use of it")
    if flat.get("draw") == "distinct" and flat["ensemble_size"] > flat["pool_size"]:
        found.append(
            f"ensemble_size: {flat['ensemble_size']}, but the pool has only {flat['pool_size']} models to draw without "
            "repetition; raise pool_size or let draw repeat them"
        )
    fields.refuse(found)
