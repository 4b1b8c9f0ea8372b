"""Critics Q(s, a), twins or more, and the amortised value V(s), on standardised observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.networks import MLP

Vote = Literal["least", "mean"]
"""How the critics' values become one."""
TargetVote = Literal["least", "mean", "random-pair"]
"""The same for targets: random-pair is the least of two critics that are drawn anew for every batch."""


def one_of(values: Float[Array, "critics *rows"], vote: Vote) -> Float[Array, "*rows"]:
    """The least of the critics' values, or their mean."""
    return jnp.min(values, axis=0) if vote == "least" else jnp.mean(values, axis=0)


class Critics(eqx.Module):
    """Independent Q networks, stacked; two, if not said otherwise."""

    networks: MLP

    def __init__(
        self,
        key: PRNGKeyArray,
        observations: int,
        actions: int,
        hidden: Sequence[int],
        *,
        count: int = 2,
        activation: Callable[[Array], Array] = jax.nn.relu,
        layer_norm: bool = False,
    ) -> None:
        sizes = (observations + actions, *hidden, 1)
        keys = jax.random.split(key, count)
        self.networks = jax.vmap(lambda k: MLP(k, sizes, activation, layer_norm=layer_norm))(keys)

    def __call__(
        self, observations: Float[Array, "*rows obs"], actions: Float[Array, "*rows act"]
    ) -> Float[Array, "critics ..."]:
        """Every critic's value of each row."""
        rows = jnp.concatenate([observations, actions], axis=-1)
        return jax.vmap(lambda network: network(rows)[..., 0])(self.networks)

    def of_candidates(
        self, observations: Float[Array, "rows obs"], actions: Float[Array, "rows candidates act"], vote: Vote = "least"
    ) -> Float[Array, "rows candidates"]:
        """The least of the critics' values, or their mean, for several actions at each observation."""
        shape = (*actions.shape[:-1], observations.shape[-1])
        values = self(jnp.broadcast_to(observations[..., None, :], shape), actions)
        return one_of(values, vote)


def vote_on(key: PRNGKeyArray, values: Float[Array, "critics *rows"], vote: TargetVote) -> Float[Array, "*rows"]:
    """One value of each row from those of all critics."""
    if vote == "mean":
        return jnp.mean(values, axis=0)
    if vote == "random-pair":
        values = values[jax.random.choice(key, values.shape[0], (2,), replace=False)]
    return jnp.min(values, axis=0)


class ValueNetwork(eqx.Module):
    """V(s): what the mirror step is worth at a state, learned, so that a backup needs one row per successor."""

    network: MLP

    def __init__(
        self, key: PRNGKeyArray, observations: int, hidden: Sequence[int], *, layer_norm: bool = False
    ) -> None:
        self.network = MLP(key, (observations, *hidden, 1), layer_norm=layer_norm)

    def __call__(self, observations: Float[Array, "*rows obs"]) -> Float[Array, "*rows"]:
        """The value of each row."""
        return self.network(observations)[..., 0]
