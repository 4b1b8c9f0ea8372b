"""What imagined steps earn: what the pool learned, or a function that the user knows to be the reward."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from phyb.envs.functions import RowFunction, load_function, on_log, on_rows
from phyb.errors import UsageError
from phyb.registry import is_home

LEARNED = "learned"
_OPTION = "--reward"


def check_word(word: str) -> None:
    """Refuse a `--reward` that is neither "learned" nor looks like package.module:function.

    Raises:
        ValueError: with what there is.
    """
    if word != LEARNED and not is_home(word):
        raise ValueError(f"reward: found {word!r:.60}, expected {LEARNED}, or package.module:function")


def resolve(word: str) -> RowFunction | None:
    """The reward function that `--reward` names; None where rewards are learned.

    Raises:
        UsageError: there is no such module or function.
    """
    return None if word == LEARNED else on_rows(load_function(word, _OPTION), f"{_OPTION} {word}", float)


def on_logged_rows(
    function: RowFunction,
    word: str,
    observations: Float[np.ndarray, "rows obs"],
    actions: Float[np.ndarray, "rows act"],
    next_observations: Float[np.ndarray, "rows obs"],
) -> Float[np.ndarray, " rows"]:
    """What every logged row earns by the function.

    Raises:
        UsageError: the function fails, or gives a number that is not finite.
    """
    rewards = on_log(function, f"{_OPTION} {word}", observations, actions, next_observations)
    strange = np.flatnonzero(~np.isfinite(rewards))
    if len(strange):
        raise UsageError(
            f"{_OPTION} {word}: gave {rewards[strange[0]]} for row {strange[0]} of the log ({len(strange):,} rows in "
            "all), expected finite numbers."
        )
    return rewards.astype(np.float32)
