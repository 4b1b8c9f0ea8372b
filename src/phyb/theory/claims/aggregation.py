"""One application of the evaluation operator, and theorem 1: weights, isotonicity, contraction, fixed points, bound."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp, xlog1py, xlogy
from jaxtyping import Array

from phyb.theory import operators as op
from phyb.theory.claims.base import ALWAYS, Case, Draw, Measured, claim
from phyb.theory.claims.cases import belief, beside_delta, contraction, draw_belief, draw_mdps, mdp_of, ratio
from phyb.theory.fixed_point import fixed_point
from phyb.theory.mdp import dirichlet_models


def _draw_weights(rng: np.random.Generator, count: int) -> Case:
    q = rng.normal(size=(count, 5))
    rivals = dirichlet_models(rng, np.exp(rng.uniform(-3, 2, count)), (count, 24, 5))
    return {"q": q, "rivals": rivals} | draw_belief(rng, count, 5)


@claim("alpha-optimal", "The optimal weights", _draw_weights, condition="k models, lambda > 0")
def alpha_optimal(case: Case, flaw: float) -> Measured:
    """Over the simplex, `sum_i alpha_i q_i + lambda alpha_i log alpha_i` is least at `alpha_i ~ exp(-q_i / lambda)`,
    and its least value is `-lambda log sum_j exp(-q_j / lambda)` (appendix B).
    """
    q, hybrid, temperature = case["q"], belief(case), case["temperature"]
    alpha = op.hybrid_weights(q, hybrid._replace(temperature=temperature * (1.0 + flaw)))
    inside = op.hybrid_weights(q, hybrid, "uniform") > 0

    def objective(weights: Array) -> Array:
        return jnp.sum(weights * q + temperature * xlogy(weights, weights), axis=-1)

    rivals = jnp.where(inside, case["rivals"] + 1e-9, 0.0)
    rivals = rivals / jnp.sum(rivals, axis=-1, keepdims=True)
    value = -temperature * logsumexp(jnp.where(inside, -q / temperature, -jnp.inf))
    scale = 1.0 + temperature
    equal = -jnp.abs(objective(alpha) - value) / scale
    least = jnp.min(objective(rivals) - value) / scale
    return Measured(jnp.minimum(equal, least), ALWAYS, ALWAYS, ratio(temperature, jnp.ptp(q)))


def _pairs(states: int, actions: int, models: int, *, ordered: bool) -> Draw:
    """MDPs with two Q-functions, the second above the first, or beside it by the same distance everywhere."""
    mdps = draw_mdps(states, actions, models)

    def draw(rng: np.random.Generator, count: int) -> Case:
        shape = (count, states, actions)
        size = np.exp(rng.uniform(-3.0, 1.0, (count, 1, 1)))
        up = rng.exponential(size=shape) * (rng.uniform(size=shape) < 0.5)
        change = up if ordered else rng.choice([-1.0, 1.0], shape)
        q = rng.normal(size=shape)
        return mdps(rng, count) | {"q": q, "q_other": q + size * change}

    return draw


_ORDERED, _BESIDE = ([_pairs(*size, ordered=ordered) for size in ((2, 1, 2), (4, 2, 5))] for ordered in (True, False))


def _values(case: Case) -> tuple[Array, Array]:
    first, second = (op.expected(case["policy"], case[name]) for name in ("q", "q_other"))
    return first, second


@claim("isotonicity", "Isotonicity (lemma)", *_ORDERED, condition="lambda >= Delta")
def isotonicity(case: Case, flaw: float) -> Measured:
    """If `lambda >= Delta_max`, the largest span of `q_i(s, a)` over the models, the operator is isotonic:
    `Q1 <= Q2` everywhere implies `B Q1 <= B Q2` everywhere.
    """
    mdp, hybrid = mdp_of(case), belief(case)
    low, high = _values(case)
    gain = op.backup(mdp, high, hybrid) - op.backup(mdp, low, hybrid)
    spread = op.span(mdp, low, high)
    inside = case["temperature"] >= (1.0 - flaw) * spread
    scale = 1e-12 + jnp.max(jnp.abs(case["q_other"] - case["q"]))
    return Measured(jnp.min(gain) / scale, inside, inside, ratio(case["temperature"], spread))


@claim("theorem-1-contraction", "Theorem 1: gamma-contraction", *_BESIDE, corrected="lambda >= Delta")
def theorem_1_contraction(case: Case, flaw: float) -> Measured:
    """The evaluation operator is a gamma-contraction: `|B Q1 - B Q2| <= gamma |Q1 - Q2|` in the largest norm.

    The proof shows the factor `gamma (1 + Delta / (2 lambda))` only, see `theorem-1-factor`.
    """
    factor, spread = contraction(case, *_values(case))
    return beside_delta(case, 1.0 - factor, spread, flaw)


@claim("theorem-1-factor", "Theorem 1: the factor of its proof", _BESIDE[1])
def theorem_1_factor(case: Case, flaw: float) -> Measured:
    """`|B Q1 - B Q2| <= gamma (1 + Delta / (2 lambda)) |Q1 - Q2|`, hence a contraction where
    `lambda > gamma Delta / (2 (1 - gamma))`. Delta is the largest span between Q1 and Q2.
    """
    factor, spread = contraction(case, *_values(case))
    proven = (1.0 - flaw) * (1.0 + spread / (2.0 * case["temperature"]))
    return Measured(proven - factor, ALWAYS, ALWAYS, ratio(case["temperature"], spread))


def _draw_escapes(states: int, actions: int, models: int, rng: np.random.Generator, count: int) -> Case:
    case = draw_mdps(states, actions, models)(rng, count)
    case["discount"] = 1.0 - np.exp(rng.uniform(np.log(0.01), np.log(0.3), count))
    case["models"] = dirichlet_models(rng, np.exp(rng.uniform(-5.0, 0.0, count)), np.shape(case["models"]))
    # Small costs beside free states: where lambda alone decides whether the belief expects to escape.
    costs = rng.uniform(0.0, 0.4, (count, states, actions)) * (rng.uniform(size=(count, states, 1)) < 0.5)
    some = (rng.uniform(size=count) < 0.5)[:, None, None]
    case["rewards"] = np.where(some, -costs * case["temperature"][:, None, None], case["rewards"])
    return case | {"subset_size": np.maximum(case["subset_size"], 2)}


@claim(
    "theorem-1-uniqueness",
    "Theorem 1: one fixed point",
    *(functools.partial(_draw_escapes, *size) for size in ((2, 1, 2), (3, 2, 4))),
    corrected="gamma (1 + Delta / (2 lambda)) < 1",
    control="gamma (1 + Delta / (2 lambda))",
    tolerance=1e-6,
)
def theorem_1_uniqueness(case: Case, flaw: float) -> Measured:
    """Repeated application of the evaluation operator to any initial Q converges to one Q^pi.

    Checked from the highest value the rewards allow and, state by state, from the lowest there and 0 elsewhere; Delta
    is the largest span at the ends reached.
    """
    mdp, hybrid = mdp_of(case), belief(case)
    top = jnp.max(jnp.abs(mdp.rewards)) / (1.0 - mdp.discount)

    def step(v: Array) -> Array:
        return op.expected(case["policy"], op.backup(mdp, v, hybrid))

    def reach(first: Array) -> Array:
        return fixed_point(step, jax.lax.fori_loop(0, 100, lambda _, values: step(values), first)).values

    states = mdp.rewards.shape[0]
    ends = jax.vmap(reach)(jnp.concatenate([jnp.full((1, states), top), -top * jnp.eye(states)]))
    spread = op.span(mdp, ends)
    factor = mdp.discount * (1.0 + (1.0 - flaw) * spread / (2.0 * case["temperature"]))
    gap = jnp.max(jnp.abs(ends - ends[0])) / (1e-12 + top)
    return Measured(-gap, ALWAYS, factor < 1.0, jnp.clip(factor, 0.0, 50.0))


LARGEST = 200


def _two_outcomes(low: Array, kept: Array, temperature: Array) -> tuple[Array, Array]:
    """F and sum alpha^2 of `kept` models, `low` of them with value 0 and the others 1, at this lambda."""
    tilt = jnp.exp(-1.0 / temperature)
    total = low + (kept - low) * tilt
    return (kept - low) * tilt / total, (low + (kept - low) * tilt**2) / total**2


def _draw_two_outcomes(rng: np.random.Generator, count: int) -> Case:
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
    _draw_two_outcomes,
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
    value, squares = _two_outcomes(jnp.minimum(bad, kept), kept, case["temperature_ratio"])
    # Values reach from -1 / (1 - gamma) to 1 / (1 - gamma); f is 0 to 1 on that range.
    span = 2.0 / (1.0 - gamma)
    miss = gamma * span * jnp.abs(value - jnp.sum(probability * value))
    bound = gamma * span / (1.0 - gamma) * jnp.sqrt(0.5 * squares * jnp.log(6.0 / case["delta"]))
    broken = jnp.sum(jnp.where(miss > bound * (1.0 - flaw) * (1.0 + 1e-12), probability, 0.0))
    inside = (kept == total) & (case["temperature_ratio"] >= 1.0)
    return Measured(case["delta"] - broken, ALWAYS, inside, kept / total)
