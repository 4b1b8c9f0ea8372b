"""Every kind of dynamics model by its name. A new one is one file and one line here, or a call of `register_model`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxtyping import PRNGKeyArray

from phyb.networks import only_arrays
from phyb.registry import Registry

if TYPE_CHECKING:
    from phyb.dynamics.model import DynamicsModel

MODELS: Registry[type[DynamicsModel]] = Registry(
    "model",
    {"gaussian": "phyb.dynamics.model:GaussianModel", "any-step": "phyb.dynamics.any_step:AnyStepModel"},
    base="phyb.dynamics.model:DynamicsModel",
)
"""What `PoolConfig.model` may name."""

register_model = MODELS.register
"""Make a dynamics model of one's own known by a name: its class, or where that is, "package.module:Class"."""


def make_model(
    name: str, key: PRNGKeyArray, inputs: int, outputs: int, hidden: Sequence[int], window: int = 1
) -> DynamicsModel:
    """A fresh model of the kind that the setting `model` names; only a `window` above 1 is told to it."""
    several = {"window": window} if window > 1 else {}
    return only_arrays(MODELS.load(name)(key, inputs, outputs, hidden, **several), f"--model {name}")
