"""Theorem 1's bound on |E Q - eta|, in a family of MDPs where its probability is known exactly."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlog1py, xlogy
from jaxtyping import Array

from phyb.theory.claims.base import ALWAYS, Case, Measured, claim

LARGEST = 200


def two_outcomes(low: Array, kept: Array, ratio: Array) -> tuple[Array, Array]:
    """F and sum alpha^2 of `kept` models, `low` of them with value 0 and the others 1, at lambda = `ratio`."""
    tilt = jnp.exp(-1.0 / ratio)
    total = low + (kept - low) * tilt
    return (kept - low) * tilt / total, (low + (kept - low) * tilt**2) / total**2


def _draw(rng: np.random.Generator, count: int) -> Case:
    drawn = np.exp(rng.uniform(np.log(2.0), np.log(LARGEST + 0.99), count)).astype(int)
    kept = np.where(rng.uniform(size=count) < 0.4, drawn, 1 + rng.integers(0, drawn))
    p = np.clip(kept / drawn * rng.uniform(0.0, 1.5, count), 0.0, 1.0)
    small = -np.expm1(np.log(rng.uniform(0.05, 0.6, count)) / drawn)
    return {
        "ensemble_size": drawn,
        "subset_size": kept,
        "probability_of_bad": np.where(rng.uniform(size=count) < 0.3, small, p),
        "temperature_ratio": np.exp(rng.uniform(-4.0, 4.0, count)),
        "discount": rng.uniform(0.02, 0.9, count),
        "delta": rng.choice([0.01, 0.05, 0.1, 0.2], count),
    }


@claim(
    "theorem-1-bound",
    "Theorem 1: distance from eta",
    _draw,
    condition="probability at least 1 - delta",
    corrected="k = N and lambda >= Delta",
    control="k / N",
    tolerance=1e-12,
)
def theorem_1_bound(case: Case, flaw: float) -> Measured:
    """With probability at least 1 - delta over the ensemble,
    `|E Q^pi - eta(pi)| <= 2 gamma R_max / (1 - gamma)^2 sqrt(sum_i alpha_i^2 / 2 ln(2 |S| |A| / delta))`.

    MDPs: one action and three states; a model leads from the start to the good state or, with probability p over
    the prior, to the bad one, and both last for ever with rewards +1 and -1. The number of bad models among N is
    binomial, so the probability that the bound breaks is a finite sum. The slack is delta less that probability. The
    proof applies Hoeffding's inequality to order statistics with fixed weights; they are neither independent nor fixed.
    """
    total, kept, p, gamma = case["ensemble_size"], case["subset_size"], case["probability_of_bad"], case["discount"]
    bad = jnp.arange(LARGEST + 1)
    log_probability = gammaln(total + 1.0) - gammaln(bad + 1.0) - gammaln(jnp.maximum(total - bad, 0) + 1.0)
    log_probability = log_probability + xlogy(bad, p) + xlog1py(total - bad, -p)
    probability = jnp.where(bad <= total, jnp.exp(log_probability), 0.0)
    value, squares = two_outcomes(jnp.minimum(bad, kept), kept, case["temperature_ratio"])
    # Values reach from -1 / (1 - gamma) to 1 / (1 - gamma); f is 0 to 1 on that range.
    span = 2.0 / (1.0 - gamma)
    miss = gamma * span * jnp.abs(value - jnp.sum(probability * value))
    bound = gamma * span / (1.0 - gamma) * jnp.sqrt(0.5 * squares * jnp.log(6.0 / case["delta"]))
    broken = jnp.sum(jnp.where(miss > bound * (1.0 - flaw) * (1.0 + 1e-12), probability, 0.0))
    inside = (kept == total) & (case["temperature_ratio"] >= 1.0)
    return Measured(case["delta"] - broken, ALWAYS, inside, kept / total)
