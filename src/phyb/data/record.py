"""A log of what a policy does in a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import ArrayLike

from phyb.data._assemble import to_float32
from phyb.data.log import FIELDS, Log
from phyb.data.validate import check
from phyb.envs.making import env_errors, registered_id
from phyb.errors import UsageError


class Acts(Protocol):
    """Something with a policy's `act`."""

    def act(self, observations: Any) -> Any:
        """The action for an observation."""


def record(
    env: str | gymnasium.Env[Any, Any],
    policy: Acts | Callable[[np.ndarray], ArrayLike],
    rows: int,
    *,
    seed: int = 0,
) -> Log:
    """Run a policy in an environment and keep every step.

    Terminated and truncated are what the environment says; the last row is truncated if its episode goes on. Actions
    are clipped to the action space, and recorded as they were taken.

    Arguments:
        env: Gymnasium id, or an environment, which stays open.
        policy: a function from one observation to an action, or a policy of this library.
        rows: steps to record.
        seed: seeds the first episode; the others follow from it. A random policy has a seed of its own.

    Raises:
        UsageError: the environment has no vectors as observations or no continuous actions, or the policy gives
            something else than an action.
    """
    if rows < 1:
        raise UsageError(f"a log needs at least 1 row, asked for {rows}")
    act = getattr(policy, "act", policy)
    if not callable(act):
        raise UsageError(f"the policy is a {type(policy).__name__}; give a function of an observation, or a Policy")
    if not isinstance(env, str):
        return _record(env, act, rows, seed)
    with env_errors(env):
        made = gymnasium.make(registered_id(env))
    try:
        return _record(made, act, rows, seed)
    finally:
        made.close()


def _record(env: gymnasium.Env[Any, Any], act: Callable[[Any], Any], rows: int, seed: int) -> Log:
    env_id = None if env.spec is None else env.spec.id
    name = env_id or type(env).__name__
    space = _checked(env, name)
    steps: list[tuple[Any, ...]] = []
    observation, _ = env.reset(seed=seed)
    for row in range(rows):
        action = _action(act(observation), space, row)
        before = np.array(observation)  # some environments write into the same array again
        observation, reward, terminated, truncated, _ = env.step(action.astype(space.dtype))
        steps.append((before, action, reward, np.array(observation), bool(terminated), bool(truncated)))
        if terminated or truncated:
            observation, _ = env.reset()
    columns = {field: np.array(column) for field, column in zip(FIELDS, zip(*steps, strict=True), strict=True)}
    columns["truncated"][-1] |= not columns["terminated"][-1]
    log = Log(
        **{field: array if array.dtype == bool else to_float32(array) for field, array in columns.items()},
        action_low=to_float32(space.low),
        action_high=to_float32(space.high),
        env_id=env_id,
        provenance={"recorded": {"seed": seed, "gymnasium": gymnasium.__version__, "policy": _name_of(act)}},
    )
    check(log, name)
    return log


def _checked(env: gymnasium.Env[Any, Any], name: str) -> Box:
    """The action space, after both spaces have been found fit."""
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise UsageError(f"{name} is a vector environment; record takes a single one")
    seen, space = env.observation_space, env.action_space
    if not isinstance(seen, Box) or len(seen.shape) != 1:
        advice = "wrap it in gymnasium.wrappers.FlattenObservation, or encode images first"
        raise UsageError(f"{name} has observations in {seen}; they must be vectors ({advice})")
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise UsageError(f"{name} has actions in {space}; they must be continuous vectors (Box)")
    return space


def _action(given: Any, space: Box, row: int) -> np.ndarray:
    action = np.asarray(given)
    if action.shape != space.shape or action.dtype.kind not in "biuf" or not np.isfinite(action).all():
        raise UsageError(
            f"the policy gave {given!s:.60} at step {row}, no action of {space}: it is called with one observation "
            f"and must give {space.shape[0]} finite numbers"
        )
    return np.clip(to_float32(action), to_float32(space.low), to_float32(space.high))


def _name_of(act: Callable[[Any], Any]) -> str:
    return getattr(act, "__qualname__", type(act).__qualname__)
