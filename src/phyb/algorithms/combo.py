"""COMBO: CQL that also learns from imagined rows, and asks no model how sure it is (Yu et al., 2021).

What is different from SAC on logged and imagined rows is CQL's penalty on each critic, with values pressed down at
states of the mixed batch and held up at logged rows only,

    w ( mean over s in the batch of log integral exp Q(s, a) da - mean over the log of Q(s, a) ),

and that the target of the critics has no entropy in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from phyb.algorithms.base import PAPER_TRAINING, locomotion_tasks
from phyb.algorithms.cql import ConservativeConfig, conservative_gap, propose
from phyb.algorithms.model_sac import CPU_AGENT, LOCOMOTION_POOL, PAPER_POOL, ModelConfig, ModelSAC, by_dataset
from phyb.algorithms.sac import SACState
from phyb.data.dataset import Rows
from phyb.fields import Fraction, Layers, not_if
from phyb.policy.critics import Critics


@dataclasses.dataclass(frozen=True)
class COMBOConfig(ModelConfig, ConservativeConfig):
    """Settings of COMBO; the defaults are published ones."""

    policy_hidden: Layers = (256, 256, 256)
    actor_decay: Fraction = 0.0
    real_fraction: Fraction = 0.5
    penalty_states: Annotated[Literal["mix", "model"], not_if("penalty_weight", 0.0)] = "mix"
    """Where values are pressed down: mix, at all states of a batch; model, at imagined ones only."""


class COMBO(ModelSAC[COMBOConfig]):
    """Conservative offline model-based policy optimisation."""

    name = "combo"
    config_class = COMBOConfig
    presets: ClassVar = {
        "cpu": {"agent": CPU_AGENT | {"penalty_weight": 0.02}, "training": {"steps": 10_000}},
        "paper": {"pool": PAPER_POOL, "training": {**PAPER_TRAINING, "steps": 1_000_000}},
    }
    tasks = locomotion_tasks(COMBOConfig, presets, steps=10_000, pool=LOCOMOTION_POOL)
    backup_entropy = False
    datasets = by_dataset(
        rollout_length={"medium": (5, 5, 1), "medium-replay": (5, 5, 1), "medium-expert": (5, 5, 1)},
        penalty_weight={"medium": (0.5, 5.0, 5.0), "medium-replay": (0.5, 0.5, 0.5), "medium-expert": (5.0, 5.0, 5.0)},
    )

    def penalty(self, key: PRNGKeyArray, agent: SACState, logged: Rows, imagined: Rows) -> Callable[[Critics], Array]:
        """Half of the weighted gap, as SAC takes half of the squared error."""
        cfg = self.config
        parts = [imagined] if cfg.penalty_states == "model" else [logged, imagined]
        here, there = (
            jnp.concatenate([getattr(part, name) for part in parts]) for name in ("observations", "next_observations")
        )
        proposals = propose(key, agent.actor, here, there, logged.actions.shape[-1], cfg.penalty_actions)
        return lambda critics: 0.5 * cfg.penalty_weight * conservative_gap(critics, logged, proposals, cfg, here)
