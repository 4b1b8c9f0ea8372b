"""The memory a run needs is said beforehand: it grows with what it depends on, and is near to what is measured."""

import subprocess
import sys

import pytest

from phyb.algorithms.registry import load
from phyb.data.formats import LogHeader
from phyb.errors import MemoryShortError
from phyb.training import memory
from phyb.training.memory import Need, available, check, estimate, line

GIB = 2**30


def of(rows=100_000, observations=11, actions=3, on_disk=False, name="phyb", preset="cpu", **changes):
    return estimate(LogHeader(rows, observations, actions), load(name)(preset=preset, **changes), on_disk=on_disk)


def test_more_rows_columns_and_members_need_more():
    for more in (of(rows=200_000), of(observations=22), of(actions=9)):
        assert more.log >= of().log
        assert more.pool > of().pool
        assert more.total > of().total
    assert of(members_at_once=10).pool < of(members_at_once=20).pool == of(members_at_once=99).pool
    assert of(pool_size=40).policy > of().policy
    assert of(preset="released").total > of().total


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("bc", {"batch_size": 4096}),
        ("phyb", {"rollouts": 4096}),
        ("phyb", {"real_target": "belief"}),
        ("phyb", {"value_estimator": "direct"}),
        ("phyb-search", {"policy_candidates": 480}),
        ("mopo", {"rollout_starts": 50_000}),
        ("rambo", {"rollout_rounds": 50}),
        ("mobile", {"inconsistency_samples": 100}),
        ("morel", {"critics": 10}),
        ("orpo", {"optimist_length": 5}),
    ],
)
def test_an_algorithm_says_what_its_own_settings_cost(name, more):
    assert of(name=name, **more).policy > of(name=name).policy


def test_an_algorithm_without_models_needs_none_for_them():
    need = of(name="bc")
    assert need.pool == 0
    assert 0 < need.policy < of().policy


def test_rows_on_disk_need_a_fraction_of_the_memory():
    memory, disk = of(rows=10_000_000), of(rows=10_000_000, on_disk=True)
    assert disk.log < 0.3 * memory.log
    assert disk.total < 0.3 * memory.total
    assert of(rows=100_000_000, on_disk=True).policy == disk.policy, "the policy does not see how long the log is"


def test_a_run_that_cannot_fit_is_refused_and_one_that_may_not_is_warned_of():
    need = Need(log=GIB, pool=2 * GIB, policy=GIB)
    assert need.total == memory.BASE + 3 * GIB
    assert check(need, need.total, on_disk=False) is None
    assert check(need, None, on_disk=False) is None
    assert "--rows-in disk" in str(check(need, need.total - 1, on_disk=False))
    assert "--rows-in" not in str(check(need, need.total - 1, on_disk=True))
    with pytest.raises(MemoryShortError, match=r"log 1\.0 GiB, .* but only 1\.5 GiB are free\. .*--rows-in disk"):
        check(need, 3 * GIB // 2, on_disk=False)


def test_the_line_names_every_part_and_what_is_free():
    told = line(Need(log=3 * 2**20, pool=2 * GIB, policy=5 * 2**20), 7 * GIB)
    assert (
        told
        == "memory about log 3 MiB, pool training 2.0 GiB, policy optimisation 5 MiB, 2.7 GiB in all; 7.0 GiB are free"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_what_is_free_is_some_but_not_more_than_there_is():
    import os

    free = available()
    assert free is not None
    assert 0 < free <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


MEASURE = """
import re
import numpy as np
from phyb.algorithms.problem import make_problem
from phyb.data.log import Log
from phyb.data.validate import validate
from phyb.dynamics.fit import PoolConfig, fit_pool
rows, rng = 400_000, np.random.default_rng(0)
states = rng.standard_normal((rows + 1, 20), dtype=np.float32)
ends = np.arange(rows) % 1000 == 999
log = Log(states[:-1], rng.uniform(-1, 1, (rows, 5)).astype(np.float32), rng.standard_normal(rows, dtype=np.float32),
          states[1:].copy(), np.zeros(rows, bool), ends, -np.ones(5, np.float32), np.ones(5, np.float32))
validate(log, "log")
pool, _ = fit_pool(log, PoolConfig(pool_size=2, model_steps=1, model_check_every=1), 0)
problem = make_problem(log, pool, discount=0.99, horizon=1000)
# Not getrusage: its peak begins with that of the process that started this one.
print(1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is counted in other units elsewhere")
def test_the_estimate_is_within_a_factor_of_two_of_what_is_measured():
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    need = of(rows=400_000, observations=20, actions=5, pool_size=2)
    assert 0.5 < need.total / int(done.stdout) < 2.0
