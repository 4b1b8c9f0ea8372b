"""Making environments by their id, with errors the user can act on."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import gymnasium

from phyb.errors import MissingExtraError, UsageError


def registered_id(env_id: str) -> str:
    """The id without its module, which is imported: module:id."""
    module, _, registered = env_id.rpartition(":")
    if module:
        importlib.import_module(module)
    return registered


@contextlib.contextmanager
def env_errors(env_id: str) -> Iterator[None]:
    """Turn what Gymnasium says about making an environment into an error the user can act on."""
    try:
        with _silent_bodies(env_id):
            yield
    except gymnasium.error.DependencyNotInstalled as error:
        if "mujoco" in str(error).lower():
            raise MissingExtraError("mujoco", f"The environment {env_id}") from error
        raise UsageError(f"cannot make environment {env_id!r}: {error}") from error
    except (gymnasium.error.Error, ImportError) as error:
        raise UsageError(
            f"cannot make environment {env_id!r}: {error} "
            "(give an id registered with Gymnasium, or module:id to import its module first)"
        ) from error


@contextlib.contextmanager
def _silent_bodies(env_id: str) -> Iterator[None]:
    """Without MuJoCo's remarks on the body files that Gymnasium brings along.

    Nobody but Gymnasium could act on them; MuJoCo repeats them for every copy, also in a file in the working folder.
    Those on bodies of others, and on the simulation itself, stay.
    """
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    own = spec is not None and str(spec.entry_point).startswith("gymnasium.envs.mujoco")
    if not own or importlib.util.find_spec("mujoco") is None:
        yield
        return
    mujoco: Any = importlib.import_module("mujoco")
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
