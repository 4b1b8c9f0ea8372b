"""Theorem 5: monotone improvement of regularised policy iteration, and how fast it converges."""

from __future__ import annotations

import functools

import jax.numpy as jnp

from phyb.policy.mirror import divergence
from phyb.theory import operators as op
from phyb.theory.claims.base import ALWAYS, Case, Measured, claim
from phyb.theory.claims.cases import belief, beside_delta, mdp_of, ratio
from phyb.theory.claims.optimality import OMEGA, draw_regularised
from phyb.theory.exact import evaluate_one, improve_one, optimise_one, plan_one

ITERATIONS = 12
_draw = functools.partial(draw_regularised, 3, 2, 3)


@claim("theorem-5", "Theorem 5: monotone improvement", _draw, corrected="lambda >= Delta")
def theorem_5(case: Case, flaw: float) -> Measured:
    """From any policy, the exact solution of the Bregman-regularised problem around it is at least as good:
    `eta(pi_{i+1}) >= eta(pi_i)`.

    Both halves of the proof use isotonicity. Delta is the largest span at the two policies' values and at V*.
    """
    mdp, hybrid = mdp_of(case), belief(case)
    step = optimise_one(mdp, case["reference"], hybrid, case["step_size"], OMEGA)
    before = evaluate_one(mdp, case["reference"], hybrid)
    after = evaluate_one(mdp, step.policy, hybrid, start=before.values)
    spread = op.span(mdp, step.values, before.values, after.values)
    slack = (after.objective - before.objective) * (1.0 - mdp.discount)
    return beside_delta(case, slack, spread, flaw)


@claim("theorem-5-rate", "Theorem 5: convergence and its rate", _draw, corrected="lambda >= Delta", expected="holds")
def theorem_5_rate(case: Case, flaw: float) -> Measured:
    """The policies converge to the optimal one. The paper names no rate; mirror descent suggests
    `eta* - eta(pi_i) <= beta max_s D_psi(pi*(s), pi_0(s)) / ((1 - gamma) i)`, and this is what is checked, for
    i = 1 to 12, against the unregularised optimum under the belief.
    """
    mdp, hybrid = mdp_of(case), belief(case)
    best = plan_one(mdp, hybrid)
    first = case["reference"]
    _, objectives = improve_one(mdp, first, hybrid, case["step_size"], OMEGA, ITERATIONS)
    gap = jnp.sum(mdp.start * best.values) - objectives[1:]
    far = jnp.max(divergence(best.policy, first, OMEGA))
    index = jnp.arange(1, ITERATIONS + 1)
    bound = (1.0 - flaw) * case["step_size"] * far / ((1.0 - mdp.discount) * index)
    spread = op.span(mdp, best.values)
    slack = jnp.min(bound - gap) * (1.0 - mdp.discount)
    return Measured(slack, ALWAYS, case["temperature"] >= spread, ratio(case["temperature"], spread))
