import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp

from phyb.data.collect import collect_liquidation
from phyb.dynamics.cache import cache_folder, cached_pool, pool_key
from phyb.dynamics.fit import PoolConfig

LOG = collect_liquidation(400, 0)
SMALL = PoolConfig(pool_size=2, model_hidden=(8,), model_steps=4, model_check_every=2, model_batch_size=16)


def get(folder, config=SMALL, seed=0):
    return cached_pool(LOG, config, seed, learn_termination=False, folder=folder)


def test_a_pool_is_trained_once_and_then_found_with_the_same_numbers(tmp_path):
    trained, found_first = get(tmp_path)
    again, found_second = get(tmp_path)
    assert (found_first, found_second) == (False, True)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, trained, again))


def test_the_key_depends_on_log_settings_seed_and_termination_but_not_on_grouping():
    key = pool_key(LOG, SMALL, 0, False)
    assert key == pool_key(LOG, dataclasses.replace(SMALL, members_at_once=1), 0, False)
    others = {
        pool_key(collect_liquidation(400, 1), SMALL, 0, False),
        pool_key(LOG, dataclasses.replace(SMALL, model_steps=6), 0, False),
        pool_key(LOG, SMALL, 1, False),
        pool_key(LOG, SMALL, 0, True),
    }
    assert len(others | {key}) == 5


def test_a_damaged_pool_is_trained_again(tmp_path):
    trained, _ = get(tmp_path)
    (file,) = (tmp_path / "pools").glob("*.safetensors")
    file.write_bytes(b"no pool")
    again, found = get(tmp_path)
    assert not found
    assert jax.tree.all(jax.tree.map(jnp.array_equal, trained, again))


def test_the_place_of_the_cache_can_be_set(monkeypatch, tmp_path):
    monkeypatch.setenv("PHYB_CACHE", str(tmp_path / "environment"))
    assert cache_folder() == tmp_path / "environment"
    assert cache_folder(tmp_path / "argument") == tmp_path / "argument"
    monkeypatch.delenv("PHYB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "phyb"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "phyb"
