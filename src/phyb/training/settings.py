"""All settings of a run in one tree, and the presets that fill it."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypeVar

from phyb.algorithms.phyb import PhyBConfig
from phyb.belief.backup import BeliefConfig
from phyb.dynamics.fit import PoolConfig

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
    checkpoint_every: int = 2000
    """Updates between checkpoints, from which --resume goes on. Lower loses less in a crash and writes more."""
    keep_checkpoints: int = 2
    """Checkpoints kept, newest last. Raise it to be able to go back further."""
    transitions: int = 100_000
    """Rows of the log that is collected for a built-in task; files are used whole."""
    discount: float | None = None
    """gamma; None takes what suits the task: 0.99, or 1 where the horizon is finite and time is observed. Lower cares
    less about the future and learns faster."""
    termination: Literal["auto", "learned", "none"] = "auto"
    """How imagined episodes end: auto takes the task's rule where one is known, else learned; none never ends them."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Every setting of a run."""

    pool: PoolConfig = dataclasses.field(default_factory=PoolConfig)
    agent: PhyBConfig = dataclasses.field(default_factory=PhyBConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)

    def to_json(self) -> dict[str, Any]:
        """A plain nested dictionary, for config.json."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Settings:
        """The settings that `to_json` wrote."""
        return _build(cls, content)


def preset(name: Preset) -> Settings:
    """The settings of a preset.

    "cpu" is sized for two cores and minutes. "paper" has every value of the paper's table of hyper-parameters and its
    formulas; "released" has the rules of the released research code at the same sizes. The last two need a large
    machine: about 100 models of 4 x 512 units, 195,000 steps each, and 2,000,000 updates.
    """
    if name == "cpu":
        return Settings()
    paper = Settings(
        pool=PoolConfig(
            pool_size=100,
            model_hidden=(512, 512, 512, 512),
            model_learning_rate=1e-4,
            model_weight_decay=7.5e-5,
            model_batch_size=512,
            model_steps=195_000,
            model_check_every=1950,
            model_patience=20,
            nll_beta=0.0,
        ),
        agent=PhyBConfig(
            belief=BeliefConfig(
                weight_rule="softmax", rank_by="value", noise_samples=10, wall_start=5.5, wall_end=10.5
            ),
            potential_mix=0.9,
            step_size_rule="fixed",
            step_size=0.1,
            actor_candidates=10,
            reference_candidates=10,
            logged_candidates=0,
            policy_hidden=(256, 256, 256),
            actor_learning_rate=3e-5,
            critic_learning_rate=3e-4,
            final_learning_rate=1.0,
            target_rate=5e-3,
            reference_rate=1e-5,
            real_batch_size=256,
            rollouts=256,
            clone_steps=0,
        ),
        training=TrainingConfig(
            steps=2_000_000,
            log_every=1000,
            evaluate_every=10_000,
            checkpoint_every=10_000,
            discount=0.99,
        ),
    )
    if name == "paper":
        return paper
    belief = dataclasses.replace(
        paper.agent.belief,
        weight_rule="scaled_softmax",
        rank_by="backup",
        uniform_mix=0.01,
        kth_min_probability=0.1,
        draw="distinct",
        noise="private",
        target_samples="first",
        successor="average",
    )
    agent = dataclasses.replace(
        paper.agent,
        belief=belief,
        potential_mix=1.0,
        step_size_rule="target",
        target_divergence=2.5,  # its target of 5 nats lies beyond what 20 candidates can show, ln 20 = 3.0
        step_size_scope="state",
    )
    return dataclasses.replace(paper, agent=agent, pool=dataclasses.replace(paper.pool, nll_beta=0.5))


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


def _build(kind: type[T], content: dict[str, Any]) -> T:
    """A dataclass from plain JSON: nested dataclasses are built, lists become tuples."""
    defaults = kind()
    values: dict[str, Any] = {}
    for name, value in content.items():
        current = getattr(defaults, name)
        if dataclasses.is_dataclass(current):
            values[name] = _build(type(current), value)
        else:
            values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)
