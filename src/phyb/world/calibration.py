"""Plain statistics that compare predictions with what happened: numbers JSON can hold, or None."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from jaxtyping import Float

MAX_BINS = 10
MIN_ROWS_PER_BIN = 20


class Bin(TypedDict):
    """Rows of similar predicted spread, and how far off their predictions were."""

    predicted_std: float | None
    """Root mean square of the predicted standard deviations."""
    observed_rmse: float | None
    """Root mean square of the errors; equals `predicted_std` for a calibrated pool."""
    rows: int


def number(value: float | np.floating) -> float | None:
    """The value as a plain float; None where it is not finite, since strict JSON has no word for that."""
    return float(value) if np.isfinite(value) else None


def rmse(errors: Float[np.ndarray, " rows"]) -> float | None:
    """Root mean square of errors; None where there are none."""
    if np.size(errors) == 0:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return number(np.sqrt(np.mean(np.square(errors, dtype=np.float64))))


def share_explained(error: float | None, trivial: float | None) -> float | None:
    """1 - (error / trivial)^2: 1 is perfect, 0 no better than trivial; None where trivial makes no error."""
    if error is None or not trivial:
        return None
    return number(1.0 - (error / trivial) ** 2)


def calibration_bins(errors: Float[np.ndarray, " rows"], stds: Float[np.ndarray, " rows"]) -> list[Bin]:
    """Rows sorted by predicted standard deviation and cut into groups of equal size."""
    order = np.argsort(stds, kind="stable")
    count = int(np.clip(len(order) // MIN_ROWS_PER_BIN, 1, MAX_BINS))
    return [
        {"predicted_std": rmse(stds[group]), "observed_rmse": rmse(errors[group]), "rows": len(group)}
        for group in np.array_split(order, count)
    ]


def coverage(levels: Float[np.ndarray, " rows"], share: float) -> float | None:
    """How often the outcome fell into the central interval that should hold `share` of outcomes.

    `levels` are the predicted probabilities F(y) of an outcome at or below the observed y: it lies in
    the central interval exactly if |F(y) - 1/2| <= share / 2.
    """
    return number(np.mean(np.abs(levels - 0.5) <= 0.5 * share))


def rank_correlation(first: Float[np.ndarray, " rows"], second: Float[np.ndarray, " rows"]) -> float | None:
    """Spearman's correlation of ranks; ties share their mean rank; None where either side is constant."""
    a, b = _mean_ranks(first), _mean_ranks(second)
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt(np.sum(a**2) * np.sum(b**2))
    return number(np.sum(a * b) / size) if size > 0 else None


def _mean_ranks(values: np.ndarray) -> np.ndarray:
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - 0.5 * (counts - 1))[group]
