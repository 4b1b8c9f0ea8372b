import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from phyb.data.collect import collect_liquidation
from phyb.dynamics.cache import cache_folder, cached_pool, is_cached, pool_key
from phyb.dynamics.fit import Keeping, PoolConfig
from phyb.storage.store import Store

LOG = collect_liquidation(400, 0)
SMALL = PoolConfig(pool_size=2, model_hidden=(8,), model_steps=4, model_check_every=2, model_batch_size=16)


def get(folder, config=SMALL, seed=0):
    return cached_pool(LOG, config, seed, learn_termination=False, folder=folder)


def test_a_pool_is_trained_once_and_then_found_with_the_same_numbers(tmp_path):
    asked = {"learn_termination": False, "folder": tmp_path}
    assert not is_cached(LOG, SMALL, 0, **asked)
    first, second = get(tmp_path), get(tmp_path)
    assert is_cached(LOG, SMALL, 0, **asked)
    assert not is_cached(LOG, SMALL, 1, **asked)
    assert (first.trained, second.trained) == (True, False)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, first.pool, second.pool))
    assert first.curve == second.curve
    assert len(first.curve) == 2


def test_the_key_depends_on_all_that_the_bits_depend_on():
    keys = {
        pool_key(LOG, SMALL, 0, False),
        pool_key(LOG, dataclasses.replace(SMALL, members_at_once=1), 0, False),
        pool_key(collect_liquidation(400, 1), SMALL, 0, False),
        pool_key(LOG, dataclasses.replace(SMALL, model_steps=6), 0, False),
        pool_key(LOG, SMALL, 1, False),
        pool_key(LOG, SMALL, 0, True),
    }
    assert len(keys) == 6


@pytest.mark.parametrize("damage", ["cut", "flip", "foreign", "no manifest", "bad manifest"])
def test_a_damaged_pool_is_trained_again(tmp_path, damage):
    trained = get(tmp_path).pool
    (file,) = (tmp_path / "pools").glob("*/pool.safetensors")
    content = file.read_bytes()
    if damage == "no manifest":
        file.with_name("manifest.json").unlink()
    elif damage == "bad manifest":
        file.with_name("manifest.json").write_bytes(b"{")
    else:
        flipped = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
        file.write_bytes({"cut": content[:-5], "flip": flipped, "foreign": b"no pool"}[damage])
    assert not is_cached(LOG, SMALL, 0, learn_termination=False, folder=tmp_path)
    again = get(tmp_path)
    assert again.trained
    assert jax.tree.all(jax.tree.map(jnp.array_equal, trained, again.pool))
    assert not get(tmp_path).trained


def test_a_cache_that_cannot_be_written_does_not_lose_the_pool(tmp_path):
    (tmp_path / "pools").write_text("a file in the way")
    keeping = Keeping(Store(tmp_path / "run"))
    found = cached_pool(LOG, SMALL, 0, learn_termination=False, folder=tmp_path, keeping=keeping)
    assert found.trained
    assert found.not_kept is not None
    assert list((tmp_path / "run" / "pool").glob("*.safetensors")), "it is still in the run folder"
    assert get(tmp_path / "elsewhere").pool.size == found.pool.size


def test_the_place_of_the_cache_can_be_set(monkeypatch, tmp_path):
    monkeypatch.setenv("PHYB_CACHE", str(tmp_path / "environment"))
    assert cache_folder() == tmp_path / "environment"
    assert cache_folder(tmp_path / "argument") == tmp_path / "argument"
    monkeypatch.delenv("PHYB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "phyb"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "phyb"
