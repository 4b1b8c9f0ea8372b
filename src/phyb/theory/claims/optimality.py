"""The regularised problem: theorem 4 on its optimal policy, theorem 5 on policy iteration and its rate."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from phyb.policy.mirror import divergence, mirror_weights
from phyb.theory import operators as op
from phyb.theory.claims.base import ALWAYS, Case, Measured, claim
from phyb.theory.claims.cases import belief, beside_delta, contraction, draw_mdps, mdp_of, ratio
from phyb.theory.exact import evaluate_one, improve_one, optimise_one, plan_one
from phyb.theory.mdp import dirichlet_models, random_policies

OMEGA = 0.9
ITERATIONS = 12


def _draw_regularised(states: int, actions: int, models: int, rng: np.random.Generator, count: int) -> Case:
    """Random MDPs with a belief, a policy as reference and a step size beta.

    In half of the MDPs the action changes rewards only, and those not in every state: there a policy cannot make up
    in one state for what the belief takes away from it in another.
    """
    case = draw_mdps(states, actions, models)(rng, count)
    simple = rng.uniform(size=count) < 0.5
    same = simple[:, None] & (rng.uniform(size=(count, states)) < 0.5)
    transitions, rewards = case["models"], case["rewards"]
    case["models"] = np.where(simple[:, None, None, None, None], transitions[:, :, :, :1], transitions)
    case["rewards"] = np.where(same[:, :, None], rewards[:, :, :1], rewards)
    case["reference"] = case.pop("policy")
    return case | {"step_size": np.exp(rng.uniform(-3.0, 1.0, count))}


_draw_three_states = functools.partial(_draw_regularised, 3, 2, 3)


def _draw_two_values(rng: np.random.Generator, count: int) -> Case:
    case = _draw_regularised(2, 2, 3, rng, count)
    q = rng.normal(size=(count, 2, 2))
    size = np.exp(rng.uniform(-3.0, 1.0, (count, 1, 1)))
    return case | {"q": q, "q_other": q + size * rng.choice([-1.0, 1.0], (count, 2, 1))}


@claim("theorem-4-contraction", "Theorem 4: gamma-contraction", _draw_two_values, corrected="lambda >= Delta")
def theorem_4_contraction(case: Case, flaw: float) -> Measured:
    """The optimal operator `r + gamma sum_i alpha_i E_{tau_i} V*` is a gamma-contraction.

    As in theorem 1, its proof shows `gamma (1 + Delta / (2 lambda))`; Delta is taken over the two value functions.
    """
    first, second = (
        op.regularised_value(case[name], case["reference"], case["step_size"], OMEGA).value for name in ("q", "q_other")
    )
    factor, spread = contraction(case, first, second)
    return beside_delta(case, 1.0 - factor, spread, flaw)


def _draw_improvement(rng: np.random.Generator, count: int) -> Case:
    rivals = dirichlet_models(rng, np.exp(rng.uniform(-3.0, 2.0, count)), (count, 24, 3))
    q, reference = rng.normal(size=(count, 3)), random_policies(rng, count, 1, 3)[:, 0]
    return {"q": q, "reference": reference, "rivals": rivals, "step_size": np.exp(rng.uniform(-2.0, 2.0, count))}


@claim(
    "theorem-4-formula",
    "Theorem 4: the policy formula",
    _draw_improvement,
    condition="psi strictly convex",
    corrected="omega > 0",
    control="omega",
    tolerance=1e-7,
    settings=[{"omega": omega} for omega in (0.0, 0.1, 0.5, 0.9, 1.0)],
)
def theorem_4_formula(case: Case, flaw: float, omega: float) -> Measured:
    """`max_p <p, q> - beta D_psi(p, mu)` over policies is solved by `p = (grad psi)^-1((q - z) / beta + grad psi(mu))`,
    z chosen so that p sums to 1.

    For omega = 0 the formula is `mu + (q - mean q) / beta`: nothing keeps its entries from being negative. For
    omega > 0 the case's slack is the smallest of: the entries, minus the error of the formula at the solved policy,
    and the advantage over 24 other policies.
    """
    q, reference, beta = case["q"], case["reference"], case["step_size"]
    inside = jnp.asarray(omega > 0.0)
    if omega == 0.0:
        formula = reference + (q - jnp.mean(q)) / beta
        return Measured(jnp.min(formula), ALWAYS, inside | (flaw > 0), jnp.zeros(()))
    p = mirror_weights(q, reference, beta * (1.0 + flaw), omega)

    def objective(weights: Array) -> Array:
        return jnp.sum(weights * q, axis=-1) - beta * divergence(weights, reference, omega)

    def slope(weights: Array) -> Array:
        return (1.0 - omega) * weights + omega * jnp.log(jnp.maximum(weights, 1e-300))

    multiplier = beta * (slope(reference) - slope(p)) + q
    # An action of vanishing weight has too few digits left to check its equation.
    seen = p > 1e-9
    centre = jnp.sum(p * multiplier)
    error = jnp.max(jnp.where(seen, jnp.abs(multiplier - centre), 0.0)) / (1.0 + jnp.max(jnp.abs(q)))
    advantage = jnp.min(objective(p) - objective(case["rivals"]))
    slack = jnp.minimum(jnp.minimum(jnp.min(p), -error), advantage)
    return Measured(slack, ALWAYS, inside, jnp.asarray(omega))


def _draw_rivals(rng: np.random.Generator, count: int) -> Case:
    rivals = random_policies(rng, 8 * count, 3, 2).reshape(count, 8, 3, 2)
    return _draw_three_states(rng, count) | {"rivals": rivals}


@claim("theorem-4-optimal", "Theorem 4: the policy is optimal", _draw_rivals, corrected="lambda >= Delta")
def theorem_4_optimal(case: Case, flaw: float) -> Measured:
    """The fixed point V* of the optimal operator is at least the regularised value of every policy, in every state.

    Checked against 8 policies per MDP: random ones, and small changes of the solved one. Delta is the largest span
    of any of their value functions.
    """
    mdp, hybrid = mdp_of(case), belief(case)
    best = optimise_one(mdp, case["reference"], hybrid, case["step_size"], OMEGA)
    mix = jnp.array([1.0, 1.0, 1.0, 1.0, 0.3, 0.1, 0.03, 0.01])[:, None, None]
    rivals = (1.0 - mix) * best.policy + mix * case["rivals"]

    def value(policy: Array) -> Array:
        cost = case["step_size"] * divergence(policy, case["reference"], OMEGA)
        return evaluate_one(mdp, policy, hybrid, cost=cost).values

    values = jax.vmap(value)(rivals)
    slack = jnp.min(best.values - values) * (1.0 - mdp.discount)
    return beside_delta(case, slack, op.span(mdp, best.values, values), flaw)


@claim("theorem-5", "Theorem 5: monotone improvement", _draw_three_states, corrected="lambda >= Delta")
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


@claim(
    "theorem-5-rate",
    "Theorem 5: convergence and its rate",
    _draw_three_states,
    corrected="lambda >= Delta",
    expected="holds",
)
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
