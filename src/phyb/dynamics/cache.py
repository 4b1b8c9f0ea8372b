"""A pool is trained once: finished pools are kept by the content they were made from and found again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp

from phyb.data.log import Log
from phyb.dynamics.fit import PoolConfig, Progress, fit_pool
from phyb.dynamics.model import GaussianModel
from phyb.dynamics.pool import Pool
from phyb.errors import DataError
from phyb.networks import Standardizer
from phyb.storage.files import write_json
from phyb.storage.trees import load_tree, save_tree

_RECIPE = 1
"""Raised whenever the same log and settings would give another pool, so that old pools are not found any more."""


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
    del settings["members_at_once"]  # the members do not depend on it
    content = {
        "recipe": _RECIPE,
        "log": log.fingerprint(),
        "settings": settings,
        "seed": seed,
        "learn_termination": learn_termination,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def save_pool(path: str | os.PathLike[str], pool: Pool) -> None:
    """Write a pool to one safetensors file."""
    save_tree(path, pool)


def load_pool(path: str | os.PathLike[str], log: Log, config: PoolConfig) -> Pool:
    """Read a pool that was trained on such a log with such settings; `DataError` if it is another or damaged."""
    inputs, outputs = log.observation_size + log.action_size, log.observation_size + 1

    def blank() -> Pool:
        keys = jax.random.split(jax.random.key(0), config.pool_size)
        members = jax.vmap(lambda key: GaussianModel(key, inputs, outputs, config.model_hidden))(keys)
        before, after = (Standardizer(jnp.zeros(size), jnp.zeros(size)) for size in (inputs, outputs))
        return Pool(members, before, after, jnp.zeros(config.pool_size))

    return load_tree(path, jax.eval_shape(blank))


def cached_pool(
    log: Log,
    config: PoolConfig,
    seed: int,
    *,
    learn_termination: bool,
    folder: Path,
    progress: Progress | None = None,
) -> tuple[Pool, bool]:
    """The pool for this log, settings and seed, and whether it was found instead of trained.

    A kept pool that cannot be read is trained again and replaced.
    """
    key = pool_key(log, config, seed, learn_termination)
    path = folder / "pools" / f"{key}.safetensors"
    if path.is_file():
        try:
            return load_pool(path, log, config), True
        except DataError:
            path.unlink()
    pool = fit_pool(log, config, seed, learn_termination=learn_termination, progress=progress)
    save_pool(path, pool)
    about = {
        "settings": dataclasses.asdict(config),
        "seed": seed,
        "log": dict(log.provenance),
        "rows": len(log),
    }
    write_json(path.with_suffix(".json"), about)
    return pool, False
