"""PhyB: offline reinforcement learning with a Posterior Hybrid Bayesian Belief."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phyb.data.files import load_log, save_log
    from phyb.data.log import Log
    from phyb.evaluation.evaluate import evaluate, evaluate_run
    from phyb.evaluation.select import select_policies
    from phyb.pipeline import train
    from phyb.policy.policy import Policy, load_policy
    from phyb.training.run import Run, open_run
    from phyb.training.settings import Settings, preset

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
    "save_log",
    "select_policies",
    "train",
]

# Loaded on first use: whoever only reads logs, such as the guarded reader's own process, needs no JAX.
_HOMES = {
    "Log": "phyb.data.log",
    "Policy": "phyb.policy.policy",
    "Run": "phyb.training.run",
    "Settings": "phyb.training.settings",
    "evaluate": "phyb.evaluation.evaluate",
    "evaluate_run": "phyb.evaluation.evaluate",
    "load_log": "phyb.data.files",
    "load_policy": "phyb.policy.policy",
    "open_run": "phyb.training.run",
    "preset": "phyb.training.settings",
    "save_log": "phyb.data.files",
    "select_policies": "phyb.evaluation.select",
    "train": "phyb.pipeline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'phyb' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
