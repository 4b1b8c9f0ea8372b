"""How imagined episodes end: from the word on the command line to a rule that was tried on the log."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from phyb.envs.functions import load_function, on_log, on_rows
from phyb.envs.tasks import TERMINATION_RULES, Task, TerminationRule
from phyb.registry import is_home

WORDS = ("auto", "learned", "none", *TERMINATION_RULES)
"""What `--termination` takes beside package.module:function."""
_OPTION = "--termination"


@dataclasses.dataclass(frozen=True)
class Termination:
    """How imagined episodes end, and the name under which the run records it."""

    name: str
    """"learned", "none", the name of a known rule, or package.module:function."""
    rule: TerminationRule | Literal["learned", "none"]


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """Rows on which a rule and the flags of a log differ."""

    rule_only: int
    """Rows that the rule ends and the log does not."""
    log_only: int
    """Rows that the log marks as terminated and the rule does not."""

    def __bool__(self) -> bool:
        return self.rule_only + self.log_only > 0


def check_word(word: str) -> None:
    """Refuse a `--termination` that is neither a known word nor looks like package.module:function.

    Raises:
        ValueError: with the words there are.
    """
    if word not in WORDS and not is_home(word):
        raise ValueError(
            f"termination: found {word!r:.60}, expected one of {', '.join(WORDS)}, or package.module:function"
        )


def resolve(word: str, task: Task | None) -> Termination:
    """What `--termination` means for a task.

    Args:
        word: "auto" (the task's rule where one is known, else learned), "learned", "none", the name of a known rule,
            or package.module:function. Such a function gets three arrays of rows, (n, obs), (n, act) and (n, obs),
            and returns n booleans; it is compiled, so it is written with operators or jax.numpy.
        task: what decides for "auto".

    Raises:
        UsageError: there is no such module or function.
    """
    if word == "auto":
        word = task.termination if task is not None and task.termination is not None else "learned"
    if word == "learned" or word == "none":
        return Termination(word, word)
    if word in TERMINATION_RULES:
        return Termination(word, TERMINATION_RULES[word])
    return Termination(word, on_rows(load_function(word, _OPTION), f"{_OPTION} {word}", bool))


def compare(
    termination: Termination,
    observations: Float[np.ndarray, "rows obs"],
    actions: Float[np.ndarray, "rows act"],
    next_observations: Float[np.ndarray, "rows obs"],
    terminated: Bool[np.ndarray, " rows"],
) -> Disagreement:
    """Try a rule on every logged row, compiled as training will use it, and count where it differs from the log.

    What is learned or never ends has nothing to try.

    Raises:
        UsageError: the rule fails on these rows, or does not give one boolean per row.
    """
    if isinstance(termination.rule, str):
        return Disagreement(0, 0)
    ends = on_log(termination.rule, f"{_OPTION} {termination.name}", observations, actions, next_observations)
    return Disagreement(int(np.sum(ends & ~terminated)), int(np.sum(~ends & terminated)))
