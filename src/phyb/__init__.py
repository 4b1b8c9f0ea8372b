"""PhyB: offline reinforcement learning with a Posterior Hybrid Bayesian Belief."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phyb.algorithms.registry import register_algorithm
    from phyb.algorithms.settings import Settings, preset
    from phyb.data.files import load_log, save_log
    from phyb.data.log import Log
    from phyb.dynamics.registry import register_model
    from phyb.evaluation.evaluate import evaluate, evaluate_run
    from phyb.evaluation.select import select_policies
    from phyb.pipeline import train
    from phyb.policy.policy import Policy, load_policy
    from phyb.policy.registry import register_actor
    from phyb.registry import use_plugins
    from phyb.training.run import Run, open_run

__all__ = [
    "Log",
    "Policy",
    "Run",
    "Settings",
    "evaluate",
    "evaluate_run",
    "load_log",
    "load_policy",
    "open_run",
    "preset",
    "register_actor",
    "register_algorithm",
    "register_model",
    "save_log",
    "select_policies",
    "train",
    "use_plugins",
]

# Loaded on first use: whoever only reads logs, such as the guarded reader's own process, needs no JAX.
_HOMES = {
    "Log": "phyb.data.log",
    "Policy": "phyb.policy.policy",
    "Run": "phyb.training.run",
    "Settings": "phyb.algorithms.settings",
    "evaluate": "phyb.evaluation.evaluate",
    "evaluate_run": "phyb.evaluation.evaluate",
    "load_log": "phyb.data.files",
    "load_policy": "phyb.policy.policy",
    "open_run": "phyb.training.run",
    "preset": "phyb.algorithms.settings",
    "register_actor": "phyb.policy.registry",
    "register_algorithm": "phyb.algorithms.registry",
    "register_model": "phyb.dynamics.registry",
    "save_log": "phyb.data.files",
    "select_policies": "phyb.evaluation.select",
    "train": "phyb.pipeline",
    "use_plugins": "phyb.registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'phyb' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
