"""Returns as distributions: a critic of quantiles, the loss that teaches it, and what caution makes of quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.networks import MLP

Risk = Literal["neutral", "cvar", "wang"]


class QuantileCritic(eqx.Module):
    """Z(s, a; tau): the tau-quantile of what is earned from (s, a) on, for any tau (implicit quantile network).

    Features of (s, a) are multiplied by features of `cos(pi i tau), i = 0, 1, ...`; a last network reads the product.
    """

    trunk: MLP
    embedding: MLP
    head: MLP

    def __init__(
        self, key: PRNGKeyArray, observations: int, actions: int, hidden: Sequence[int], cosines: int = 16
    ) -> None:
        trunk_key, embedding_key, head_key = jax.random.split(key, 3)
        self.trunk = MLP(trunk_key, (observations + actions, *hidden))
        self.embedding = MLP(embedding_key, (cosines, hidden[-1]))
        self.head = MLP(head_key, (hidden[-1], hidden[-1], 1))

    def __call__(
        self,
        observations: Float[Array, "*rows obs"],
        actions: Float[Array, "*rows act"],
        levels: Float[Array, "*rows levels"],
    ) -> Float[Array, "*rows levels"]:
        """The quantiles of each row at its own levels."""
        features = jax.nn.relu(self.trunk(jnp.concatenate([observations, actions], axis=-1)))
        waves = jnp.cos(jnp.pi * jnp.arange(self.embedding.inputs) * levels[..., None])
        return self.head(features[..., None, :] * jax.nn.relu(self.embedding(waves)))[..., 0]


def quantile_huber_loss(
    quantiles: Float[Array, "*rows levels"],
    levels: Float[Array, "*rows levels"],
    targets: Float[Array, "*rows targets"],
    width: float,
) -> Float[Array, ""]:
    """How far quantiles are from those of the targets, over all pairs of a quantile and a target of the same row.

    `mean |tau_i - 1(u_ij < 0)| L(u_ij)` with `u_ij = y_j - Z_i`. `L(u) = |u| - width / 2`, rounded off to
    `u^2 / (2 width)` within `width` of 0. The smaller the width, the closer the minimum is to the true quantiles; a
    width beyond all errors makes them expectiles, which lie nearer to the mean.
    """
    error = targets[..., None, :] - quantiles[..., :, None]
    size = jnp.abs(error)
    rounded = jnp.where(size <= width, 0.5 * error**2 / width, size - 0.5 * width)
    return jnp.mean(jnp.abs(levels[..., :, None] - (error < 0)) * rounded)


def check_risk(risk: Risk, amount: float) -> None:
    """Refuse an amount that this kind of caution does not have.

    Raises:
        ValueError: it is out of range.
    """
    fits = {"cvar": 0.0 < amount <= 1.0, "wang": amount >= 0.0, "neutral": True}
    if not fits.get(risk, True):
        raise ValueError(f"risk_amount must lie in (0, 1] with cvar and not be negative with wang, found {amount}")


def distort(levels: Float[Array, "*dims"], risk: Risk, amount: float) -> Float[Array, "*dims"]:
    """Levels seen with caution: the mean of the quantiles at `distort(tau)`, tau from U(0, 1), is the risk measure.

    neutral: `tau`, which gives the mean. cvar: `amount tau`, the mean of the lowest share `amount` of outcomes.
    wang: `Phi(Phi^-1(tau) - amount)`, all outcomes, bad ones more; of a Gaussian, mean - amount std.
    """
    if risk == "neutral":
        return levels
    if risk == "cvar":
        return amount * levels
    return jax.scipy.stats.norm.cdf(jax.scipy.stats.norm.ppf(levels) - amount)
