"""The policy one deploys: observations in, actions out, in the units of the log; saved without its training state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from phyb.errors import DataError
from phyb.networks import Standardizer
from phyb.policy.actor import BaseActor
from phyb.policy.registry import ACTORS
from phyb.storage.files import read_json, write_json
from phyb.storage.store import digest, inside
from phyb.storage.trees import load_tree, save_tree

FORMAT_VERSION = 1
_MAX_LAYERS = 100


class Policy(eqx.Module):
    """A deterministic policy: the mode of an actor, scaled to the action bounds of the log."""

    actor: BaseActor
    standardizer: Standardizer
    action_low: Float[Array, " act"]
    action_high: Float[Array, " act"]

    def normalized(self, observations: Float[Array, "*rows obs"]) -> Float[Array, "*rows act"]:
        """Actions in [-1, 1]; a pure function for use inside compiled code."""
        return self.actor.mode(self.standardizer(observations))

    def act(self, observation: np.ndarray | Array) -> np.ndarray:
        """The action for one observation, or one action per row of a batch of observations."""
        rows = np.asarray(observation, np.float32)
        if rows.shape[-1:] != self.standardizer.mean.shape:
            raise ValueError(
                f"an observation of this policy has {self.standardizer.mean.shape[0]} numbers, found shape {rows.shape}"
            )
        return np.asarray(_act(self, rows))

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write `policy.safetensors` and `policy.json` into the folder."""
        path = Path(folder)
        sizes = {"observation_size": len(self.standardizer.mean), "action_size": len(self.action_low)}
        save_tree(path / "policy.safetensors", self)
        about = {"format": FORMAT_VERSION, "kind": ACTORS.word(type(self.actor)), **self.actor.sizes(), **sizes}
        write_json(path / "policy.json", about | {"sha256": digest(path / "policy.safetensors")[1]})
        return path


@jax.jit
def _act(policy: Policy, observations: Array) -> Array:
    low, high = policy.action_low, policy.action_high
    action = low + 0.5 * (policy.normalized(observations) + 1.0) * (high - low)
    return jnp.clip(action, low, high)  # rounding may step over a bound


def load_policy(folder: str | os.PathLike[str]) -> Policy:
    """Load a policy from its folder, or from the run folder that holds it.

    Raises:
        DataError: there is no policy, or its files are damaged.
    """
    path = Path(folder)
    path = path / "policy" if os.path.isdir(path / "policy") else path
    description, arrays = path / "policy.json", path / "policy.safetensors"
    if not os.path.isfile(description):
        raise DataError(f"{folder}: there is no policy here; expected policy.json and policy.safetensors.")
    for file in (description, arrays):
        inside(Path(folder), file.relative_to(folder).as_posix())
    about = read_json(description)
    try:
        if about["format"] != FORMAT_VERSION:
            raise DataError(f"policy format {about['format']!r:.40} is not known to this version of phyb.")
        actor = ACTORS.load(about["kind"])
        blank = jax.eval_shape(lambda: _blank(actor, about))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{description}: is not a policy description ({error}).") from error
    checksum = about.get("sha256")  # policies of phyb 0.1 have none
    if checksum is not None and os.path.isfile(arrays) and checksum != digest(arrays)[1]:
        raise DataError(f"{arrays}: is damaged; its checksum is not the one in {description.name}.")
    return load_tree(arrays, blank)


def _blank(actor: type[BaseActor], about: dict[str, Any]) -> Policy:
    """A policy of the described sizes, to be filled; other sizes than whole numbers of reason give an error."""
    observations, actions, *sizes = (about[name] for name in ("observation_size", "action_size", *actor.sized_by))
    flat = [observations, actions, *(n for size in sizes for n in (size if isinstance(size, list) else [size]))]
    if len(flat) > _MAX_LAYERS or not all(type(size) is int and 0 < size <= 65_536 for size in flat):
        raise ValueError(f"sizes {flat!r:.80}")
    ones, bounds = jnp.ones(observations), jnp.ones(actions)
    return Policy(actor.of_sizes(observations, actions, *sizes), Standardizer(ones, ones), bounds, bounds)
