"""Appendix C: the mirror step against its natural-gradient approximation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from phyb.policy.mirror import mirror_weights
from phyb.theory.claims.base import ALWAYS, Case, Curves, Measured, claim
from phyb.theory.mdp import random_policies

OMEGA = 0.5


def approximation_error(q: Array, p: Array, beta: Array, centred: Array | bool) -> Array:
    """Largest error of `p + (1 / beta) h g` against the exact mirror step, with `h = 1 / psi''(p)`.

    The gradient g is q as the paper writes it, or `q - sum h q / sum h`, as the multiplier of `sum p = 1` demands.
    """
    follow = p / ((1.0 - OMEGA) * p + OMEGA)
    mean = jnp.sum(follow * q) / jnp.sum(follow)
    step = follow * jnp.where(centred, q - mean, q) / beta
    return jnp.max(jnp.abs(p + step - mirror_weights(q, p, beta, OMEGA)))


def error_curves() -> Curves:
    """Median error over 200 cases against the step size, for both gradients."""
    rng = np.random.default_rng(0)
    steps = np.logspace(-4.0, 0.0, 13)
    case = _draw(rng, 200)
    with jax.enable_x64(True):
        over_steps = jax.vmap(approximation_error, (None, None, 0, None))
        both = jax.jit(jax.vmap(over_steps, (0, 0, None, None)), static_argnums=3)
        written, centred = (
            np.median(both(case["q"], case["policy"], 1.0 / steps, kind), axis=0) for kind in (False, True)
        )
    lines = {"as written": (steps, written), "centred": (steps, centred)}
    return Curves("step size 1 / beta", "error", lines)


def _draw(rng: np.random.Generator, count: int) -> Case:
    policy = 0.9 * random_policies(rng, count, 1, 4)[:, 0] + 0.025
    beta = np.exp(rng.uniform(np.log(2e3), np.log(2e4), count))
    return {"q": rng.normal(size=(count, 4)), "policy": policy, "step_size": beta, "centred": np.arange(count) % 2}


@claim(
    "mirror-approximation",
    "Mirror step as natural gradient",
    _draw,
    condition="beta large",
    corrected="the gradient is centred, as the multiplier of sum p = 1 demands",
    control="order of the error in 1 / beta",
    tolerance=0.1,
    curves=error_curves,
)
def mirror_approximation(case: Case, flaw: float) -> Measured:
    """The mirror step is approximated by `theta + (1 / beta) [hessian psi(theta)]^-1 grad f(theta)`.

    A first-order approximation should have an error of second order in 1 / beta, for the step itself is of first order.
    The slack is the order measured between beta and 2 beta, less 2. The formula has no multiplier for the simplex;
    half of the cases use it as written, half with the gradient centred by its curvature-weighted mean.
    """
    q, p, beta, centred = case["q"], case["policy"], case["step_size"], case["centred"] > 0
    small, large = (approximation_error(q, p, factor * beta, centred) for factor in (1.0, 2.0))
    order = jnp.log2(small / large)
    return Measured(order - 2.0 - flaw, ALWAYS, centred, order)
