"""How imagined episodes end: from the word on the command line to a rule that was tried on the log."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from phyb.envs.tasks import TERMINATION_RULES, Task, TerminationRule
from phyb.errors import UsageError

WORDS = ("auto", "learned", "none", *TERMINATION_RULES)
"""What `--termination` takes beside package.module:function."""

_ROWS_AT_ONCE = 100_000


@dataclasses.dataclass(frozen=True)
class Ending:
    """How imagined episodes end, and the name under which the run records it."""

    name: str
    """"learned", "none", the name of a known rule, or package.module:function."""
    how: TerminationRule | Literal["learned", "none"]


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
    module, colon, function = word.partition(":")
    path = [*module.split("."), function]
    if word not in WORDS and not (colon and all(part.isidentifier() for part in path)):
        raise ValueError(
            f"termination: found {word!r:.60}, expected one of {', '.join(WORDS)}, or package.module:function"
        )


def resolve(word: str, task: Task | None) -> Ending:
    """What `--termination` means for a task.

    Args:
        word: "auto" (the task's rule where one is known, else learned), "learned", "none", the name of a known rule,
            or package.module:function. Such a function gets three arrays of rows, (n, obs), (n, act) and (n, obs),
            and returns n booleans; it is compiled, so it is written with operators or jax.numpy.
        task: what is known about the environment, if anything.

    Raises:
        UsageError: there is no such name, module or function.
    """
    try:
        check_word(word)
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    if word == "auto":
        rule = task.termination if task is not None else None
        if rule is None:
            return Ending("learned", "learned")
        known = (name for name, candidate in TERMINATION_RULES.items() if candidate is rule)
        return Ending(next(known, "rule"), rule)
    if word == "learned" or word == "none":
        return Ending(word, word)
    return Ending(word, TERMINATION_RULES.get(word) or on_rows(word, load_function(word, "--termination")))


def load_function(word: str, option: str) -> Any:
    """The function that package.module:function names; its module is imported.

    Raises:
        UsageError: the module cannot be imported or holds no such function.
    """
    module_name, _, function_name = word.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises while it is imported
        raise UsageError(
            f"{option} {word}: cannot import {module_name} ({type(error).__name__}: {error}). "
            "Install its package, or add its folder to PYTHONPATH."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        found = "no such name" if function is None else f"{type(function).__name__}, not a function"
        raise UsageError(f"{option} {word}: {module_name} has {found} under {function_name}.")
    return function


def on_rows(name: str, function: TerminationRule) -> TerminationRule:
    """Let a function of plain rows take any leading shape, as imagination asks: members, samples, rows.

    The rule raises UsageError where the function does not give one boolean per row.
    """

    def rule(observations: Any, actions: Any, next_observations: Any) -> Any:
        shape = next_observations.shape[:-1]
        columns = (jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in (observations, actions, next_observations))
        rows = [x.reshape(-1, x.shape[-1]) for x in columns]
        ends = jnp.asarray(function(*rows))
        if ends.dtype != bool or ends.shape != rows[0].shape[:1]:
            raise UsageError(
                f"--termination {name}: gave {ends.dtype} of shape {ends.shape}, "
                f"expected one boolean per row: bool of shape {rows[0].shape[:1]}."
            )
        return ends.reshape(shape)

    return rule


def compare(
    ending: Ending,
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
    if isinstance(ending.how, str):
        return Disagreement(0, 0)
    rule, rule_only, log_only = jax.jit(ending.how), 0, 0
    for first in range(0, len(terminated), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        columns = [jnp.asarray(x[rows], jnp.float32) for x in (observations, actions, next_observations)]
        try:
            ends = np.asarray(rule(*columns))
        except UsageError:
            raise
        except Exception as error:  # whatever the user's function raises
            raise UsageError(
                f"--termination {ending.name}: fails on logged rows of {observations.shape[1]} observations and "
                f"{actions.shape[1]} actions: {_first_line(error)} A rule takes arrays (rows, obs), (rows, act), "
                "(rows, obs) and is compiled: write it with operators or jax.numpy, without if."
            ) from error
        rule_only += int(np.sum(ends & ~terminated[rows]))
        log_only += int(np.sum(~ends & terminated[rows]))
    return Disagreement(rule_only, log_only)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or "no message"
    return f"{type(error).__name__}: {text.splitlines()[0].rstrip('.')}."
