"""A flow that imitates logged actions, and the one-step policy that is deployed instead of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.networks import MLP
from phyb.policy.actor import BaseActor
from phyb.policy.computation import Computation, Value


class Flow(eqx.Module):
    """pi(a | s) of whoever wrote the log, which may have several modes: a velocity that carries noise to actions.

    A point x that starts from N(0, I) at time 0 and follows `dx/dt = v(s, x, t)` is an action at time 1.
    """

    network: MLP

    def __init__(self, key: PRNGKeyArray, observations: int, actions: int, hidden: Sequence[int]) -> None:
        self.network = MLP(key, (observations + actions + 1, *hidden, actions), jax.nn.gelu)

    def __call__(
        self,
        observations: Float[Array, "*rows obs"],
        points: Float[Array, "*rows act"],
        times: Float[Array, "*rows 1"],
    ) -> Float[Array, "*rows act"]:
        """The velocity at each point and time."""
        return self.network(jnp.concatenate([observations, points, times], axis=-1))

    def carry(
        self, observations: Float[Array, "*rows obs"], noise: Float[Array, "*rows act"], steps: int
    ) -> Float[Array, "*rows act"]:
        """The action in [-1, 1] where each noise ends, by so many steps of Euler: `x <- x + v(s, x, i / n) / n`."""

        def step(points: Array, time: Array) -> tuple[Array, None]:
            times = jnp.broadcast_to(time, (*points.shape[:-1], 1))
            return points + self(observations, points, times) / steps, None

        return jnp.clip(jax.lax.scan(step, noise, jnp.arange(steps) / steps)[0], -1.0, 1.0)


def flow_loss(
    flow: Flow,
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows act"],
    noise: Float[Array, "rows act"],
    times: Float[Array, "rows 1"],
) -> Float[Array, ""]:
    """`mean (v(s, x_t, t) - (a - z))^2` on straight lines `x_t = (1 - t) z + t a` from noise z to logged actions a."""
    velocity = flow(observations, (1.0 - times) * noise + times * actions, times)
    return jnp.mean((velocity - (actions - noise)) ** 2)


class OneStep(BaseActor):
    """A policy that turns noise into an action in one step: `a = clip(g(s, z), -1, 1)` with z from N(0, I)."""

    network: MLP

    def __init__(self, key: PRNGKeyArray, observations: int, actions: int, hidden: Sequence[int]) -> None:
        self.network = MLP(key, (observations + actions, *hidden, actions), jax.nn.gelu)

    def unclipped(
        self, observations: Float[Array, "*rows obs"], noise: Float[Array, "*rows act"]
    ) -> Float[Array, "*rows act"]:
        """`g(s, z)`, which may lie beyond the bounds."""
        return self.network(jnp.concatenate([observations, noise], axis=-1))

    def __call__(
        self, observations: Float[Array, "*rows obs"], noise: Float[Array, "*rows act"]
    ) -> Float[Array, "*rows act"]:
        """The action in [-1, 1] for each observation and noise."""
        return jnp.clip(self.unclipped(observations, noise), -1.0, 1.0)

    def sample(self, key: PRNGKeyArray, observations: Float[Array, "*rows obs"]) -> Float[Array, "*rows act"]:
        """One action per row, drawn from the policy."""
        return self(observations, jax.random.normal(key, (*observations.shape[:-1], self.network.outputs)))

    def mode(self, observations: Float[Array, "*rows obs"]) -> Float[Array, "*rows act"]:
        """The action of the noise 0, which is the likeliest one: of a single action about the median of its draws."""
        return self(observations, jnp.zeros((*observations.shape[:-1], self.network.outputs)))

    def describe(self, to: Computation, observations: Value) -> Value:
        """The action of the noise 0, clipped."""
        return to.clip(to.network(self.network, observations, np.zeros(self.network.outputs)), -1.0, 1.0)

    def sizes(self) -> dict[str, int | list[int]]:
        """What `of_sizes` needs to build the same network, beside the sizes of observation and action."""
        return {"hidden": self.network.hidden}

    @classmethod
    def of_sizes(cls, observations: int, actions: int, hidden: Sequence[int]) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """An untrained network of these sizes."""
        return cls(jax.random.key(0), observations, actions, hidden)
