"""PhyB: offline reinforcement learning with a Posterior Hybrid Bayesian Belief.

    import phyb

    run = phyb.PhyB(subset_size=3).fit("liquidation", seed=0)   # or phyb.CQL(), phyb.MOPO(preset="paper"), ...
    run.result["normalized_score"], run.policy, run.metrics, run.pool

A loop of one's own needs no folder:

    log = phyb.load_log("mylog.hdf5")
    algorithm = phyb.TD3BC(steps=1000)
    problem = phyb.make_problem(log, None, discount=0.99, horizon=200)
    state = algorithm.init(jax.random.key(0), problem)
    update = jax.jit(lambda state: algorithm.update(state, problem))
    for step in range(1000):
        state, metrics = update(state)
    policy = algorithm.policy(state, problem)
    print(phyb.evaluate(policy, "Pendulum-v1", episodes=20)["mean_return"])

Algorithms with models get a pool instead of None: `pool, curve = phyb.fit_pool(log, phyb.PoolConfig(), seed=0)`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from phyb.errors import (
    BusyError,
    CallbackError,
    DataError,
    DivergenceError,
    InterruptedRunError,
    LaterFormatError,
    MemoryShortError,
    MissingExtraError,
    PhybError,
    PoorPoolError,
    StorageError,
    UsageError,
)

if TYPE_CHECKING:
    from phyb.algorithms.adm import ADM
    from phyb.algorithms.base import Algorithm
    from phyb.algorithms.bc import BC
    from phyb.algorithms.combo import COMBO
    from phyb.algorithms.cql import CQL
    from phyb.algorithms.dmg import DMG
    from phyb.algorithms.epq import EPQ
    from phyb.algorithms.fql import FQL
    from phyb.algorithms.iql import IQL
    from phyb.algorithms.mobile import MOBILE
    from phyb.algorithms.mopo import MOPO
    from phyb.algorithms.morel import MOReL
    from phyb.algorithms.one_r_two_r import OneRTwoR
    from phyb.algorithms.oraac import ORAAC
    from phyb.algorithms.orpo import ORPO
    from phyb.algorithms.phyb import PhyB
    from phyb.algorithms.phyb_search import PhyBSearch
    from phyb.algorithms.pmdb import PMDB
    from phyb.algorithms.problem import Problem, make_problem
    from phyb.algorithms.rambo import RAMBO
    from phyb.algorithms.registry import register_algorithm
    from phyb.algorithms.settings import Settings, TrainingConfig, preset
    from phyb.algorithms.td3bc import TD3BC
    from phyb.data.files import load_log, save_log
    from phyb.data.log import Log
    from phyb.data.record import record
    from phyb.deploy.export import export
    from phyb.deploy.monitor import monitor
    from phyb.deploy.server import serve
    from phyb.dynamics.fit import PoolConfig, fit_pool
    from phyb.dynamics.pool import Pool
    from phyb.dynamics.registry import register_model
    from phyb.evaluation.evaluate import evaluate, evaluate_run
    from phyb.evaluation.select import select_policies
    from phyb.pipeline import train
    from phyb.policy.policy import Policy, load_policy
    from phyb.policy.registry import register_actor
    from phyb.registry import use_plugins
    from phyb.training.run import Run, open_run

# Loaded on first use: whoever only reads logs, such as the guarded reader's own process, needs no JAX.
_HOMES = {
    "phyb.algorithms.adm": ("ADM",),
    "phyb.algorithms.base": ("Algorithm",),
    "phyb.algorithms.bc": ("BC",),
    "phyb.algorithms.combo": ("COMBO",),
    "phyb.algorithms.cql": ("CQL",),
    "phyb.algorithms.dmg": ("DMG",),
    "phyb.algorithms.epq": ("EPQ",),
    "phyb.algorithms.fql": ("FQL",),
    "phyb.algorithms.iql": ("IQL",),
    "phyb.algorithms.mobile": ("MOBILE",),
    "phyb.algorithms.mopo": ("MOPO",),
    "phyb.algorithms.morel": ("MOReL",),
    "phyb.algorithms.one_r_two_r": ("OneRTwoR",),
    "phyb.algorithms.oraac": ("ORAAC",),
    "phyb.algorithms.orpo": ("ORPO",),
    "phyb.algorithms.phyb": ("PhyB",),
    "phyb.algorithms.phyb_search": ("PhyBSearch",),
    "phyb.algorithms.pmdb": ("PMDB",),
    "phyb.algorithms.problem": ("Problem", "make_problem"),
    "phyb.algorithms.rambo": ("RAMBO",),
    "phyb.algorithms.registry": ("register_algorithm",),
    "phyb.algorithms.settings": ("Settings", "TrainingConfig", "preset"),
    "phyb.algorithms.td3bc": ("TD3BC",),
    "phyb.data.files": ("load_log", "save_log"),
    "phyb.data.log": ("Log",),
    "phyb.data.record": ("record",),
    "phyb.deploy.export": ("export",),
    "phyb.deploy.monitor": ("monitor",),
    "phyb.deploy.server": ("serve",),
    "phyb.dynamics.fit": ("PoolConfig", "fit_pool"),
    "phyb.dynamics.pool": ("Pool",),
    "phyb.dynamics.registry": ("register_model",),
    "phyb.evaluation.evaluate": ("evaluate", "evaluate_run"),
    "phyb.evaluation.select": ("select_policies",),
    "phyb.pipeline": ("train",),
    "phyb.policy.policy": ("Policy", "load_policy"),
    "phyb.policy.registry": ("register_actor",),
    "phyb.registry": ("use_plugins",),
    "phyb.training.run": ("Run", "open_run"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ADM",
    "BC",
    "COMBO",
    "CQL",
    "DMG",
    "EPQ",
    "FQL",
    "IQL",
    "MOBILE",
    "MOPO",
    "ORAAC",
    "ORPO",
    "PMDB",
    "RAMBO",
    "TD3BC",
    "Algorithm",
    "BusyError",
    "CallbackError",
    "DataError",
    "DivergenceError",
    "InterruptedRunError",
    "LaterFormatError",
    "Log",
    "MOReL",
    "MemoryShortError",
    "MissingExtraError",
    "OneRTwoR",
    "PhyB",
    "PhyBSearch",
    "PhybError",
    "Policy",
    "Pool",
    "PoolConfig",
    "PoorPoolError",
    "Problem",
    "Run",
    "Settings",
    "StorageError",
    "TrainingConfig",
    "UsageError",
    "evaluate",
    "evaluate_run",
    "export",
    "fit_pool",
    "load_log",
    "load_policy",
    "make_problem",
    "monitor",
    "open_run",
    "preset",
    "record",
    "register_actor",
    "register_algorithm",
    "register_model",
    "save_log",
    "select_policies",
    "serve",
    "train",
    "use_plugins",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'phyb' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
