"""All settings of a run in one tree, and the presets that fill it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from phyb.algorithms.registry import find, load
from phyb.dynamics.fit import PoolConfig
from phyb.envs import rewards, termination
from phyb.envs.tasks import task_of
from phyb.errors import DataError, UsageError

if TYPE_CHECKING:
    from phyb.algorithms.base import Algorithm, Changes

Preset = Literal["cpu", "paper", "released"]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Length of a run, and what is recorded on the way."""

    steps: int = 16_000
    """Updates of the policy. More comes closer to what the belief allows."""
    log_every: int = 250
    """Updates in one compiled chunk, after which metrics are written. Lower shows more and costs a little time."""
    evaluate_every: int = 1000
    """Updates between evaluations of the policy, in the simulator if there is one and under the belief."""
    evaluation_episodes: int = 2000
    """Episodes of such an evaluation. More gives smoother learning curves. Ordinary simulators run at most 20."""
    final_episodes: int = 20_000
    """Episodes of the last evaluation, the one that is reported. Ordinary simulators run at most 100."""
    fit_steps: int | None = None
    """Steps of the fitted Q evaluation that ranks models for the return under the belief; None takes as many as values
    need to travel back through an episode. More is more exact and slower."""
    checkpoint_every: int = 2000
    """Updates between checkpoints, from which --resume goes on. Lower loses less in a crash and writes more."""
    keep_checkpoints: int = 2
    """Newest checkpoints kept. Raise it to be able to go back further."""
    keep_best: int = 1
    """Checkpoints kept beside them for their return under the belief. The run reports its last policy all the same."""
    pool_checkpoint_seconds: float = 30.0
    """Seconds between saved states of a pool in training. Lower loses less in a crash and writes more; 0 saves after
    every look at the hold-out rows."""
    transitions: int = 100_000
    """Rows of the log that is collected for a built-in task; files are used whole."""
    accept_poor_pool: bool = False
    """Train a policy even on models that are no better than a guess that nothing changes. Without it such a run stops
    before the policy."""
    discount: float | None = None
    """gamma; None takes what suits the task: 0.99, or 1 where the horizon is finite and time is observed. Lower cares
    less about the future and learns faster."""
    termination: str = "auto"
    """How imagined episodes end: auto takes the task's rule where one is known, else learned; none never ends them;
    hopper, halfcheetah, walker2d, ant, pendulum, liquidation are known rules; or package.module:function, which takes
    rows of observations, actions and next observations and gives booleans."""
    prediction_memory: float = 2.0
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
        return _build(cls, empty | content if isinstance(content, dict) else content, types=kinds)


def preset(name: Preset = "cpu", algorithm: str | type[Algorithm[Any, Any]] = "phyb", dataset: str = "") -> Settings:
    """The settings of a preset.

    Args:
        name: "cpu" is sized for two cores and minutes, "paper" has the published values and sizes, and "released",
            where there is one, the rules of the released research code.
        algorithm: a name in the registry, package.module:Class, or the class itself.
        dataset: name or path of the log, the id of its environment, or both: presets differ by task, and where the
            log is one of D4RL's, "paper" takes what was published for it.

    Raises:
        UsageError: the algorithm is not known, or has no such preset.
    """
    learner = find(algorithm) if isinstance(algorithm, str) else algorithm
    if name not in learner.presets:
        raise UsageError(f"--preset {name}: {learner.name} has only the presets {', '.join(learner.presets)}.")
    settings = Settings(PoolConfig() if learner.needs_pool else None, learner.config_class())
    for_tasks, task = learner.tasks.get(name, {}), task_of(dataset)
    settings = changed(settings, learner.presets[name])
    for word in () if task is None else (task.kind, task.name):
        settings = changed(settings, for_tasks.get(word, {}))
    if name == "paper":
        settings = changed(settings, {"agent": learner.datasets.get(known_dataset(dataset), {})})
    return settings


def changed(config: T, changes: Changes) -> T:
    """A copy of a dataclass with some of its fields changed; a mapping for a nested dataclass changes that one."""
    values = {
        name: changed(getattr(config, name), value) if dataclasses.is_dataclass(getattr(config, name)) else value
        for name, value in changes.items()
    }
    return dataclasses.replace(cast(Any, config), **values)


def known_dataset(text: str) -> str:
    """The short name, such as "hopper-medium-replay", of the D4RL dataset that a path or an id speaks of, or ""."""
    plain = text.lower().replace("_", "-").replace("/", "-")
    body = next((body for body in ("halfcheetah", "hopper", "walker2d") if body in plain), "")
    kinds = ("medium-expert", "medium-replay", "full-replay", "medium", "expert", "random")
    kind = next((kind for kind in kinds if kind in plain), "")
    return f"{body}-{kind}" if body and kind else ""


