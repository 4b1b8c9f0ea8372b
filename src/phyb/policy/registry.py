"""Every kind of actor by its name. A new one is one file and one line here, or a call of `register_actor`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxtyping import PRNGKeyArray

from phyb.errors import UsageError
from phyb.networks import only_arrays
from phyb.registry import Registry

if TYPE_CHECKING:
    from phyb.policy.actor import Actor, BaseActor

ACTORS: Registry[type[BaseActor]] = Registry(
    "actor",
    {
        "tanh-gaussian": "phyb.policy.actor:Actor",
        "perturbed-decoder": "phyb.policy.vae:PerturbedDecoder",
        "one-step-flow": "phyb.policy.flow:OneStep",
    },
    base="phyb.policy.actor:BaseActor",
)
"""The kinds in policy.json. Those made from `Actor` can be chosen as `--actor`."""

register_actor = ACTORS.register
"""Make an actor of one's own known by a name: its class, or where that is, "package.module:Class"."""


def make_actor(name: str, key: PRNGKeyArray, observations: int, actions: int, hidden: Sequence[int]) -> Actor:
    """A fresh actor of the kind that the setting `actor` names.

    Raises:
        DataError: there is no such kind, or it is in a module that was not named.
        UsageError: it is made by its own algorithm only.
    """
    from phyb.policy.actor import Actor

    kind = ACTORS.load(name)
    if not issubclass(kind, Actor):
        raise UsageError(f"--actor {name}: is not made from phyb.policy.actor.Actor, and cannot be chosen.")
    return only_arrays(kind(key, observations, actions, hidden), f"--actor {name}")
