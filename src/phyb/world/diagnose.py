"""Is the pool fit for use? Its errors on hold-out episodes, beside the errors of a trivial predictor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from phyb.data.log import Log
from phyb.dynamics.pool import Pool
from phyb.errors import UsageError
from phyb.storage.mapped import column_range, column_std
from phyb.world.calibration import Bin, calibration_bins, coverage, number, rank_correlation, rmse, share_explained
from phyb.world.model import Termination
from phyb.world.probe import ask, roll_out
from phyb.world.verdict import Training, in_words, overall_share

FORMAT_VERSION = 2
LENGTHS = (1, 2, 5, 10, 20, 50, 100)
MAX_ROWS = 10_000
"""Hold-out rows looked at; a random choice of a larger hold-out says the same."""
_OF_COLUMNS = ("std", "spread", "member_squared_error", "level")


class OneStep(TypedDict):
    """One predicted number (of the next observation, or the reward), one step ahead."""

    name: str
    trivial_rmse: float | None
    """Error of predicting no change, or the mean reward of the rows outside the hold-out."""
    member_rmse: float | None
    """Error of one member drawn at random."""
    pool_rmse: float | None
    """Error of the mean over members."""
    share_explained: float | None
    """1 - (pool_rmse / trivial_rmse)^2; None where the trivial prediction is exact up to rounding."""
    exact: bool
    """The pool predicts this number without error and knows it; calibration then has no meaning."""
    coverage_50: float | None
    """Share of outcomes inside the central half of the predicted distribution; 0.5 when calibrated."""
    coverage_90: float | None
    """The same for the central 90 %."""
    standardised_squared_error: float | None
    """Mean of (error / predicted std)^2; 1 when calibrated, above 1 when over-confident."""
    bins: list[Bin]
    spread_error_correlation: float | None
    """Rank correlation of the members' disagreement with the absolute error: does disagreement warn of error?"""


class Ends(TypedDict):
    """How well the end of an episode is foreseen, one step ahead."""

    kind: str
    """"learned", or "rule": the rule applied to the members' sampled successors."""
    precision: float | None
    """Share of foreseen ends that happened; an end is foreseen when members give it more than one half."""
    recall: float | None
    """Share of ends that were foreseen."""
    observed_rate: float | None
    predicted_rate: float | None
    false_end_rate: float | None
    """Mean predicted probability of an end on rows that went on."""
    worst_member_false_end_rate: float | None
    """The same for the member that sees most ends; pessimism will listen to it."""


class Growth(TypedDict):
    """Root mean square error of one number after each rollout length."""

    name: str
    sampled: list[float | None]
    """Rollouts that follow one random member each and sample its noise, as imagination does."""
    mean: list[float | None]
    """Rollouts that move to the mean over members, without noise."""
    trivial: list[float | None]
    """Staying at the start; the mean reward for the reward."""


class Rollouts(TypedDict):
    """Open-loop rollouts along logged actions; every start has the full length ahead of it in its episode."""

    lengths: list[int]
    rollouts: int
    overall: Growth
    """All observation numbers together, each divided by its standard deviation in the log."""
    dimensions: list[Growth]


class Diagnostics(TypedDict):
    """What `diagnose` found; strict JSON."""

    format: int
    rows: int
    episodes: int
    members: int
    share_explained: float | None
    """Of the numbers the pool had to learn, one step ahead; see `phyb.world.verdict.overall_share`."""
    better_than_trivial: bool
    """False where `share_explained` is not above 0; such a pool is not used unless the user accepts it."""
    spread_error_correlation: float | None
    """Rank correlation of disagreement with error, all numbers together in units of their trivial error."""
    doubt_bins: list[Bin]
    """Rows of similar disagreement: the members' spread ("predicted_std") and the pool's error ("observed_rmse"), both
    root mean squares over the numbers that move, each in units of its trivial error."""
    dimensions: list[OneStep]
    termination: Ends | None
    rollouts: Rollouts
    training: Training | None
    verdict: list[str]
    """What these numbers mean in words."""


