"""PhyB's presets: what each changes in the defaults.

"cpu" is sized for two cores and minutes. "paper" has every value of the paper's table of hyper-parameters and its
formulas; "released" has the rules of the released research code at the same sizes. The last two need a large machine:
about 100 models of 4 x 512 units (256 for Hopper), 195,000 steps each, and 2,000,000 updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BELIEF = {"weight_rule": "softmax", "rank_by": "value", "noise_samples": 10, "wall_start": 5.5, "wall_end": 10.5}
_POOL = {
    "pool_size": 100,
    "model_hidden": (512, 512, 512, 512),
    "model_learning_rate": 1e-4,
    "model_weight_decay": 7.5e-5,
    "model_batch_size": 512,
    "model_steps": 195_000,
    "model_check_every": 1950,
    "model_patience": 20,
    "nll_beta": 0.0,
}
_AGENT = {
    "belief": _BELIEF,
    "potential_mix": 0.9,
    "step_size_rule": "fixed",
    "step_size": 0.1,
    "actor_candidates": 10,
    "reference_candidates": 10,
    "logged_candidates": 0,
    "policy_hidden": (256, 256, 256),
    "actor_learning_rate": 3e-5,
    "critic_learning_rate": 3e-4,
    "final_learning_rate": 1.0,
    "target_rate": 5e-3,
    "reference_rate": 1e-5,
    "real_batch_size": 256,
    "rollouts": 256,
    "clone_steps": 0,
}
_TRAINING = {
    "steps": 2_000_000,
    "log_every": 1000,
    "evaluate_every": 10_000,
    "checkpoint_every": 10_000,
    "discount": 0.99,
}
_RELEASED_BELIEF = {
    "weight_rule": "scaled_softmax",
    "rank_by": "backup",
    "uniform_mix": 0.01,
    "kth_min_probability": 0.1,
    "draw": "distinct",
    "noise": "private",
    "target_samples": "first",
    "successor": "average",
}
_RELEASED_AGENT = {
    "belief": _BELIEF | _RELEASED_BELIEF,
    "potential_mix": 1.0,
    "step_size_rule": "target",
    "target_divergence": 2.5,  # its target of 5 nats lies beyond what 20 candidates can show, ln 20 = 3.0
    "step_size_scope": "state",
}

PRESETS: dict[str, dict[str, Any]] = {
    "cpu": {},
    "paper": {"pool": _POOL, "agent": _AGENT, "training": _TRAINING},
    "released": {"pool": _POOL | {"nll_beta": 0.5}, "agent": _AGENT | _RELEASED_AGENT, "training": _TRAINING},
}

_HOPPER = {"pool": {"model_hidden": (256, 256, 256, 256), "model_batch_size": 256}}
TASKS: Mapping[str, Mapping[str, Any]] = {
    # A good pool first, then steps from a known policy: values start from the log's returns and the policy from the
    # clone, and what the models call a loss is taken back.
    "cpu": {
        "locomotion": {
            "pool": {
                "pool_size": 10,
                "model_hidden": (200, 200, 200),
                "model_learning_rate": 5e-3,
                "model_weight_decay": 0.01,
                "model_steps": 14_000,
                "model_check_every": 1000,
            },
            # The simulators are deterministic: members move by their means. These settings are Algorithm 1 as far as it
            # has been tried on such logs; phyb-search scores higher on them (docs/results.md).
            "agent": {
                "belief": {"ensemble_size": 4, "subset_size": 2, "noise_samples": 1, "noise": "none"},
                "target_divergence": 0.5,
                "final_divergence": 0.2,
                "policy_hidden": (256, 256),
                "actor_learning_rate": 3e-4,
                "critic_learning_rate": 5e-4,
                "final_learning_rate": 0.2,
                "reference_rate": 1e-3,
                "clone_steps": 15_000,
                "clone_best": 0.5,
                "clone_censored": True,
                "clone_spread": 0.5,
                "largest_action": 0.95,
                "return_steps": 4000,
                "evaluation_steps": 1500,
                "rollback": True,
            },
            "training": {"steps": 8000},
        },
    },
    "paper": {"hopper": _HOPPER},
    "released": {"hopper": _HOPPER},
}
"""What a preset changes further for a kind of task, or for one task."""
