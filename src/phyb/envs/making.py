"""Making environments by their id, with errors the user can act on."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

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
