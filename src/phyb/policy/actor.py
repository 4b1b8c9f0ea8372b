"""The tanh-Gaussian actor. All densities are taken before the tanh, where ratios and fits need no correction term."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.networks import MLP, soft_clamp
from phyb.policy.computation import Computation, Value

LARGEST_ACTION = 0.999
_HALF_LOG_TWO_PI = 0.9189385332046727


class Gaussian(NamedTuple):
    """A diagonal Gaussian over actions before the tanh."""

    mean: Float[Array, "*rows act"]
    log_std: Float[Array, "*rows act"]

    def sample(self, key: PRNGKeyArray, count: int) -> Float[Array, "*rows count act"]:
        """`count` draws per row."""
        shape = (*self.mean.shape[:-1], count, self.mean.shape[-1])
        noise = jax.random.normal(key, shape)
        return self.mean[..., None, :] + jnp.exp(self.log_std)[..., None, :] * noise

    def log_density(self, draws: Float[Array, "*rows count act"]) -> Float[Array, "*rows count"]:
        """Log-density of draws before the tanh."""
        error = (draws - self.mean[..., None, :]) * jnp.exp(-self.log_std)[..., None, :]
        return jnp.sum(-0.5 * error**2 - self.log_std[..., None, :] - _HALF_LOG_TWO_PI, axis=-1)

    def log_likelihood(
        self, actions: Float[Array, "*rows act"], largest: float, *, censored: bool = False
    ) -> Float[Array, "*rows"]:
        """How likely logged actions in [-1, 1] are, up to a constant, before the tanh.

        Actions beyond `largest` count as `largest`. If `censored`, all that they tell is that the draw lay beyond it,

            log P(|draw| >= b, on the side of the action),    b = arctanh(largest),

        as it is where a controller draws from a Gaussian and clips.
        """
        draws = unsquash(actions, largest)
        error = (draws - self.mean) * jnp.exp(-self.log_std)
        seen = -0.5 * error**2 - self.log_std - _HALF_LOG_TWO_PI
        if censored:
            beyond = jax.scipy.special.log_ndtr(-jnp.sign(actions) * error)
            seen = jnp.where(jnp.abs(actions) >= largest, beyond, seen)
        return jnp.sum(seen, axis=-1)


class BaseActor(eqx.Module):
    """What a policy deploys: standardised observations in, actions in [-1, 1] out.

    All fields are arrays, or trees of arrays, or static. policy.json records the class by its name in the registry of
    actors, and `sizes`, from which `of_sizes` builds the same networks to be filled from policy.safetensors.
    """

    sized_by: ClassVar[tuple[str, ...]] = ("hidden",)
    """The names in `sizes`, in the order in which `of_sizes` takes them."""

    def mode(self, observations: Float[Array, "*rows obs"]) -> Float[Array, "*rows act"]:
        """The action in [-1, 1] of a policy that does not explore."""
        raise NotImplementedError

    def sizes(self) -> dict[str, int | list[int]]:
        """What `of_sizes` needs to build the same networks, beside the sizes of observation and action."""
        raise NotImplementedError

    @classmethod
    def of_sizes(cls, observations: int, actions: int, *sizes: Any) -> Self:
        """Untrained networks of these sizes."""
        raise NotImplementedError

    def describe(self, to: Computation, observations: Value) -> Value:
        """What `mode` computes, added to a computation as operations: whoever says this can be exported."""
        raise NotImplementedError


class Actor(BaseActor):
    """A network from standardised observations to a Gaussian; the action is the tanh of its draw.

    A subclass with networks of its own takes the same arguments and gives its Gaussian in `gaussian`. Without a
    `trunk` it also says its `sizes`.
    """

    trunk: MLP
    spread: float = eqx.field(static=True, default=1.0, kw_only=True)
    """Factor on the standard deviation that the network gives; the mean, which is deployed, stays."""

    def __init__(self, key: PRNGKeyArray, observations: int, actions: int, hidden: Sequence[int]) -> None:
        self.trunk = MLP(key, (observations, *hidden, 2 * actions))

    def gaussian(self, observations: Float[Array, "*rows obs"]) -> Gaussian:
        """What the network gives for each row."""
        mean, log_std = jnp.split(self.trunk(observations), 2, axis=-1)
        return Gaussian(mean, soft_clamp(log_std, -4.0, 1.0))

    def __call__(self, observations: Float[Array, "*rows obs"]) -> Gaussian:
        """The Gaussian for each row, with its `spread`."""
        mean, log_std = self.gaussian(observations)
        return Gaussian(mean, log_std + math.log(self.spread))

    def mode(self, observations: Float[Array, "*rows obs"]) -> Float[Array, "*rows act"]:
        """The tanh of the mean: the action in (-1, 1) of a policy that does not explore."""
        return squash(self(observations).mean)

    def describe(self, to: Computation, observations: Value) -> Value:
        """The trunk's means, and their tanh."""
        return to.apply("tanh", to.network(self.trunk, observations, outputs=self.trunk.outputs // 2))

    def features(self, observations: Float[Array, "*rows obs"]) -> Float[Array, "*rows hidden"]:
        """What the last hidden layer says of each row; the Gaussian is linear in it."""
        return self.trunk.before_last(observations)

    def mean_of(self, features: Float[Array, "*rows hidden"]) -> Float[Array, "*rows act"]:
        """The Gaussian's mean for given features."""
        actions = self.trunk.outputs // 2
        return features @ self.trunk.weights[-1][:, :actions] + self.trunk.biases[-1][:actions]

    def sizes(self) -> dict[str, int | list[int]]:
        """What `of_sizes` needs to build the same network, beside the sizes of observation and action."""
        return {"hidden": self.trunk.hidden}

    @classmethod
    def of_sizes(cls, observations: int, actions: int, hidden: Sequence[int]) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """An untrained actor of these sizes."""
        return cls(jax.random.key(0), observations, actions, hidden)

    def with_spread(self, factor: float) -> Self:
        """The same mean with its standard deviation times `factor`."""
        changed = copy.copy(self)
        object.__setattr__(changed, "spread", self.spread * factor)
        return changed


def squash(draws: Float[Array, "*rows act"]) -> Float[Array, "*rows act"]:
    """From draws to actions in (-1, 1)."""
    return jnp.tanh(draws)


def unsquash(actions: Float[Array, "*rows act"], largest: float = LARGEST_ACTION) -> Float[Array, "*rows act"]:
    """From actions to draws; actions beyond `largest` are taken as that, so that the draw stays finite."""
    return jnp.arctanh(jnp.clip(actions, -largest, largest))


class Candidates(NamedTuple):
    """Candidate actions of each row and the reference policy's probability of each among them."""

    draws: Float[Array, "rows candidates act"]
    reference: Float[Array, "rows candidates"]


def propose(
    key: PRNGKeyArray,
    actor: Gaussian,
    reference: Gaussian,
    counts: tuple[int, int, int],
    logged: Gaussian | None = None,
) -> Candidates:
    """Draw candidates from actor, reference and (where given) near the logged action.

    The reference's mass on candidate j is the self-normalised importance weight `mu(a_j) / sum_c (n_c / n) p_c(a_j)`
    over all sources c (the balance heuristic): no candidate counts more than n / n_mu times its share, wherever it
    came from. `logged` is a narrow Gaussian around the logged action. `counts` are the draws from each of the three;
    without `logged` the actor makes up for it.
    """
    from_actor, from_reference, from_logged = counts
    sources = [(actor, from_actor), (reference, from_reference)]
    if logged is None:
        sources[0] = (actor, from_actor + from_logged)
    elif from_logged:
        sources.append((logged, from_logged))
    keys = jax.random.split(key, len(sources))
    draws = jnp.concatenate([s.sample(k, n) for k, (s, n) in zip(keys, sources, strict=True)], axis=-2)
    draws = jax.lax.stop_gradient(draws)
    mixture = jax.nn.logsumexp(jnp.stack([s.log_density(draws) + jnp.log(n) for s, n in sources]), axis=0)
    weights = jax.nn.softmax(reference.log_density(draws) - mixture, axis=-1)
    return Candidates(draws, jax.lax.stop_gradient(weights))
