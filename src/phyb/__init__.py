"""PhyB: offline reinforcement learning with a Posterior Hybrid Bayesian Belief."""

from phyb.data.files import load_log, save_log
from phyb.data.log import Log
from phyb.pipeline import Run, evaluate_run, train
from phyb.policy.policy import Policy, load_policy
from phyb.training.settings import Settings, preset

__all__ = [
    "Log",
    "Policy",
    "Run",
    "Settings",
    "evaluate_run",
    "load_log",
    "load_policy",
    "preset",
    "save_log",
    "train",
]
