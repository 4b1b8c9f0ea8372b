"""Making a case readable: few digits, distributions that still sum to 1."""

from __future__ import annotations

from typing import Any

import numpy as np

DISTRIBUTIONS = ("models", "truth_model", "policy", "reference", "start", "rivals", "fixed_weights")


def rounded(case: dict[str, Any], digits: int) -> dict[str, Any]:
    """The case with `digits` digits; whole numbers, flags and seeds stay."""
    return {name: _round(name, np.asarray(value), digits) for name, value in case.items()}


def _round(name: str, value: np.ndarray, digits: int) -> np.ndarray:
    if value.dtype.kind in "biu":
        return value
    if name in DISTRIBUTIONS:
        return _round_simplex(value, 10**digits)
    if name == "discount":
        return np.clip(np.round(value, max(digits, 2)), 0.0, 0.99)
    if value.ndim == 0 and value > 0:
        return np.asarray(float(f"{float(value):.{digits}g}"))
    return np.round(value, digits) + 0.0


def _round_simplex(value: np.ndarray, parts: int) -> np.ndarray:
    """Whole shares of 1 / parts, as near as possible, that sum to 1: the largest remainders are rounded up."""
    scaled = value * parts
    whole = np.floor(scaled)
    missing = parts - np.round(whole.sum(axis=-1, keepdims=True)).astype(int)
    rank = np.argsort(np.argsort(-(scaled - whole), axis=-1), axis=-1)
    return (whole + (rank < missing)) / parts
