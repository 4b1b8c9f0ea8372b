"""Rows on disk or in memory: the same pool, the same problem and the same run, to the last bit."""

import dataclasses
import json

import equinox as eqx
import jax
import numpy as np
import pytest
from rich.console import Console

import phyb
from phyb.algorithms.phyb import PhyB, PhyBConfig
from phyb.algorithms.problem import make_problem
from phyb.algorithms.settings import Settings, TrainingConfig
from phyb.belief.backup import BeliefConfig
from phyb.data import save_log
from phyb.data.collect import collect_liquidation
from phyb.data.disk import put_on_disk
from phyb.dynamics import rows
from phyb.dynamics.cache import cached_pool
from phyb.dynamics.fit import PoolConfig, fit_pool
from phyb.errors import MemoryShortError
from phyb.storage import mapped
from phyb.training import rows as rows_module
from phyb.training.rows import RowsIn, load_rows, move_rows

POOL = PoolConfig(pool_size=2, model_hidden=(8,), model_steps=20, model_check_every=10)
TINY = Settings(
    pool=POOL,
    agent=PhyBConfig(
        belief=BeliefConfig(ensemble_size=3, subset_size=2),
        policy_hidden=(8,),
        real_batch_size=8,
        rollouts=8,
        clone_steps=5,
    ),
    training=TrainingConfig(
        steps=20,
        log_every=10,
        evaluate_every=10,
        checkpoint_every=10,
        evaluation_episodes=50,
        final_episodes=60,
        fit_steps=20,
        accept_poor_pool=True,
    ),
)


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    before, mapped.BLOCK_BYTES = mapped.BLOCK_BYTES, 4096
    yield
    mapped.BLOCK_BYTES = before


@pytest.fixture(scope="module")
def log():
    return collect_liquidation(3000, 0)


@pytest.fixture(scope="module")
def on_disk(log, tmp_path_factory):
    return put_on_disk(log, tmp_path_factory.mktemp("log"))


@pytest.fixture(scope="module")
def pool(log):
    return fit_pool(log, POOL, 0)


def test_a_pool_trained_from_disk_is_the_pool_trained_in_memory(on_disk, pool, tmp_path):
    found, curve = fit_pool(on_disk, POOL, 0, rows_in=tmp_path / "rows")
    assert curve == pool[1]
    assert eqx.tree_equal(found, pool[0])


def test_a_problem_on_disk_is_the_problem_in_memory_and_no_copy(log, on_disk, pool, tmp_path):
    told = {"discount": 1.0, "horizon": 20}
    memory, disk = make_problem(log, pool[0], **told), make_problem(on_disk, pool[0], **told, rows_in=tmp_path / "rows")
    assert eqx.tree_equal(disk, memory)
    if jax.default_backend() == "cpu":
        assert disk.rows.observations.unsafe_buffer_pointer() == on_disk.observations.ctypes.data


def test_a_large_holdout_is_judged_by_a_part_of_it_under_another_name(log, on_disk, tmp_path, monkeypatch):
    def held(log, rows_in=None):
        return len(rows.prepare(log, POOL.holdout_fraction, 0, rows_in).holdout.done)

    whole = held(log)
    assert held(on_disk, tmp_path / "rows") == whole
    monkeypatch.setattr(rows, "MOST_HOLDOUT_ROWS", whole - 5)
    assert held(on_disk, tmp_path / "rows") == whole - 5
    monkeypatch.setattr("phyb.dynamics.cache.MOST_HOLDOUT_ROWS", whole - 5)
    options = {"learn_termination": False, "folder": tmp_path}
    cached_pool(on_disk, POOL, 0, **options, rows_in=tmp_path / "rows")
    assert cached_pool(log, POOL, 0, **options).trained, "a pool judged by a part is not the same pool"


def test_a_whole_run_from_disk_ends_with_the_bytes_of_one_in_memory(log, tmp_path):
    save_log(log, tmp_path / "log.hdf5")
    console = Console(record=True, width=200)
    found = {}
    places: tuple[RowsIn, ...] = ("memory", "disk")
    for rows_in in places:
        run = phyb.train(
            tmp_path / "log.hdf5",
            settings=TINY,
            out=tmp_path / rows_in,
            cache=tmp_path / f"cache-{rows_in}",
            rows_in=rows_in,
            console=console,
        )
        names = ("metrics.jsonl", "diagnostics.json", "policy/policy.safetensors")
        found[rows_in] = [(run.folder / name).read_bytes() for name in names]
        found[rows_in].append({key: value for key, value in run.result.items() if key != "wall_seconds"})
        assert not (run.folder / "rows").exists(), "what is needed only while the run lasts is removed"
    for one, other in zip(found["memory"], found["disk"], strict=True):
        if isinstance(one, bytes) and one.startswith(b"{\n"):  # diagnostics: one spread is summed in another order
            one, other = (json.dumps(_rounded(json.loads(text))) for text in (one, other))
        assert one == other
    told = console.export_text()
    assert "memory about log" in told
    assert "rows on disk, memory about log" in told


def _rounded(content):
    if isinstance(content, dict):
        return {name: _rounded(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_rounded(value) for value in content]
    return float(f"{content:.9g}") if isinstance(content, float) else content


def test_auto_takes_the_disk_only_where_memory_is_short(log, tmp_path, monkeypatch):
    save_log(log, tmp_path / "log.hdf5")

    def auto(rows_in: RowsIn = "auto"):
        return load_rows(tmp_path / "log.hdf5", rows_in, PhyB(TINY), tmp_path / "cache", lambda reason: None)

    def moved(rows_in: RowsIn = "auto"):
        return move_rows(log, rows_in, PhyB(TINY), tmp_path / "rows")

    for free, short in ((2**40, False), (None, False), (2**20, True)):
        monkeypatch.setattr(rows_module, "available", lambda free=free: free)
        assert (auto().on_disk, moved().on_disk, moved("memory").on_disk) == (short, short, False)
        np.testing.assert_array_equal(moved().rewards, log.rewards)
    with pytest.raises(MemoryShortError, match="--rows-in disk"):
        auto("memory")
    assert dataclasses.replace(moved(), rewards=log.rewards).on_disk