def diagnose(
    pool: Pool,
    log: Log,
    holdout_rows: Int[np.ndarray, " rows"],
    *,
    termination: Termination | None = None,
    training: Training | None = None,
    lengths: Sequence[int] = LENGTHS,
    seed: int = 0,
) -> Diagnostics:
    """Compare the pool with hold-out rows: one-step error, calibration, doubt, error growth in rollouts, ends.

    Args:
        pool: the models.
        log: the log they were trained on.
        holdout_rows: row numbers of the log kept away from training, see `phyb.dynamics.rows.split_rows`.
        termination: how imagined episodes end: a rule, "learned", or "none" (then ends are not judged).
        training: how its training ended, see `phyb.world.verdict.how_training_ended`.
        lengths: rollout lengths to measure; lengths that too few hold-out episodes reach are left out.
        seed: chooses rows and starts where there are more than needed, and the noise of sampled rollouts.
    """
    rows = np.unique(holdout_rows)
    if len(rows) == 0:
        raise UsageError("the hold-out has no rows: raise --holdout-fraction or bring a longer log")
    generator = np.random.default_rng([seed, 0xD1])
    outside = np.delete(np.arange(len(log)), rows)
    mean_reward = float(np.mean(log.rewards[outside] if len(outside) else log.rewards))
    chosen = rows if len(rows) <= MAX_ROWS else np.sort(generator.choice(rows, MAX_ROWS, replace=False))
    outcomes = _outcomes(log, chosen)
    # Below the rounding of float32 an error or a spread is none.
    floor = 1e-6 * np.max(np.abs(outcomes), axis=0) + 1e-30
    noise = generator.standard_normal((len(chosen), log.observation_size))
    columns = (log.observations[chosen], log.actions[chosen], outcomes, noise, floor)
    told = ask(pool, *(jnp.asarray(column, jnp.float32) for column in columns), termination=termination or "none")
    said = {name: np.asarray(part, np.float64) for name, part in told._asdict().items()}
    errors, trivial = outcomes - said["mean"], outcomes - _unmoved(log, chosen, mean_reward)
    dimensions = [
        _judge(name, errors[:, i], trivial[:, i], floor[i], {part: said[part][:, i] for part in _OF_COLUMNS})
        for i, name in enumerate(_names(log))
    ]
    doubt, off = _in_trivial_units(dimensions, said["spread"]), _in_trivial_units(dimensions, errors)
    share = overall_share(dimensions)
    rollouts = _rollouts(pool, log, rows, lengths, mean_reward, generator)
    return {
        "format": FORMAT_VERSION,
        "rows": len(chosen),
        "episodes": len(np.unique(log.episode_of_row[rows])),
        "members": pool.size,
        "share_explained": share,
        "better_than_trivial": share is None or share > 0.0,
        "spread_error_correlation": rank_correlation(doubt, off),
        "doubt_bins": calibration_bins(off, doubt),
        "dimensions": dimensions,
        "termination": _ends(termination, said["end"], log.terminated[chosen]),
        "rollouts": rollouts,
        "training": training,
        "verdict": in_words(share, dimensions, rollouts, training),
    }


def _names(log: Log) -> list[str]:
    return [f"observation {column}" for column in range(log.observation_size)] + ["reward"]


def _outcomes(log: Log, rows: np.ndarray) -> Float[np.ndarray, "*rows out"]:
    return np.concatenate([log.next_observations[rows], log.rewards[rows][..., None]], axis=-1).astype(np.float64)


def _unmoved(log: Log, rows: np.ndarray, mean_reward: float) -> Float[np.ndarray, "rows out"]:
    return np.concatenate([log.observations[rows], np.full((len(rows), 1), mean_reward)], axis=-1)


def _in_trivial_units(dimensions: list[OneStep], parts: Float[np.ndarray, "rows out"]) -> Float[np.ndarray, " rows"]:
    """Each row's root mean square over the numbers that move, in units of their trivial errors."""
    unit = np.array([each["trivial_rmse"] if each["share_explained"] is not None else np.inf for each in dimensions])
    return np.linalg.norm(parts / unit, axis=1) / np.sqrt(max(1, np.isfinite(unit).sum()))


