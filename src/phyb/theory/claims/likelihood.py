"""Proposition 1: the likelihood ratio, with fixed weights, with weights that follow the values, and for many models.

The value of a model, `q_tau`, is drawn from a Kumaraswamy prior on [0, 1], `F(q) = 1 - (1 - q^a)^b`: it takes many
shapes and its quantiles are known in closed form. Integrals over the prior are Gauss sums over quantiles.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from phyb.belief.weights import likelihood_ratio
from phyb.theory import operators as op
from phyb.theory.claims.base import ALWAYS, Case, Measured, claim
from phyb.theory.mdp import Hybrid, dirichlet_models

NODES, GAUSS = (np.asarray(x) for x in np.polynomial.legendre.leggauss(60))
NODES, GAUSS = 0.5 * (NODES + 1.0), 0.5 * GAUSS
DRAWN, REPEATS, MANY = 5, 200, 2000
SIGMAS = 7.0
"""Standard errors that count as a violation: by sampling noise alone, less than one case in 10^11."""


def quantile(u: Array, case: Case) -> Array:
    """F^-1(u) of the prior."""
    return (1.0 - (1.0 - u) ** (1.0 / case["shape_b"])) ** (1.0 / case["shape_a"])


def _draw_prior(rng: np.random.Generator, count: int) -> Case:
    # Shapes of at least 1 at the upper end keep the quantile function smooth enough for a Gauss sum.
    a, b = (np.exp(rng.uniform(low, 1.0, count)) for low in (-0.3, 0.0))
    return {"shape_a": a, "shape_b": b, "seed": rng.integers(0, 2**31, count)}


def _uniform(case: Case, shape: tuple[int, ...]) -> Array:
    """Uniform numbers from the case's own seed: a case stays small, and can be repeated."""
    # A multiplicative hash of (seed, index): fast, and good enough for averages of a few thousand.
    index = jnp.arange(1, int(np.prod(shape)) + 1, dtype=jnp.uint64) * jnp.uint64(0x9E3779B97F4A7C15)
    x = index + case["seed"].astype(jnp.uint64) * jnp.uint64(0xBF58476D1CE4E5B9)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> jnp.uint64(shift))) * jnp.uint64(factor)
    x = x ^ (x >> jnp.uint64(31))
    return (x >> jnp.uint64(11)).astype(jnp.float64).reshape(shape) / 2.0**53


def _draw_ensembles(rng: np.random.Generator, count: int) -> Case:
    kept = rng.integers(1, DRAWN + 1, count)
    weights = dirichlet_models(rng, 1.0, (count, DRAWN)) * (np.arange(DRAWN) < kept[:, None])
    weights /= weights.sum(axis=1, keepdims=True)
    return _draw_prior(rng, count) | {"fixed_weights": weights, "subset_size": kept}


@claim(
    "proposition-1",
    "Proposition 1: likelihood ratio, fixed weights",
    _draw_ensembles,
    condition="weights are fixed numbers",
    control="k",
)
def proposition_1(case: Case, flaw: float) -> Measured:
    """With `q_(i)` the i-th smallest of N values drawn from the prior, `E sum_i alpha_i q_(i) = E[xi_N(q) q]`, where
    `xi_N(q) = sum_i alpha_i N! / (i! (N - i - 1)!) F(q)^i (1 - F(q))^(N - i - 1)`.

    200 ensembles of 5 values against the closed form; the slack is 7 standard errors less the distance in standard
    errors, as a share of 7.
    """
    alpha = case["fixed_weights"]
    ordered = jnp.sort(quantile(_uniform(case, (REPEATS, DRAWN)), case), axis=1)
    sums = ordered @ alpha
    nodes = jnp.asarray(NODES)
    ratio = likelihood_ratio(nodes, alpha, DRAWN) * nodes ** (-flaw)
    closed = jnp.sum(jnp.asarray(GAUSS) * quantile(nodes, case) * ratio)
    error = jnp.std(sums) / jnp.sqrt(REPEATS - 1.0)
    return Measured(1.0 - jnp.abs(jnp.mean(sums) - closed) / error / SIGMAS, ALWAYS, ALWAYS, case["subset_size"])


def _draw_tempered(rng: np.random.Generator, count: int) -> Case:
    return _draw_prior(rng, count) | {"temperature": np.exp(rng.uniform(-4.0, 3.0, count))}


