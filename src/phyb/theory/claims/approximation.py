"""Appendix C: the mirror step against its natural-gradient approximation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from phyb.policy.mirror import mirror_weights
from phyb.theory.claims.base import ALWAYS, Case, Measured, Variant, claim
from phyb.theory.mdp import random_policies

OMEGA = 0.5


@claim(
    "mirror-approximation",
    "Mirror step as natural gradient",
    condition="beta large",
    mended="the gradient is centred, as the multiplier of sum p = 1 demands",
    says="holds only if",
    control="order of the error in 1 / beta",
    tolerance=0.1,
)
def mirror_approximation(flaw: float) -> tuple[Variant, ...]:
    """The mirror step is approximated by `theta + (1 / beta) [hessian psi(theta)]^-1 grad f(theta)`.

    An approximation worth its name has an error of second order in 1 / beta, for the step itself is of first order.
    The slack is the order measured between beta and 2 beta, less 2. The formula has no multiplier for the simplex;
    half of the cases use it as written, half with the gradient centred by its curvature-weighted mean.
    """

    def draw(rng: np.random.Generator, count: int) -> Case:
        policy = 0.9 * random_policies(rng, count, 1, 4)[:, 0] + 0.025
        beta = np.exp(rng.uniform(np.log(2e3), np.log(2e4), count))
        return {"q": rng.normal(size=(count, 4)), "policy": policy, "step_size": beta, "centred": np.arange(count) % 2}

    def measure(case: Case) -> Measured:
        q, p, centred = case["q"], case["policy"], case["centred"] > 0
        follow = p / ((1.0 - OMEGA) * p + OMEGA)
        mean = jnp.sum(follow * q) / jnp.sum(follow)
        gradient = jnp.where(centred, q - mean, q)

        def error(beta: jax.Array) -> jax.Array:
            exact = mirror_weights(q, p, beta, OMEGA)
            return jnp.max(jnp.abs(p + follow * gradient / beta - exact))

        beta = case["step_size"]
        order = jnp.log2(error(beta) / error(2.0 * beta))
        return Measured(order - 2.0 - flaw, ALWAYS, centred, order)

    return (Variant(draw, measure),)