def _judge(name: str, errors: np.ndarray, trivial: np.ndarray, floor: float, said: dict[str, np.ndarray]) -> OneStep:
    std, level = np.maximum(said["std"], floor), said["level"]
    exact = bool(np.max(np.abs(errors)) <= floor and np.max(std) <= floor)
    pool_rmse, trivial_rmse = rmse(errors), rmse(trivial)
    return {
        "name": name,
        "trivial_rmse": trivial_rmse,
        "member_rmse": number(np.sqrt(np.mean(said["member_squared_error"]))),
        "pool_rmse": pool_rmse,
        "share_explained": share_explained(pool_rmse, trivial_rmse) if (trivial_rmse or 0.0) > floor else None,
        "exact": exact,
        "coverage_50": None if exact else coverage(level, 0.5),
        "coverage_90": None if exact else coverage(level, 0.9),
        "standardised_squared_error": None if exact else number(np.mean((errors / std) ** 2)),
        "bins": [] if exact else calibration_bins(errors, std),
        "spread_error_correlation": rank_correlation(said["spread"], np.abs(errors)),
    }


def _ends(termination: Termination | None, end: np.ndarray, ended: np.ndarray) -> Ends | None:
    if termination is None or termination == "none":
        return None
    probability = end.mean(axis=1)
    foreseen = probability > 0.5
    hits = int(np.sum(foreseen & ended))
    false_ends = None if ended.all() else end[~ended].mean(axis=0)
    return {
        "kind": "rule" if callable(termination) else termination,
        "precision": hits / int(foreseen.sum()) if foreseen.any() else None,
        "recall": hits / int(ended.sum()) if ended.any() else None,
        "observed_rate": number(ended.mean()),
        "predicted_rate": number(probability.mean()),
        "false_end_rate": None if false_ends is None else number(false_ends.mean()),
        "worst_member_false_end_rate": None if false_ends is None else number(false_ends.max()),
    }


def _steps_ahead(log: Log, rows: np.ndarray) -> Int[np.ndarray, " rows"]:
    """For each hold-out row, the steps that can be followed from it inside the hold-out and its episode."""
    breaks = np.flatnonzero((np.diff(rows) != 1) | log.episode_ends[rows[:-1]])
    last, place = np.append(breaks, len(rows) - 1), np.arange(len(rows))
    return last[np.searchsorted(last, place)] - place + 1


def _rollouts(
    pool: Pool, log: Log, rows: np.ndarray, lengths: Sequence[int], mean_reward: float, generator: np.random.Generator
) -> Rollouts:
    ahead = _steps_ahead(log, rows)
    # One population for all lengths, so that the curve shows the length and not other starts. A length that
    # only a few odd episodes reach would narrow that population to them.
    enough = max(1, int(np.sum(log.episode_ends[rows])) // 4)
    kept = sorted({int(n) for n in lengths if n >= 1 and np.sum(ahead >= n) >= enough}) or [1]
    # The mean rollout asks every member about every start: bound their product.
    each = max(1, int(np.clip(10_240 // pool.size, 64, 512)) // pool.size)
    count, steps = each * pool.size, kept[-1]
    able = rows[ahead >= steps]
    starts = generator.choice(able, count, replace=len(able) < count)
    path = starts[None, :] + np.arange(steps)[:, None]
    paths = roll_out(
        jax.random.key(int(generator.integers(2**31))),
        pool,
        jnp.asarray(log.observations[starts].reshape(pool.size, each, -1), jnp.float32),
        jnp.asarray(log.actions[path].reshape(steps, pool.size, each, -1), jnp.float32),
    )
    at = np.array(kept) - 1
    truth = _outcomes(log, path[at])
    sampled, mean = (np.asarray(part, np.float64).reshape(steps, count, -1)[at] - truth for part in paths)
    trivial = _unmoved(log, starts, mean_reward) - truth
    scale = column_std(log.observations) if log.on_disk else np.std(log.observations, axis=0, dtype=np.float64)
    moving = np.flatnonzero(scale > 1e-6 * np.max(np.abs(column_range(log.observations)), axis=0))

    def growth(name: str, columns: np.ndarray, unit: np.ndarray) -> Growth:
        curves = [[rmse(step[:, columns] / unit) for step in errors] for errors in (sampled, mean, trivial)]
        return {"name": name, "sampled": curves[0], "mean": curves[1], "trivial": curves[2]}

    return {
        "lengths": kept,
        "rollouts": count,
        "overall": growth("all observations, standardised", moving, scale[moving]),
        "dimensions": [growth(name, np.array([i]), np.ones(1)) for i, name in enumerate(_names(log))],
    }
