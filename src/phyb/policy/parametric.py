"""The mirror step of a parametric policy: a gradient through the critics instead of an exact solution on candidates.

For Gaussians pi and mu (before the tanh, which changes no relative entropy) it ascends

    J(pi) = E_{s, a ~ pi} [ Q(s, a) ] - beta E_s [ KL(pi || mu) ] + w E_{(s, a) ~ log} [ log pi(a | s) ]

with reparameterised actions. Its first two terms are the objective of `phyb.policy.mirror` at omega = 1, whose
maximiser over all densities is `mu exp(Q / beta) / Z`; a Gaussian comes as close to it as a Gaussian can. There is no
omega below 1 here: the Euclidean part `|p - m|^2` of the mixed potential is a sum over candidates. For densities it
would depend on the coordinates of the action (before or after the tanh), where relative entropy does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.policy.actor import Gaussian


class ParametricStep(NamedTuple):
    """One action of the policy at each state, differentiable in the policy, and what it is worth."""

    draws: Float[Array, "rows act"]
    q: Float[Array, "critics rows"]
    divergence: Float[Array, " rows"]


def relative_entropy(p: Gaussian, m: Gaussian) -> Float[Array, "*rows"]:
    """KL(p || m) = sum_j log(s_m / s_p) + (s_p^2 + (mu_p - mu_m)^2) / (2 s_m^2) - 1/2 of diagonal Gaussians."""
    ratio = jnp.exp(2.0 * (p.log_std - m.log_std))
    gap = (p.mean - m.mean) * jnp.exp(-m.log_std)
    return jnp.sum(m.log_std - p.log_std + 0.5 * (ratio + gap**2 - 1.0), axis=-1)


def with_spread(gaussian: Gaussian, spread: float) -> Gaussian:
    """The Gaussian with this standard deviation in every dimension; 0 leaves it as it is."""
    return gaussian._replace(log_std=jnp.full_like(gaussian.log_std, jnp.log(spread))) if spread else gaussian


def parametric_step(
    key: PRNGKeyArray, pi: Gaussian, mu: Gaussian, q: Callable[[Float[Array, "rows act"]], Float[Array, "critics rows"]]
) -> ParametricStep:
    """One reparameterised draw of pi at each state, the critics' values of it, and KL(pi || mu).

    Args:
        key: random key.
        pi: the policy.
        mu: the reference policy.
        q: every critic's value of draws before the tanh.
    """
    draws = pi.mean + jnp.exp(pi.log_std) * jax.random.normal(key, pi.mean.shape)
    return ParametricStep(draws, q(draws), relative_entropy(pi, mu))


def normalizer(q: Float[Array, "critics rows"]) -> Float[Array, ""]:
    """Mean |Q| of the batch, without gradient. In this unit, beta and the weight of the log mean the same anywhere."""
    return jax.lax.stop_gradient(jnp.mean(jnp.abs(q))) + 1e-6
