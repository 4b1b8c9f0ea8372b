"""PMDB: believe the k-th worst of N drawn models (Guo et al., 2022).

What is different from PhyB is the belief: all weight lies on the member whose backup is the k-th smallest,

    y(s, a) = [min]^k_{i = 1..N} E_{s' ~ tau_i} [ r + gamma V(s') ],

where a member that was drawn twice counts twice. Rollouts follow the same member, but for some updates in which all of
them follow any of the drawn ones.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from phyb.algorithms.phyb import PhyB, PhyBConfig, PhyBState
from phyb.algorithms.phyb_presets import PRESETS, TASKS
from phyb.algorithms.problem import Problem
from phyb.belief.backup import Belief, BeliefConfig
from phyb.fields import Fraction
from phyb.world.model import Imagined

_BELIEF = BeliefConfig(weight_rule="kth_min", subset_size=2)


@dataclasses.dataclass(frozen=True)
class PMDBConfig(PhyBConfig):
    """Settings of PMDB: those of PhyB with another belief."""

    belief: BeliefConfig = dataclasses.field(default_factory=lambda: _BELIEF)
    stray_probability: Fraction = 0.0
    """Chance that in an update all rollouts follow one random drawn member each, whatever it promises. Higher shows the
    critics more of what else could be true; it does not change their targets."""


_PAPER = PRESETS["paper"]
_AGENT = {
    "belief": _PAPER["agent"]["belief"] | {"weight_rule": "kth_min", "subset_size": 2, "rank_by": "backup"},
    "stray_probability": 0.1,
    "potential_mix": 1.0,
    "step_size_rule": "target",
    "target_divergence": 2.5,  # its target of 5 nats lies beyond what 20 candidates can show, ln 20 = 3.0
    "real_batch_size": 128,
    "rollouts": 128,
}
_POOL = {"model_hidden": (256, 256, 256, 256), "model_batch_size": 256}


class PMDB(PhyB):
    """PhyB's engine under the k-th worst model."""

    name = "pmdb"
    config_class = PMDBConfig
    presets: ClassVar = {
        "cpu": {},
        "paper": {"pool": _PAPER["pool"] | _POOL, "agent": _PAPER["agent"] | _AGENT, "training": _PAPER["training"]},
    }
    tasks: ClassVar = {"cpu": TASKS["cpu"]}
    config: PMDBConfig  # pyright: ignore[reportIncompatibleVariableOverride]

    def _advance(
        self, key: PRNGKeyArray, state: PhyBState, problem: Problem, imagined: Imagined, belief: Belief
    ) -> tuple[Array, Array, Array]:
        if self.config.stray_probability > 0:
            stray = jax.random.bernoulli(jax.random.fold_in(key, 1), self.config.stray_probability)
            even = jnp.full_like(belief.weights, 1.0 / belief.weights.shape[0])
            belief = belief._replace(weights=jnp.where(stray, even, belief.weights))
        return super()._advance(key, state, problem, imagined, belief)
