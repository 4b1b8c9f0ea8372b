"""Variations of a whole policy: few numbers that change what an actor does everywhere, and the actor so changed."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.policy.actor import Actor


class Variation(eqx.Module):
    """The directions in which an actor's last layer is varied: those in which its features differ most over the log.

    With the features f(s) of the last hidden layer, a change z moves the mean before the tanh by

        w(s) z,    w(s) = (P^T (f(s) - c), 1),

    where c is the mean of f over logged states and P its whitened principal directions: every number of w(s) but the
    last has mean 0 and variance 1, so that all numbers of z mean about as much. The change of the last layer is exact:
    what is varied is an actor of the same size. Layers before it must stay as they are.
    """

    centre: Float[Array, " hidden"]
    whitening: Float[Array, "hidden directions"]

    @classmethod
    def over(cls, actor: Actor, observations: Float[Array, "rows obs"], directions: int) -> Variation:
        """The directions of an actor over standardised observations; directions that hardly differ there are left out.

        They keep their place as zeros, so that sizes do not depend on numbers.
        """
        features = actor.features(observations)
        centre = jnp.mean(features, axis=0)
        spread, axes = jnp.linalg.eigh((features - centre).T @ (features - centre) / len(features))
        spread, axes = spread[::-1][:directions], axes[:, ::-1][:, :directions]
        differs = spread > 1e-6 * jnp.max(spread)
        return cls(centre, jnp.where(differs, axes / jnp.sqrt(jnp.where(differs, spread, 1.0)), 0.0))

    def draw(self, key: PRNGKeyArray, count: int, spread: float, actions: int) -> Float[Array, "count numbers act"]:
        """Changes at random, in pairs of opposite sign; each moves the mean by `spread` over logged states (rms)."""
        numbers = self.whitening.shape[1] + 1
        half = spread / numbers**0.5 * jax.random.normal(key, (-(-count // 2), numbers, actions))
        return jnp.concatenate([half, -half])[:count]

    def means(
        self,
        actor: Actor,
        observations: Float[Array, "*batch policies rows obs"],
        changes: Float[Array, "policies numbers act"],
    ) -> Float[Array, "*batch policies rows act"]:
        """The mean before the tanh of every changed actor on rows of its own."""
        features = actor.features(observations)
        moved = jnp.einsum("...prn,pna->...pra", (features - self.centre) @ self.whitening, changes[:, :-1])
        return actor.mean_of(features) + moved + changes[:, None, -1]

    def apply(self, actor: Actor, change: Float[Array, "numbers act"]) -> Actor:
        """The actor whose means are those of one change."""
        weight, bias = actor.trunk.weights[-1], actor.trunk.biases[-1]
        more = self.whitening @ change[:-1]
        actions = change.shape[1]
        return eqx.tree_at(
            lambda it: (it.trunk.weights[-1], it.trunk.biases[-1]),
            actor,
            (weight.at[:, :actions].add(more), bias.at[:actions].add(change[-1] - self.centre @ more)),
        )
