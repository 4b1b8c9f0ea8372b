"""One model of the world: from (observation, action) to the change of the observation and the reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from phyb.dynamics.rows import Rows
from phyb.networks import MLP, soft_clamp


class Heads(NamedTuple):
    """What a model says about rows, in standardised units: a Gaussian, and the logit of termination."""

    mean: Float[Array, "*rows out"]
    log_std: Float[Array, "*rows out"]
    done_logit: Float[Array, "*rows"]


class DynamicsModel(eqx.Module):
    """What a pool is made of: one model of the world, on standardised rows.

    A subclass builds its networks and answers in `__call__`. `loss` is what it is trained on; it may be changed. One
    that learns from more than single rows changes `training_loss` and `holdout_nll`. All fields are arrays, or trees of
    arrays, or static. Members of a pool are stacked by `jax.vmap`.
    """

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int, hidden: Sequence[int]) -> None:
        """Fresh weights.

        Args:
            key: random key.
            inputs: numbers in a row of input: observation and action.
            outputs: numbers in a row of output: change of the observation, and the reward, which is the last.
            hidden: units per hidden layer, the setting `model_hidden`.
        """
        raise NotImplementedError

    def __call__(self, rows: Float[Array, "*rows inp"]) -> Heads:
        """Mean, log-std and termination logit for each row."""
        raise NotImplementedError

    def loss(
        self,
        inputs: Float[Array, "rows inp"],
        targets: Float[Array, "rows out"],
        done: Bool[Array, " rows"],
        *,
        nll_beta: float,
        bound_weight: float,
        done_weight: float,
    ) -> Float[Array, ""]:
        """`loss_of` what the model says about the rows."""
        weights = {"nll_beta": nll_beta, "bound_weight": bound_weight, "done_weight": done_weight}
        return self.loss_of(self(inputs), targets, done, **weights)

    def loss_of(
        self,
        heads: Heads,
        targets: Float[Array, "rows out"],
        done: Bool[Array, " rows"],
        *,
        nll_beta: float,
        bound_weight: float,
        done_weight: float,
    ) -> Float[Array, ""]:
        """Beta-NLL of the Gaussian heads, `done_weight` times the cross-entropy of the termination head, and
        `bound_weight` times `penalty`.

        Plain likelihood weighs errors by 1 / variance, so that outputs already predicted well take all the gradient.
        Beta-NLL multiplies each term by `std^(2 beta)` (held constant, normalised over the batch): 0 is the plain
        likelihood, 1 weighs as squared error does.
        """
        weight = jax.lax.stop_gradient(jnp.exp(2.0 * nll_beta * heads.log_std))
        weight = weight / jnp.mean(weight, axis=0)
        fit = jnp.mean(gaussian_nll(heads, targets) * weight)
        ends = done_weight * jnp.mean(cross_entropy(heads.done_logit, done)) if done_weight else 0.0
        return fit + bound_weight * self.penalty() + ends

    def training_loss(
        self, key: PRNGKeyArray, rows: Rows, chosen: Int[Array, " batch"], **weights: float
    ) -> Float[Array, ""]:
        """What one step of training descends: the loss on the rows that were chosen."""
        return self.loss(rows.inputs[chosen], rows.targets[chosen], rows.done[chosen], **weights)

    def holdout_nll(self, rows: Rows) -> tuple[Float[Array, "rows out"], Float[Array, " rows"]]:
        """Negative log-likelihood of each number of each row, and of its termination."""
        heads = self(rows.inputs)
        return gaussian_nll(heads, rows.targets), cross_entropy(heads.done_logit, rows.done)

    def penalty(self) -> Float[Array, ""]:
        """What the setting `log_std_bound_weight` weighs in the loss; nothing, if not said otherwise."""
        return jnp.zeros(())


class GaussianModel(DynamicsModel):
    """A network with a mean, a log-std and a termination logit per row.

    The log-std is soft-clamped between two learned bounds per output. They belong to this member alone, so that a
    pool trained in parts is the pool trained at once.
    """

    trunk: MLP
    min_log_std: Float[Array, " out"]
    max_log_std: Float[Array, " out"]

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int, hidden: Sequence[int]) -> None:
        self.trunk = MLP(key, (inputs, *hidden, 2 * outputs + 1), jax.nn.silu)
        self.min_log_std = jnp.full(outputs, -5.0, jnp.float32)
        self.max_log_std = jnp.full(outputs, 1.0, jnp.float32)

    def __call__(self, rows: Float[Array, "*rows inp"]) -> Heads:
        """Mean, log-std and termination logit for each row."""
        out = self.trunk(rows)
        size = self.min_log_std.shape[0]
        log_std = soft_clamp(out[..., size : 2 * size], self.min_log_std, self.max_log_std)
        return Heads(out[..., :size], log_std, out[..., -1])

    def penalty(self) -> Float[Array, ""]:
        """Mean distance of the bounds of the log-std."""
        return jnp.mean(self.max_log_std - self.min_log_std)


def gaussian_nll(heads: Heads, targets: Float[Array, "*rows out"]) -> Float[Array, "*rows out"]:
    """Negative log-likelihood of each target number, without the constant log(2 pi)/2."""
    error = (targets - heads.mean) * jnp.exp(-heads.log_std)
    return 0.5 * error**2 + heads.log_std


def cross_entropy(logit: Float[Array, "*rows"], label: Bool[Array, "*rows"]) -> Float[Array, "*rows"]:
    """Negative log-likelihood of a yes/no label under a logit."""
    return jax.nn.softplus(jnp.where(label, -logit, logit))
