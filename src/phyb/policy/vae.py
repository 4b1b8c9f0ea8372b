"""A conditional variational autoencoder of the logged actions, and the policy that stays within reach of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.networks import MLP, soft_clamp
from phyb.policy.actor import BaseActor, Gaussian, squash
from phyb.policy.computation import Computation, Value


class VAE(eqx.Module):
    """pi(a | s) of whoever wrote the log: `a = decode(s, z)` with z from N(0, I). It may have several modes."""

    encoder: MLP
    decoder: MLP

    def __init__(self, key: PRNGKeyArray, observations: int, actions: int, hidden: Sequence[int], latent: int) -> None:
        encoder_key, decoder_key = jax.random.split(key)
        self.encoder = MLP(encoder_key, (observations + actions, *hidden, 2 * latent))
        self.decoder = MLP(decoder_key, (observations + latent, *hidden, actions))

    def encode(self, observations: Float[Array, "*rows obs"], actions: Float[Array, "*rows act"]) -> Gaussian:
        """The latents that may stand for each action."""
        mean, log_std = jnp.split(self.encoder(jnp.concatenate([observations, actions], axis=-1)), 2, axis=-1)
        return Gaussian(mean, soft_clamp(log_std, -4.0, 4.0))

    def decode(
        self, observations: Float[Array, "*rows obs"], latents: Float[Array, "*rows latent"]
    ) -> Float[Array, "*rows act"]:
        """The action in (-1, 1) that each latent stands for."""
        return _decode(self.decoder, observations, latents)


def vae_loss(
    vae: VAE,
    key: PRNGKeyArray,
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows act"],
    divergence_weight: float,
) -> Float[Array, ""]:
    """`mean (decode(s, z) - a)^2 + w mean KL(q(z | s, a) || N(0, 1))` with z from q, means over rows and columns.

    Per column, `KL = (mean^2 + std^2 - 1) / 2 - log std`.
    """
    latents = vae.encode(observations, actions)
    error = vae.decode(observations, latents.sample(key, 1)[:, 0]) - actions
    divergence = 0.5 * (latents.mean**2 + jnp.exp(2.0 * latents.log_std) - 1.0) - latents.log_std
    return jnp.mean(error**2) + divergence_weight * jnp.mean(divergence)


class PerturbedDecoder(BaseActor):
    """A policy near the log: a decoded action, moved by at most `reach` in every column.

    `a = clip(d + reach tanh(net(s, d)), -1, 1)` with `d = decode(s, z)`.
    """

    decoder: MLP
    perturbation: MLP
    reach: Float[Array, ""]

    sized_by: ClassVar[tuple[str, ...]] = ("hidden", "latent", "perturbation_hidden")

    def __call__(
        self, observations: Float[Array, "*rows obs"], latents: Float[Array, "*rows latent"]
    ) -> Float[Array, "*rows act"]:
        """The action in [-1, 1] for each observation and latent."""
        decoded = _decode(self.decoder, observations, latents)
        push = squash(self.perturbation(jnp.concatenate([observations, decoded], axis=-1)))
        moved = decoded + self.reach * push
        # The gradient passes the clip: an action pushed beyond its bound could otherwise never come back.
        return jax.lax.stop_gradient(jnp.clip(moved, -1.0, 1.0)) + (moved - jax.lax.stop_gradient(moved))

    def mode(self, observations: Float[Array, "*rows obs"]) -> Float[Array, "*rows act"]:
        """The action of the latent 0, which is the likeliest one."""
        return self(observations, jnp.zeros((*observations.shape[:-1], self.latent)))

    def describe(self, to: Computation, observations: Value) -> Value:
        """The decoded action of the latent 0, pushed and clipped."""
        decoded = to.apply("tanh", to.network(self.decoder, observations, np.zeros(self.latent)))
        push = to.apply("tanh", to.network(self.perturbation, observations, decoded))
        return to.clip(to.apply("add", decoded, to.apply("multiply", push, self.reach)), -1.0, 1.0)

    @property
    def latent(self) -> int:
        """Numbers in one latent."""
        return self.decoder.inputs - (self.perturbation.inputs - self.perturbation.outputs)

    def sizes(self) -> dict[str, int | list[int]]:
        """What `of_sizes` needs to build the same networks, beside the sizes of observation and action."""
        sizes = (self.decoder.hidden, self.latent, self.perturbation.hidden)
        return dict(zip(self.sized_by, sizes, strict=True))

    @classmethod
    def of_sizes(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, observations: int, actions: int, hidden: Sequence[int], latent: int, perturbation_hidden: Sequence[int]
    ) -> Self:
        """Untrained networks of these sizes."""
        key = jax.random.key(0)
        decoder = MLP(key, (observations + latent, *hidden, actions))
        return cls(decoder, MLP(key, (observations + actions, *perturbation_hidden, actions)), jnp.zeros(()))


def prior_latents(key: PRNGKeyArray, rows: int, latent: int, bound: float) -> Float[Array, "rows latent"]:
    """Latents from N(0, I), clipped to +-bound: a smaller bound keeps to the more common actions of the log."""
    return jnp.clip(jax.random.normal(key, (rows, latent)), -bound, bound)


def _decode(decoder: MLP, observations: Array, latents: Array) -> Array:
    return squash(decoder(jnp.concatenate([observations, latents], axis=-1)))
