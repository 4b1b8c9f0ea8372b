"""Rows of a log as models are trained on them: split by episodes, standardised, in memory or in mapped files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from phyb.data.log import Log
from phyb.networks import Standardizer
from phyb.storage.mapped import on_device, write_rows

MOST_HOLDOUT_ROWS = 100_000
"""Hold-out rows that the members of a log on disk are checked on; they are evenly spread, and kept in memory."""


class Rows(NamedTuple):
    """Rows as a model sees them, in the order of the log: standardised inputs and outputs, and what ends."""

    inputs: Float[Array, "rows inp"]
    targets: Float[Array, "rows out"]
    done: Bool[Array, " rows"]
    steps_before: Int[Array, " rows"]
    """How many rows lie before each row in its episode without a gap; windows of rows must not reach further back."""


class Prepared(NamedTuple):
    """What a pool is trained on, with the units that turn raw numbers into it."""

    inputs: Standardizer
    outputs: Standardizer
    train: Rows
    holdout: Rows


def split_rows(log: Log, holdout_fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers for training and for hold-out; whole episodes go to one side, since neighbouring rows are alike.

    A log of very few episodes is cut inside its episodes instead: the last share of its rows is held out.
    """
    episode = log.episode_of_row
    count = int(episode[-1]) + 1
    if count < 5:
        cut = max(1, min(round(len(log) * (1.0 - holdout_fraction)), len(log) - 1))
        return np.arange(cut), np.arange(min(cut, len(log) - 1), len(log))
    held = np.random.default_rng([seed, 0x40]).permutation(count)[: max(1, round(count * holdout_fraction))]
    is_held = np.isin(episode, held)
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def prepare(log: Log, holdout_fraction: float, seed: int, folder: Path | None = None) -> Prepared:
    """Split and standardise; units are those of the training rows.

    With a folder the training rows go to files there that the device reads, a block at a time. The numbers are the
    same, bit for bit, but at most `MOST_HOLDOUT_ROWS` hold-out rows are kept.
    """
    train, holdout = split_rows(log, holdout_fraction, seed)
    if folder is not None and len(holdout) > MOST_HOLDOUT_ROWS:
        holdout = holdout[np.linspace(0, len(holdout) - 1, MOST_HOLDOUT_ROWS).astype(np.int64)]

    def both(name: str, raw: Callable[[np.ndarray], np.ndarray]) -> tuple[Standardizer, Array, Array]:
        units, rows = _in_memory(raw, train) if folder is None else _on_disk(raw, train, folder / name)
        return units, rows, units(jnp.asarray(raw(holdout)))

    inputs, *given = both("inputs", lambda rows: _raw_inputs(log, rows))
    outputs, *asked = both("targets", lambda rows: _raw_targets(log, rows))
    ends = (jnp.asarray(log.terminated[rows]) for rows in (train, holdout))
    before = (jnp.asarray(log.steps_before(rows)) for rows in (train, holdout))
    return Prepared(inputs, outputs, *map(Rows, given, asked, ends, before))


def bootstrap_rows(key: PRNGKeyArray, places: Int[Array, " drawn"], rows: int) -> Int[Array, " drawn"]:
    """The rows at some places of a member's bootstrap sample, which is `rows` long and drawn with replacement.

    Each place has a random number of its own, so that the sample, as large as the log for each member, need not be
    kept: it is `jax.random.randint(key, (rows,), 0, rows)`, of which only the entries asked for are computed.
    """
    span, counts = jnp.uint32(rows), places.astype(jnp.uint32)

    def bits(key: PRNGKeyArray) -> Array:
        pairs = jnp.concatenate([jnp.zeros_like(counts), counts])
        first, second = threefry_2x32(jax.random.key_data(key)[:2], pairs).reshape(2, -1)
        return first ^ second

    high, low = (bits(half) % span for half in jax.random.split(key))
    carry = jnp.uint32(2**16) % span
    return ((high * (carry * carry % span) + low) % span).astype(jnp.int32)


def _raw_inputs(log: Log, rows: np.ndarray) -> np.ndarray:
    return np.concatenate([log.observations[rows], log.actions[rows]], axis=1).astype(np.float32)


def _raw_targets(log: Log, rows: np.ndarray) -> np.ndarray:
    change = log.next_observations[rows].astype(np.float64) - log.observations[rows]
    return np.concatenate([change, log.rewards[rows][:, None]], axis=1).astype(np.float32)


def _in_memory(raw: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> tuple[Standardizer, Array]:
    array = jnp.asarray(raw(rows))
    units = Standardizer.fit(array)
    return units, units(array)


def _on_disk(raw: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, path: Path) -> tuple[Standardizer, Array]:
    shape = (len(rows), raw(rows[:1]).shape[1])
    array = write_rows(path, shape, np.float32, lambda block: raw(rows[block]))
    units = jax.block_until_ready(Standardizer.fit(on_device(array)))
    standard = path.with_name(f"{path.name}-standard")
    array = write_rows(standard, shape, np.float32, lambda block: np.asarray(units(array[block])))
    path.unlink()
    return units, on_device(array)
