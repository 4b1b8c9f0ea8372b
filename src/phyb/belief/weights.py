"""From the members' backups to weights: rank the drawn members, keep the k of least backup, weigh them.

Members stand on the first axis everywhere, `x[i, b]` is the backup of member i for row b.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int, PRNGKeyArray

WeightRule = Literal["scaled_softmax", "softmax", "kth_min", "uniform", "single"]
Draw = Literal["independent", "distinct"]


def draw_members(
    key: PRNGKeyArray, prior: Float[Array, " pool"], count: int, draw: Draw = "independent"
) -> Int[Array, " drawn"]:
    """Draw N = `count` members of the pool under the prior, the log-probability of each up to a constant.

    "independent" draws may repeat a member (the paper's law), "distinct" ones not (the released code).
    """
    if draw == "independent":
        return jax.random.categorical(key, prior, shape=(count,))
    perturbed = prior + jax.random.gumbel(key, prior.shape)
    return jax.lax.top_k(perturbed, count)[1]


def ranks(x: Float[Array, "drawn ..."]) -> Int[Array, "drawn ..."]:
    """Rank of each member in its column, 0 for the smallest; ties go to the member that was drawn first."""
    index = jnp.arange(x.shape[0]).reshape((-1,) + (1,) * (x.ndim - 1))
    smaller = (x[None] < x[:, None]) | ((x[None] == x[:, None]) & (index[None] < index[:, None]))
    return jnp.sum(smaller, axis=1)


def subset_weights(
    key: PRNGKeyArray,
    x: Float[Array, "drawn ..."],
    *,
    rule: WeightRule,
    subset_size: int,
    temperature: float,
    uniform_mix: float = 0.0,
) -> Float[Array, "drawn ..."]:
    """The belief's weights alpha over the drawn members; they sum to 1 over the first axis.

    The paper minimises `sum_i alpha_i x_i + lambda alpha_i log alpha_i` over the k smallest x, which gives
    `alpha_i ~ exp(-x_i / lambda)` on them and 0 elsewhere.

    Args:
        key: used only by the rule "single".
        x: the members' backups.
        rule: "softmax" is the paper's formula; "scaled_softmax" first divides x by its range inside the subset, so
            that lambda means the same at every scale of values; "kth_min" puts all weight on the k-th smallest;
            "uniform" weighs the subset evenly; "single" puts all weight on one member of the subset, at random.
        subset_size: k.
        temperature: lambda.
        uniform_mix: weight spread evenly over all drawn members, taken from the others.
    """
    rank = ranks(x)
    inside = rank < subset_size
    if rule == "kth_min":
        alpha = (rank == subset_size - 1).astype(x.dtype)
    elif rule == "uniform":
        alpha = inside.astype(x.dtype) / subset_size
    elif rule == "single":
        chosen = jax.random.randint(key, x.shape[1:], 0, subset_size)
        alpha = (rank == chosen[None]).astype(x.dtype)
    else:
        above = x - jnp.min(x, axis=0)
        if rule == "scaled_softmax":
            span = jnp.max(jnp.where(inside, above, 0.0), axis=0)
            above = above / jnp.where(span > 0, span, 1.0)
        alpha = jax.nn.softmax(jnp.where(inside, -above / temperature, -jnp.inf), axis=0)
    return (1.0 - uniform_mix) * alpha + uniform_mix / x.shape[0]


def likelihood_ratio(
    quantile: Float[Array, "*points"], weights: Float[Array, " subset"], ensemble_size: int
) -> Float[Array, "*points"]:
    """Xi of proposition 1: how much the belief favours a model whose value stands at this quantile of the prior.

    `xi_N(q) = sum_i alpha_i N! / (i! (N - i - 1)!) F(q)^i (1 - F(q))^(N - i - 1)`, with F(q) the quantile and alpha_i
    the weight of the i-th smallest of N draws; each term is the density of a Beta(i + 1, N - i) distribution. The
    formula takes the weights as fixed numbers.
    """
    rank = jnp.arange(weights.shape[0], dtype=quantile.dtype)
    rest = ensemble_size - rank - 1
    log_count = gammaln(ensemble_size + 1.0) - gammaln(rank + 1.0) - gammaln(rest + 1.0)
    f = quantile[..., None]
    return jnp.sum(weights * jnp.exp(log_count) * f**rank * (1.0 - f) ** rest, axis=-1)
