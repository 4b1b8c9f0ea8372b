"""The presets of EPQ: for minutes on two cores, and what was published, by data set."""

from __future__ import annotations

from phyb.algorithms.base import PAPER_TRAINING
from phyb.algorithms.model_sac import by_dataset

PRESETS = {
    "cpu": {
        "agent": {
            "policy_hidden": (64, 64),
            "batch_size": 128,
            "actor_learning_rate": 3e-4,
            "actor_decay": 0.05,
            "critic_learning_rate": 1e-3,
            "temperature_learning_rate": 3e-4,
            "reward_units": "range",
            "penalty_weight": 0.08,  # about 20 where rewards are not divided by their range
            "clone_steps": 0,
            "support_threshold": 2.0,
            "vae_hidden": (64, 64),
            "vae_learning_rate": 1e-3,
            "behaviour_steps": 4000,
            "logged_values": "fitted",
            "weight_temperature": 0.02,
            "cluster_steps": 500,
        },
        "training": {"steps": 24_500},
    },
    "paper": {"training": {**PAPER_TRAINING, "steps": 5_001_000}},
}
TWO_CORES = {
    "policy_hidden": (256, 256),
    "batch_size": 256,
    "penalty_actions": 4,
    "actor_learning_rate": 3e-4,
    "vae_hidden": (256, 256),
    "vae_learning_rate": 1e-3,
    "behaviour_steps": 2000,
    "cluster_steps": 500,
    "clone_steps": 500,
}
"""What would take hours on locomotion logs."""

_WIDE = {f"{body}-random" for body in ("halfcheetah", "hopper", "walker2d")}
_WIDE |= {"hopper-medium", "walker2d-medium", "walker2d-expert"}
_OTHERS = {
    "hopper-medium": {"weight_temperature": 5.0, "least_weight": 0.5, "logged_values": "fitted"},
    "walker2d-random": {"weight_temperature": 0.5, "logged_values": "fitted"},
    "walker2d-medium": {"least_weight": 0.5, "logged_values": "fitted"},
    "walker2d-medium-replay": {"cluster_radius": 1.0, "least_weight": 0.5},
    "walker2d-expert": {"weight_temperature": 0.5},
}
_THRESHOLDS = {
    "random": (10.0, 1.0, 0.2),
    "medium": (10.0, 0.2, 1.0),
    "medium-replay": (2.0, 1.0, 0.2),
    "medium-expert": (1.5, 0.2, 1.0),
    "full-replay": (1.5, 1.5, 1.0),
    "expert": (1.0, 1.0, 1.0),
}
PUBLISHED = {
    name: {**settings, **({"cluster_radius": 2.0} if name in _WIDE else {}), **_OTHERS.get(name, {})}
    for name, settings in by_dataset(support_threshold=_THRESHOLDS).items()
}
"""Settings by data set; those of all eighteen were published."""
