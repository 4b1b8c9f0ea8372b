"""How much memory a run will need, said before it starts, and what the machine has."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import jax

from phyb.algorithms.base import Algorithm
from phyb.data.formats import LogHeader
from phyb.data.log import Log
from phyb.dynamics.fit import PoolConfig
from phyb.dynamics.registry import make_model
from phyb.dynamics.rows import MOST_HOLDOUT_ROWS
from phyb.errors import MemoryShortError

BASE = 700 * 2**20
"""Python, JAX, compiled code, evaluation and the report."""
_BOOKKEEPING = 40
"""Bytes per row that no mode avoids: flags, episode numbers, the search for repeated rows."""
_NUMBER = 4


@dataclasses.dataclass(frozen=True)
class Need:
    """Bytes that the parts of a run take at their peak. Pool and policy are trained one after the other."""

    log: int
    pool: int
    policy: int

    @property
    def total(self) -> int:
        """Bytes at the peak of the run, Python and compiled code included."""
        return BASE + self.log + max(self.pool, self.policy)

    def __str__(self) -> str:
        parts = {"log": self.log, "pool training": self.pool, "policy optimisation": self.policy}
        parts_text = ", ".join(f"{name} {_format(size)}" for name, size in parts.items())
        return f"{parts_text}, {_format(self.total)} in all"


def estimate(log: Log | LogHeader, algorithm: Algorithm[Any, Any], *, on_disk: bool) -> Need:
    """The memory that a run on a log needs, within a factor of about two.

    Rows: the log itself; beside it, for the pool, three sets of standardised inputs and targets and one of float64
    changes; for the policy, the rows on the device and a temporary copy. On disk none of these counts.
    Networks: six copies of the parameters of the members in training (model, best, gradient, two moments, update), and
    what the hidden layers hold of a batch, or of the hold-out, at one time; then what the algorithm says it needs.
    """
    rows = log.rows if isinstance(log, LogHeader) else len(log)
    observation_size, action_size = log.observation_size, log.action_size
    pool = algorithm.settings.pool
    networks, finished = (0, 0) if pool is None else _pool(rows, observation_size, action_size, pool, on_disk)
    if pool is not None and algorithm.asks_about_log:
        predicted = _NUMBER * pool.pool_size * rows * (2 * observation_size + 3)
        fits = predicted <= algorithm.settings.training.prediction_memory * 2**30
        finished += 2 * predicted if fits else 0
    policy = algorithm.memory(observation_size, action_size) + finished
    if on_disk:
        return Need(_BOOKKEEPING * rows, networks, policy)
    inputs = _NUMBER * rows * (2 * observation_size + action_size + 1)
    prepared = 0 if pool is None else 3 * inputs + 8 * rows * observation_size
    return Need(inputs + _BOOKKEEPING * rows, prepared + networks, 2 * inputs + policy)


def _pool(rows: int, observation_size: int, action_size: int, pool: PoolConfig, on_disk: bool) -> tuple[int, int]:
    """Bytes of a pool's networks in training, and of the finished pool."""
    outputs = 2 * observation_size + 3
    kind = (observation_size + action_size, observation_size + 1, pool.model_hidden, pool.model_window)
    blank = jax.eval_shape(lambda: make_model(pool.model, jax.random.key(0), *kind))
    model = sum(leaf.size for leaf in jax.tree.leaves(blank))
    steps = 1 if pool.model_window == 1 else 6 * pool.model_window  # gates and states of each step of a window
    held = round(rows * pool.holdout_fraction)
    rows = 3 * min(held, MOST_HOLDOUT_ROWS if on_disk else held)
    checked = steps * rows * (max(pool.model_hidden, default=1) + outputs)
    trained = 2 * steps * pool.model_batch_size * sum(pool.model_hidden)
    networks = min(pool.pool_size, pool.members_at_once) * (6 * model + max(checked, trained))
    return _NUMBER * networks, _NUMBER * pool.pool_size * model


def available() -> int | None:
    """Bytes of memory this process may still take, by the system and by the limit of its container; None if unknown."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    with contextlib.suppress(OSError, ValueError):  # "max" is no number: there is no limit
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        found.append(max(limit - used, 0))
    return min(found, default=None)


def check(need: Need, free: int | None, *, on_disk: bool) -> str | None:
    """A warning if a run may not fit into the memory that is free; an error if not even half of the estimate would."""
    if free is None or need.total <= free:
        return None
    smaller = "Lower --members-at-once, --rollouts, --real-batch-size or --model-hidden"
    advice = f"{smaller}." if on_disk else f"Keep the rows on disk with --rows-in disk. {smaller}, or free memory."
    if need.total > 2 * free:
        raise MemoryShortError(f"This run needs about {need}, but only {_format(free)} are free. {advice}")
    return f"this run may run out of memory: {_format(free)} are free. {advice}"


def _format(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.0f} MiB"


def line(need: Need, free: int | None) -> str:
    """One line for every run: what it will take, beside what there is."""
    return f"memory about {need}" + ("" if free is None else f"; {_format(free)} are free")
