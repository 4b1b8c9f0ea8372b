"""How much memory a run will need, said before it starts, and what the machine has."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from pathlib import Path

from phyb.algorithms.settings import Settings
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
        told = ", ".join(f"{name} {_spoken(size)}" for name, size in parts.items())
        return f"{told}, {_spoken(self.total)} in all"


def estimate(rows: int, observation_size: int, action_size: int, settings: Settings, *, on_disk: bool) -> Need:
    """The memory a run needs, within a factor of about two.

    Rows: the log itself; beside it, for the pool, three sets of standardised inputs and targets and one of float64
    changes; for the policy, the rows on the device and a temporary copy. On disk none of these counts.
    Networks: six copies of the parameters of the members in training (model, best, gradient, two moments, update), and
    what the hidden layers hold of a batch, or of the hold-out, at one time.

    Args:
        rows: rows of the log.
        observation_size: numbers in one observation.
        action_size: numbers in one action.
        settings: sizes of networks and batches.
        on_disk: whether the rows stay on disk.
    """
    width = 2 * observation_size + action_size + 1
    networks, kept_pool = (
        (0, 0) if settings.pool is None else _pool(rows, observation_size, action_size, settings, on_disk)
    )
    optimised = _agent(observation_size, action_size, settings) + kept_pool
    if on_disk:
        return Need(_BOOKKEEPING * rows, networks, optimised)
    inputs = _NUMBER * rows * width
    prepared = 0 if settings.pool is None else 3 * inputs + 8 * rows * observation_size
    return Need(inputs + _BOOKKEEPING * rows, prepared + networks, 2 * inputs + optimised)


def _pool(rows: int, observation_size: int, action_size: int, settings: Settings, on_disk: bool) -> tuple[int, int]:
    """Bytes of a pool's networks in training, and of the finished pool with what it is asked once."""
    pool = settings.pool
    if pool is None:
        return 0, 0
    outputs = 2 * observation_size + 3
    model = _parameters((observation_size + action_size, *pool.model_hidden, outputs))
    held = round(rows * pool.holdout_fraction)
    judged = 3 * min(held, MOST_HOLDOUT_ROWS if on_disk else held) * (max(pool.model_hidden, default=1) + outputs)
    trained = 2 * pool.model_batch_size * sum(pool.model_hidden)
    networks = min(pool.pool_size, pool.members_at_once) * (6 * model + max(judged, trained))
    asked = _NUMBER * pool.pool_size * rows * outputs
    remembered = getattr(settings.agent, "real_target", "") == "belief"
    remembered = 2 * asked if remembered and asked <= settings.training.prediction_memory * 2**30 else 0
    return _NUMBER * networks, _NUMBER * pool.pool_size * model + remembered


def _agent(observation_size: int, action_size: int, settings: Settings) -> int:
    """Bytes of an algorithm's own networks and of one update; it does not need what it has no setting for."""

    def size(name: str, otherwise: int = 0) -> int:
        return int(getattr(settings.agent, name, otherwise))

    hidden = tuple(getattr(settings.agent, "policy_hidden", (256, 256)))
    candidates = size("actor_candidates", 1) + size("reference_candidates") + size("logged_candidates")
    states = size("real_batch_size") + size("rollouts") + size("batch_size")
    update = 3 * states * candidates * sum(hidden)
    belief = getattr(settings.agent, "belief", None)
    if belief is not None and settings.pool is not None:
        members = belief.ensemble_size * (size("rows_per_step") or size("rollouts"))
        successors = members * belief.noise_samples
        update += 2 * (members * sum(settings.pool.model_hidden) + successors * (observation_size + sum(hidden)))
        if getattr(settings.agent, "value_estimator", "") == "direct":
            update += successors * candidates * sum(hidden)
    starts = size("rollout_starts")
    if starts and settings.pool is not None:  # rows in the memory and on the way to it; what the models hold of a step
        width = 2 * observation_size + action_size + 2
        update += starts * size("rollout_length") * (size("rollout_rounds") + 2) * width
        update += 2 * starts * settings.pool.pool_size * (max(settings.pool.model_hidden, default=1) + width)
    return _NUMBER * (30 * _parameters((observation_size, *hidden, 2 * action_size)) + update)


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
    """Words of warning if a run may not fit into the memory that is free.

    Raises:
        MemoryShortError: it cannot fit, even if only half of the estimate is needed.
    """
    if free is None or need.total <= free:
        return None
    smaller = "Lower --members-at-once, --rollouts, --real-batch-size or --model-hidden"
    advice = f"{smaller}." if on_disk else f"Keep the rows on disk with --rows-in disk. {smaller}, or free memory."
    if need.total > 2 * free:
        raise MemoryShortError(f"This run needs about {need}, but only {_spoken(free)} are free. {advice}")
    return f"this run may run out of memory: {_spoken(free)} are free. {advice}"


def _parameters(sizes: tuple[int, ...]) -> int:
    """Weights and biases of a fully connected network."""
    return sum((inp + 1) * out for inp, out in itertools.pairwise(sizes))


def _spoken(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.0f} MiB"


def line(need: Need, free: int | None) -> str:
    """One line for every run: what it will take, beside what there is."""
    return f"memory about {need}" + ("" if free is None else f"; {_spoken(free)} are free")
