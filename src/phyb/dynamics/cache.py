"""A pool is trained once: finished pools are kept by the content they were made from and found again."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import os
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp

from phyb.data.log import Log
from phyb.dynamics.fit import HoldoutCheck, Keeping, PoolConfig, Progress, fit_pool
from phyb.dynamics.pool import Pool
from phyb.dynamics.registry import MODELS, make_model
from phyb.dynamics.rows import MOST_HOLDOUT_ROWS, split_rows
from phyb.errors import DataError, StorageError
from phyb.networks import Standardizer
from phyb.storage.store import Store

_RECIPE = 2
"""Raised whenever the same log and settings would give another pool, so that old pools are not found any more."""
_POOL = "pool.safetensors"


def cache_folder(chosen: str | os.PathLike[str] | None = None) -> Path:
    """Where pools are kept: the folder given, else $PHYB_CACHE, else `phyb` in the user's cache folder."""
    if chosen is not None:
        return Path(chosen)
    if os.environ.get("PHYB_CACHE"):
        return Path(os.environ["PHYB_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "phyb"


def pool_key(log: Log, config: PoolConfig, seed: int, learn_termination: bool) -> str:
    """The name a pool is kept under: a hash of everything it depends on."""
    settings = dataclasses.asdict(config)
    if settings["model_window"] == 1:  # as every pool was before there was this setting
        del settings["model_window"]
    content = {
        "recipe": _RECIPE,
        "log": log.fingerprint(),
        "settings": settings,
        "seed": seed,
        "learn_termination": learn_termination,
        "code": _code(config.model),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _code(model: str) -> str:
    """The source of a user's own model: a pool of it as it was before a change is not found any more."""
    home = sys.modules[MODELS.load(model).__module__]
    if home.__name__.partition(".")[0] == "phyb":  # ours change with `_RECIPE`
        return ""
    try:
        return inspect.getsource(home)
    except (OSError, TypeError):  # defined in a notebook
        return ""


def _blank(log: Log, config: PoolConfig) -> Pool:
    """The shapes of a pool that was trained on such a log with such settings."""
    inputs, outputs = log.observation_size + log.action_size, log.observation_size + 1

    def make() -> Pool:
        keys = jax.random.split(jax.random.key(0), config.pool_size)
        kind = (inputs, outputs, config.model_hidden, config.model_window)
        members = jax.vmap(lambda key: make_model(config.model, key, *kind))(keys)
        before, after = (Standardizer(jnp.zeros(size), jnp.zeros(size)) for size in (inputs, outputs))
        return Pool(members, before, after, jnp.zeros(config.pool_size))

    return jax.eval_shape(make)


@dataclasses.dataclass(frozen=True)
class Found:
    """A pool, where it is kept, and how it came about."""

    pool: Pool
    curve: list[HoldoutCheck]
    """Its learning curve."""
    trained: bool
    """False if it was found."""
    not_kept: StorageError | None = None
    """Why a trained pool could not be written to the cache."""


def is_cached(log: Log, config: PoolConfig, seed: int, *, learn_termination: bool, folder: Path) -> bool:
    """Whether `cached_pool` would find this pool and not train it."""
    try:
        return Store(folder / "pools" / pool_key(log, config, seed, learn_termination)).vouches(_POOL)
    except DataError:  # a damaged manifest
        return False


def cached_pool(
    log: Log,
    config: PoolConfig,
    seed: int,
    *,
    learn_termination: bool,
    folder: Path,
    progress: Progress | None = None,
    keeping: Keeping | None = None,
    rows_in: Path | None = None,
) -> Found:
    """The pool for this log, settings and seed, found in the folder or trained.

    A kept pool counts if its note, written after it, has its checksum; otherwise it is trained again and replaced.
    With `keeping` a pool in training is kept as well, and dropped from there once it is in the folder. A cache that
    cannot be written to does not lose the pool: it is given back with the reason. `rows_in` is a folder for the
    training rows of a log on disk.
    """
    key = pool_key(log, config, seed, learn_termination)
    if rows_in is not None and len(split_rows(log, config.holdout_fraction, seed)[1]) > MOST_HOLDOUT_ROWS:
        key += "-part"  # checked on a part of the hold-out: not the pool of the same log in memory
    store, found = Store(folder / "pools" / key), None
    try:
        about = store.about(_POOL)
        if about is not None:
            curve = [HoldoutCheck.read(check) for check in about["curve"]]
            found = Found(store.load_tree(_POOL, _blank(log, config)), curve, trained=False)
    except (DataError, KeyError, TypeError, ValueError, OverflowError):  # damaged: trained again
        shutil.rmtree(store.path, ignore_errors=True)
        store = Store(store.path)
    if found is None:
        options = {"learn_termination": learn_termination, "progress": progress, "keeping": keeping, "rows_in": rows_in}
        found = Found(*fit_pool(log, config, seed, **options), trained=True)
        about = {"settings": dataclasses.asdict(config), "seed": seed, "log": dict(log.provenance), "rows": len(log)}
        try:
            store.save_tree(_POOL, found.pool, {**about, "curve": found.curve})
        except StorageError as error:
            return dataclasses.replace(found, not_kept=error)
    if keeping is not None:
        keeping.clear()
    return found
