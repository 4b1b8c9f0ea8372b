"""A pool of M models, stacked along the first axis, in the units of the log."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from phyb.dynamics.model import DynamicsModel, Heads
from phyb.networks import Standardizer, take


class Prediction(NamedTuple):
    """What each asked member predicts for each row, in the units of the log."""

    next_mean: Float[Array, "members rows obs"]
    next_std: Float[Array, "members rows obs"]
    reward_mean: Float[Array, "members rows"]
    reward_std: Float[Array, "members rows"]
    done_probability: Float[Array, "members rows"]


class Pool(eqx.Module):
    """M independent models and the standardisation they share.

    `holdout_nll` is each member's mean negative log-likelihood per hold-out row; it can serve as a prior.
    """

    members: DynamicsModel
    inputs: Standardizer
    outputs: Standardizer
    holdout_nll: Float[Array, " members"]

    @property
    def size(self) -> int:
        """M, the number of members."""
        return self.holdout_nll.shape[0]

    @property
    def observation_size(self) -> int:
        """Numbers in one observation."""
        return self.outputs.mean.shape[0] - 1

    def heads(
        self,
        members: Int[Array, " drawn"],
        observations: Float[Array, "*drawn rows obs"],
        actions: Float[Array, "*drawn rows act"],
    ) -> Heads:
        """The asked members' heads, in standardised units: all on the same rows, or each on its own."""
        rows = self.inputs(jnp.concatenate([observations, actions], axis=-1))
        asked = take(self.members, members)
        if rows.ndim == 3:
            return jax.vmap(lambda model, own: model(own))(asked, rows)
        return jax.vmap(lambda model: model(rows))(asked)

    def predict(
        self,
        members: Int[Array, " drawn"],
        observations: Float[Array, "*drawn rows obs"],
        actions: Float[Array, "*drawn rows act"],
    ) -> Prediction:
        """Next observation, reward and termination as the asked members see them: the same rows, or each its own."""
        return self.in_units(self.heads(members, observations, actions), observations)

    def in_units(self, heads: Heads, observations: Float[Array, "*rows obs"], steps: int = 1) -> Prediction:
        """What heads say in the units of the log, about so many steps from these observations.

        Standardised changes of single steps, `(change - mean) / scale`, add up to that of several.
        """
        mean = self.outputs.inverse(heads.mean)
        std = self.outputs.scale * jnp.exp(heads.log_std)
        return Prediction(
            observations + mean[..., :-1] + (steps - 1) * self.outputs.mean[:-1],
            std[..., :-1],
            mean[..., -1],
            std[..., -1],
            jax.nn.sigmoid(heads.done_logit),
        )

    def log_prior(self, kind: str, strength: float = 100.0) -> Float[Array, " members"]:
        """Log-weights to draw members by: "uniform", or "likelihood" of `strength` hold-out rows."""
        if kind == "uniform":
            return jnp.zeros_like(self.holdout_nll)
        return -strength * (self.holdout_nll - jnp.min(self.holdout_nll))