@claim(
    "proposition-1-values",
    "Proposition 1: weights that follow the values",
    _draw_tempered,
    condition="weights solve the entropy-regularised problem",
    expected="fails",
    control="lambda / range of values",
    tolerance=1e-6,
)
def proposition_1_values(case: Case, flaw: float) -> Measured:
    """The same identity with `alpha_i ~ exp(-q_(i) / lambda)`, which change with every draw, put into xi_N by their
    expectation.

    N = k = 2, where both sides are integrals over a triangle and can be computed to many digits. The slack is minus
    the distance of the two sides: the sum of the covariances of `alpha_i` and `q_(i)`, which the proof leaves out.
    """
    nodes, gauss = jnp.asarray(NODES), jnp.asarray(GAUSS)
    upper = nodes[:, None]
    both = jnp.stack([quantile(upper * nodes[None], case), jnp.broadcast_to(quantile(upper, case), (60, 60))])
    probability = 2.0 * gauss[:, None] * gauss[None] * upper
    weights = op.hybrid_weights(both, Hybrid(2, case["temperature"]))
    truth = jnp.sum(probability * jnp.sum(weights * both, axis=0))
    mean_weights = jnp.sum(probability * weights, axis=(1, 2))
    closed = jnp.sum(gauss * quantile(nodes, case) * likelihood_ratio(nodes, mean_weights, 2))
    return Measured(-jnp.abs(closed - truth) - flaw, ALWAYS, ~ALWAYS, jnp.clip(case["temperature"], 1e-3, 1e3))


def _draw_shares(rng: np.random.Generator, count: int) -> Case:
    share = np.where(np.arange(count) % 2, 1.0, rng.choice([0.1, 0.25, 0.5, 0.75], count))
    return _draw_prior(rng, count) | {"share": share, "temperature": np.exp(rng.uniform(-2.0, 2.0, count))}


@claim(
    "asymptotic",
    "Proposition 1: many models (remark)",
    _draw_shares,
    condition="N to infinity",
    corrected="k = N (for k / N = kappa, J must be cut at kappa)",
    control="k / N",
)
def asymptotic(case: Case, flaw: float) -> Measured:
    """As N grows the weighted sum converges to the expectation under `xi(q) = J(F(q))`, with
    `J(u) ~ exp(-F^-1(u) / lambda)`.

    2000 models; the slack is 7 asymptotic standard errors (from the influence function of the sum) less the distance
    in standard errors, as a share of 7. Half of the cases keep a share kappa < 1 of the models.
    """
    share, temperature = case["share"], case["temperature"]
    value = jnp.sort(quantile(_uniform(case, (MANY,)), case))
    tilt = jnp.where(jnp.arange(MANY) < share * MANY, jnp.exp(-value / temperature), 0.0)
    found = jnp.sum(tilt * value) / jnp.sum(tilt)
    limit, _ = _limit(jnp.ones(()), case)
    _, deviation = _limit(share, case)
    distance = jnp.abs(found - limit * (1.0 + flaw)) / (deviation / jnp.sqrt(MANY))
    return Measured(1.0 - distance / SIGMAS, ALWAYS, share == 1.0, share)


def _limit(share: Array, case: Case) -> tuple[Array, Array]:
    """The limit when J is cut at `share`, and the standard deviation of one model's influence on the sum."""
    inner = share * jnp.asarray(NODES)
    outer = share + (1.0 - share) * jnp.asarray(NODES)
    gauss, q, edge = jnp.asarray(GAUSS), quantile(inner, case), quantile(share, case)
    tilt, edge_tilt = (jnp.exp(-x / case["temperature"]) for x in (q, edge))
    mass = share * jnp.sum(gauss * tilt)
    limit = share * jnp.sum(gauss * tilt * q) / mass
    # A model below the cut adds its own weight and moves the cut down; one above moves it up.
    inside = tilt * (q - limit) - edge_tilt * (edge - limit) * (1.0 - share)
    outside = edge_tilt * (edge - limit) * share * jnp.ones_like(outer)
    variance = share * jnp.sum(gauss * inside**2) + (1.0 - share) * jnp.sum(gauss * outside**2)
    return limit, jnp.sqrt(variance) / mass
