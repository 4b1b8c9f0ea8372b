"""Theorem 3: pessimism grows with fewer kept models and with more drawn models."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from phyb.theory import operators as op
from phyb.theory.claims.base import Case, Measured, claim
from phyb.theory.claims.cases import belief, beside_delta, draw_mdps, mdp_of
from phyb.theory.claims.pessimism import ensembles
from phyb.theory.exact import evaluate_one
from phyb.theory.mdp import dirichlet_models

_THREE = draw_mdps(3, 1, 3, largest=2)


@claim("monotone-k", "Theorem 3: monotone in k", _THREE, draw_mdps(3, 2, 4, largest=3), corrected="lambda >= Delta")
def monotone_k(case: Case, flaw: float) -> Measured:
    """For a fixed ensemble, `Q^pi` does not decrease at any state and action as k increases.

    One application of the operator never decreases in k; the fixed point inherits this through isotonicity, which
    needs `lambda >= Delta`. Delta is the larger span of the two fixed points.
    """
    mdp, hybrid = mdp_of(case), belief(case)
    one_more = hybrid._replace(subset_size=hybrid.subset_size + 1)
    fewer = evaluate_one(mdp, case["policy"], hybrid)
    more = evaluate_one(mdp, case["policy"], one_more, start=fewer.values)
    spread = op.span(mdp, fewer.values, more.values)
    slack = jnp.min(more.q - fewer.q) * (1.0 - mdp.discount)
    return beside_delta(case, slack, spread, flaw)


def _draw_loops(rng: np.random.Generator, count: int) -> Case:
    """MDPs with a loop whose value depends on how many kinds of models are drawn.

    From the start (state 0) the first model leads to nothing (1), the two others into a loop of a good (2) and a bad
    state (3), where the first model always goes to the good one, the others to the bad one. With both kinds drawn
    the value of the loop is so high that the belief gives it little weight at the start; with one more of the others
    it is lower, and gets more weight.
    """
    models = np.zeros((3, 4, 1, 4))
    models[0, [0, 1, 2, 3], 0, [1, 1, 2, 2]] = 1.0
    models[1:, [0, 1, 2, 3], 0, [2, 1, 3, 3]] = 1.0
    noise = np.exp(rng.uniform(-12.0, -2.0, count))[:, None, None, None, None]
    other = dirichlet_models(rng, 0.5, (count, 3, 4, 1, 4))
    discount = 1.0 - np.exp(rng.uniform(np.log(0.03), np.log(0.2), count))
    # The value of the good state where only the bad one ever follows, and the gap between the two, in units of lambda.
    value, gap = rng.uniform(0.1, 0.8, count), rng.uniform(0.8, 1.8, count)
    good = (1.0 - discount) * value + discount * gap
    rewards = np.stack([0.0 * good, 0.0 * good, good, good - gap], axis=1)[..., None]
    start = np.broadcast_to(np.eye(4)[0], (count, 4))
    return {
        "rewards": rewards,
        "models": (1.0 - noise) * models + noise * other,
        "start": start,
        "discount": discount,
        "policy": np.ones((count, 4, 1)),
        "subset_size": rng.integers(1, 3, count),
        "temperature": np.exp(rng.uniform(-0.5, 0.5, count)),
    }


@claim("monotone-n", "Theorem 3: monotone in N", _draw_loops, _THREE, corrected="lambda >= Delta")
def monotone_n(case: Case, flaw: float) -> Measured:
    """For a fixed k, the expectation of `Q^pi` over ensembles drawn from the prior does not increase with N.

    The prior is uniform on a pool of three models, two against three are drawn, and all ensembles are enumerated, so
    that both expectations are exact. Delta is the largest span of any of their fixed points.
    """
    mdp, hybrid = mdp_of(case), belief(case)

    def mean(members: np.ndarray, probabilities: np.ndarray) -> tuple[Array, Array]:
        drawn = jax.vmap(lambda chosen: mdp._replace(models=mdp.models[chosen]))(jnp.asarray(members))
        found = jax.vmap(lambda each: evaluate_one(each, case["policy"], hybrid))(drawn)
        return jnp.tensordot(jnp.asarray(probabilities), found.q, 1), found.values

    (fewer, first), (more, second) = (mean(*ensembles(3, size)) for size in (2, 3))
    slack = jnp.min(fewer - more) * (1.0 - mdp.discount)
    return beside_delta(case, slack, op.span(mdp, first, second), flaw)