_AT_LEAST_ONE = (
    "pool_size", "model_steps", "model_check_every", "model_batch_size", "model_patience", "members_at_once",
    "policy_hidden", "model_hidden", "batch_size", "real_batch_size", "rollouts", "rollout_length", "steps",
    "log_every", "evaluate_every", "evaluation_episodes", "final_episodes", "checkpoint_every", "keep_checkpoints",
    "transitions", "fit_steps", "policy_candidates", "policy_directions", "episode_starts", "episode_steps",
    "vae_latent", "vae_hidden", "critic_levels", "actor_levels", "level_cosines", "actor_every",
    "rollout_starts", "rollout_every", "rollout_rounds", "elites", "outcomes",
    "adversary_batch_size", "adversary_every",
)  # fmt: skip
_NOT_NEGATIVE = (
    "keep_best", "pool_checkpoint_seconds", "clone_steps", "return_steps", "evaluation_steps", "logged_candidates",
    "logged_noise", "model_weight_decay", "prediction_memory", "log_std_bound_weight", "nll_beta", "uniform_mix",
    "kth_min_probability", "wall_start", "prior_strength", "actor_decay", "action_noise", "disagreement_penalty",
    "reach", "latent_bound", "vae_divergence_weight", "vae_steps",
    "real_fraction", "uncertainty_weight", "adversary_weight",
)  # fmt: skip
_ABOVE_ZERO = (
    "model_learning_rate", "model_gradient_clip", "actor_learning_rate", "critic_learning_rate",
    "final_learning_rate", "final_divergence", "step_size", "clone_spread", "target_divergence", "target_rate",
    "reference_rate", "policy_spread",
    "temperature_learning_rate", "vae_learning_rate", "huber_width", "discount",
    "initial_temperature", "adversary_learning_rate",
)  # fmt: skip
_AT_MOST_ONE = (
    "final_learning_rate", "final_divergence", "target_rate", "reference_rate", "real_fraction", "uniform_mix",
    "kth_min_probability", "discount", "nll_beta", "actor_decay",
)  # fmt: skip


def check_settings(settings: Settings) -> None:
    """Refuse settings that no run could use, all of them at once and before anything is trained.

    Raises:
        UsageError: names every setting, what was found, and what it may be.
    """
    flat = _flatten(settings.to_json())
    rules: tuple[tuple[tuple[str, ...], str, Callable[[Any], bool]], ...] = (
        (_AT_LEAST_ONE, "1 or more", lambda x: x >= 1),
        (_NOT_NEGATIVE, "0 or more", lambda x: x >= 0),
        (_ABOVE_ZERO, "above 0", lambda x: x > 0),
        (_AT_MOST_ONE, "1 or less", lambda x: x <= 1),
    )
    found = [
        f"{name}: {flat[name]}, must be {words}"
        for names, words, holds in rules
        for name in names
        if not _all(flat.get(name), holds)
    ]
    if settings.pool is not None and not 0.0 < settings.pool.holdout_fraction < 1.0:
        found.append(f"holdout_fraction: {settings.pool.holdout_fraction}, must lie between 0 and 1, both excluded")
    if flat.get("draw") == "distinct" and flat["ensemble_size"] > flat["pool_size"]:
        found.append(
            f"ensemble_size: {flat['ensemble_size']}, but the pool has only {flat['pool_size']} models to draw without "
            "repetition; raise pool_size or let draw repeat them"
        )
    if found:
        raise UsageError("These settings cannot be used:\n  " + "\n  ".join(found))


def _all(value: Any, holds: Callable[[Any], bool]) -> bool:
    """Whether a number, or each of several, passes; None stands for a choice made later. NaN never passes."""
    return value is None or all(holds(number) for number in (value if isinstance(value, tuple | list) else [value]))


def _flatten(content: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat |= _flatten(value) if isinstance(value, dict) else {name: value}
    return flat


def difference(ours: dict[str, Any], theirs: dict[str, Any], prefix: str = "") -> list[str]:
    """The settings in which two nested dictionaries differ, one line each."""
    lines = []
    for name in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(name), theirs.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += difference(a, b, f"{prefix}{name}.")
        elif (list(a) if isinstance(a, tuple) else a) != (list(b) if isinstance(b, tuple) else b):
            lines.append(f"{prefix}{name}: {a} here, {b} in the run")
    return lines


def _build(kind: type[T], content: Any, place: str = "", types: dict[str, Any] | None = None) -> T:
    """A dataclass from plain JSON: nested dataclasses are built, lists become tuples, every value is checked.

    `types` are those of fields whose kind depends on the algorithm.
    """
    if not isinstance(content, dict):
        raise DataError(f"{place or 'settings'}: found {content!r:.60}, expected a group of settings.")
    types = get_type_hints(kind) | (types or {})
    values: dict[str, Any] = {}
    for name, value in content.items():
        where = f"{place}.{name}" if place else f"{name}"
        if name not in types:
            raise DataError(f"{where:.80}: there is no such setting in this version of phyb; remove it.")
        if dataclasses.is_dataclass(types[name]):
            values[name] = _build(types[name], value, where)
            continue
        values[name] = tuple(value) if isinstance(value, list) else value
        if not _fits(values[name], types[name]):
            raise DataError(f"{where}: found {value!r:.60}, expected {_spoken(types[name])}.")
    try:
        return kind(**values)
    except ValueError as error:  # values that each are fine but not together
        raise DataError(f"{place or 'settings'}: {error}.") from error


def _fits(value: Any, hint: Any) -> bool:
    options = get_args(hint)
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in options
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_fits(item, options[0]) for item in value)
    if options:
        return any(_fits(value, option) for option in options)
    if hint is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max  # false for NaN
    return type(value) is hint and (hint is not int or abs(value) < 2**63)


def _spoken(hint: Any) -> str:
    options = get_args(hint)
    if get_origin(hint) is Literal:
        return f"one of {', '.join(options)}"
    if get_origin(hint) is tuple:
        return f"a list, each entry {_spoken(options[0])}"
    if options:
        return " or ".join(map(_spoken, options))
    return {int: "a whole number", float: "a finite number", str: "a text", bool: "true or false"}.get(hint, "null")
