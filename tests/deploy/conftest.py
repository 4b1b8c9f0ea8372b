import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import phyb
from phyb.algorithms.registry import load
from phyb.envs import termination
from phyb.envs.liquidation import ENV_ID
from phyb.envs.tasks import choose_task
from phyb.interrupt import StopRequests
from phyb.networks import Standardizer
from phyb.policy.actor import Actor
from phyb.policy.policy import Policy
from phyb.storage.store import Store
from phyb.training.folder import POLICY_FILES, RunFolder
from phyb.training.job import Job, write_or_compare_config
from phyb.training.progress import Stages
from phyb.training.rows import BUILT_IN, open_log

QUIET = Console(quiet=True)
OPTIONS = {"policy_hidden": (8,), "pool_size": 2, "model_hidden": (), "holdout_fraction": 0.3, "transitions": 3000}


@pytest.fixture(scope="session")
def run(tmp_path_factory, linear_pool):
    """A finished run on liquidation as if it had been trained: a random policy, and two linear models in the cache."""
    place = tmp_path_factory.mktemp("deploy")
    folder, algorithm = RunFolder(place / "run"), load("mopo")(**OPTIONS)
    log = open_log(BUILT_IN, algorithm, 0, "memory", place)
    choice = choose_task(ENV_ID)
    ends = termination.resolve("auto", choice.task)
    folder.open()
    stages = Stages(QUIET)
    job = Job(BUILT_IN, algorithm, log, choice, ends, None, 0, folder, stages, StopRequests())
    write_or_compare_config(job)
    actor, units = Actor(jax.random.key(0), 3, 1, (8,)), Standardizer.fit(jnp.asarray(log.observations))
    Policy(actor, units, -jnp.ones(1), jnp.ones(1)).save(folder.policy)
    folder.add(*POLICY_FILES)
    folder.save_json("result.json", {"belief_return": 100.0, "belief_std_error": 1.0})
    # Time goes on by 1, price and holding stay; the models differ about the price where it is high.
    weights, biases = np.zeros((2, 4, 4)), np.tile([1.0, 0.0, 0.0, 0.0], (2, 1))
    weights[0, 2, 2] = 0.05
    pool = linear_pool(weights, biases, log_std=[-8.0, 2.0, -1.6, 2.0])
    run = phyb.open_run(folder.path, cache=place / "cache", console=QUIET)
    assert run.pool_key is not None
    Store(place / "cache" / "pools" / run.pool_key).save_tree("pool.safetensors", pool, {"curve": []})
    return run
