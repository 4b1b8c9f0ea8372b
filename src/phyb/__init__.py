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

from phyb.errors import BusyError as BusyError
from phyb.errors import CallbackError as CallbackError
from phyb.errors import DataError as DataError
from phyb.errors import DivergenceError as DivergenceError
from phyb.errors import InterruptedRunError as InterruptedRunError
from phyb.errors import LaterFormatError as LaterFormatError
from phyb.errors import MemoryShortError as MemoryShortError
from phyb.errors import MissingExtraError as MissingExtraError
from phyb.errors import PhybError as PhybError
from phyb.errors import PoorPoolError as PoorPoolError
from phyb.errors import StorageError as StorageError
from phyb.errors import UsageError as UsageError

if TYPE_CHECKING:
    from phyb.algorithms.adm import ADM as ADM
    from phyb.algorithms.base import Algorithm as Algorithm
    from phyb.algorithms.bc import BC as BC
    from phyb.algorithms.combo import COMBO as COMBO
    from phyb.algorithms.cql import CQL as CQL
    from phyb.algorithms.dmg import DMG as DMG
    from phyb.algorithms.epq import EPQ as EPQ
    from phyb.algorithms.fql import FQL as FQL
    from phyb.algorithms.iql import IQL as IQL
    from phyb.algorithms.mobile import MOBILE as MOBILE
    from phyb.algorithms.mopo import MOPO as MOPO
    from phyb.algorithms.morel import MOReL as MOReL
    from phyb.algorithms.one_r_two_r import OneRTwoR as OneRTwoR
    from phyb.algorithms.oraac import ORAAC as ORAAC
    from phyb.algorithms.orpo import ORPO as ORPO
    from phyb.algorithms.phyb import PhyB as PhyB
    from phyb.algorithms.phyb_search import PhyBSearch as PhyBSearch
    from phyb.algorithms.pmdb import PMDB as PMDB
    from phyb.algorithms.problem import Problem as Problem
    from phyb.algorithms.problem import make_problem as make_problem
    from phyb.algorithms.rambo import RAMBO as RAMBO
    from phyb.algorithms.registry import register_algorithm as register_algorithm
    from phyb.algorithms.settings import Settings as Settings
    from phyb.algorithms.settings import TrainingConfig as TrainingConfig
    from phyb.algorithms.settings import preset as preset
    from phyb.algorithms.td3bc import TD3BC as TD3BC
    from phyb.data.files import load_log as load_log
    from phyb.data.files import save_log as save_log
    from phyb.data.log import Log as Log
    from phyb.data.record import record as record
    from phyb.deploy.export import export as export
    from phyb.deploy.monitor import monitor as monitor
    from phyb.deploy.server import serve as serve
    from phyb.dynamics.fit import PoolConfig as PoolConfig
    from phyb.dynamics.fit import fit_pool as fit_pool
    from phyb.dynamics.pool import Pool as Pool
    from phyb.dynamics.registry import register_model as register_model
    from phyb.evaluation.evaluate import evaluate as evaluate
    from phyb.evaluation.evaluate import evaluate_run as evaluate_run
    from phyb.evaluation.select import select_policies as select_policies
    from phyb.pipeline import train as train
    from phyb.policy.policy import Policy as Policy
    from phyb.policy.policy import load_policy as load_policy
    from phyb.policy.registry import register_actor as register_actor
    from phyb.registry import use_plugins as use_plugins
    from phyb.training.run import Run as Run
    from phyb.training.run import open_run as open_run

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

__all__ = sorted({*_HOME_OF, *(name for name in globals() if name.endswith("Error"))})  # pyright: ignore


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'phyb' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
