"""Finite MDPs as arrays: known rewards, an ensemble of transition models, and priors to draw models from.

Everything here is written for one MDP; `phyb.theory.exact` maps it over many. Names of axes: models (N), states (S),
actions (A), and `next` for the successor state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from phyb.errors import DataError


class FiniteMDP(NamedTuple):
    """Rewards, N candidate models of the transitions, where episodes start, and the discount gamma.

    Any number of batch axes may stand in front, the same in every field.
    """

    rewards: Float[Array, "*batch states actions"]
    models: Float[Array, "*batch models states actions next"]
    start: Float[Array, "*batch states"]
    discount: Float[Array, "*batch"]


class Hybrid(NamedTuple):
    """The belief's two numbers: k, the models kept, and lambda, how evenly they are weighed."""

    subset_size: Int[Array, "*batch"] | int
    temperature: Float[Array, "*batch"] | float


def make_mdp(rewards: object, models: object, discount: float, start: object = None) -> FiniteMDP:
    """An MDP from plain lists or arrays, checked; without `start`, every state starts equally often.

    Raises:
        DataError: shapes do not fit, or rows of `models` or `start` are no probability distributions.
    """
    r, p = np.asarray(rewards, np.float64), np.asarray(models, np.float64)
    if r.ndim < 2 or p.ndim != r.ndim + 2 or p.shape[:-4] != r.shape[:-2] or p.shape[-3:-1] != r.shape[-2:]:
        raise DataError(
            f"models have shape {p.shape}, expected (models, states, actions, states) for rewards {r.shape}"
        )
    if p.shape[-1] != r.shape[-2]:
        raise DataError(f"models lead to {p.shape[-1]} states, expected {r.shape[-2]}")
    s = np.full((*r.shape[:-2], r.shape[-2]), 1.0 / r.shape[-2]) if start is None else np.asarray(start, np.float64)
    for name, rows in (("models", p), ("start", s)):
        if np.any(rows < 0) or not np.allclose(rows.sum(-1), 1.0, atol=1e-9):
            raise DataError(f"{name}: every row must be a probability distribution over states")
    if not 0.0 <= discount < 1.0:
        raise DataError(f"discount must lie in [0, 1), found {discount}")
    return FiniteMDP(r, p, s, np.full(r.shape[:-2], discount))  # pyright: ignore[reportArgumentType]


def dirichlet_models(rng: np.random.Generator, concentration: float | np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Distributions over the last axis of `shape`, from a symmetric Dirichlet; low concentration is nearly certain.

    `concentration` is one number, or one for each entry of the first axes.
    """
    level = np.asarray(concentration, np.float64)
    level = level.reshape(level.shape + (1,) * (len(shape) - level.ndim))
    # A gamma variable of small shape underflows; U^(1/a) G(a + 1) is the same variable, and its logarithm does not.
    log_gamma = np.log(rng.gamma(level + 1.0, size=shape)) + np.log(rng.uniform(1e-300, 1.0, shape)) / level
    log_gamma -= log_gamma.max(axis=-1, keepdims=True)
    weights = np.exp(log_gamma)
    return weights / weights.sum(axis=-1, keepdims=True)


def perturbed_models(rng: np.random.Generator, centre: np.ndarray, scale: float | np.ndarray, count: int) -> np.ndarray:
    """`count` models around `centre` (states, actions, next): Gaussian noise of this scale on the logits of every row.

    With a batch in front of `centre`, the models stand on the axis behind it; `scale` may hold one number per MDP.
    """
    shape = (*centre.shape[:-3], count, *centre.shape[-3:])
    width = np.asarray(scale, np.float64)
    width = width.reshape(width.shape + (1,) * (len(shape) - width.ndim))
    logits = np.log(np.maximum(centre, 1e-12))[..., None, :, :, :] + width * rng.normal(size=shape)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def random_mdps(rng: np.random.Generator, count: int, states: int, actions: int, models: int) -> FiniteMDP:
    """`count` random MDPs with rewards in [-1, 1] and at least one reward of size 1; gamma from 0.3 to 0.97.

    Models go from nearly deterministic to nearly uniform; in one MDP of three they agree up to noise, as an
    ensemble trained on one log does.
    """
    level = np.exp(rng.uniform(-3.0, 1.0, count))
    free = dirichlet_models(rng, level, (count, models, states, actions, states))
    near = perturbed_models(rng, free[:, 0], np.exp(rng.uniform(-2.0, 1.0, count)), models)
    chosen = np.where((rng.uniform(size=count) < 1 / 3)[:, None, None, None, None], near, free)
    rewards = rng.uniform(-1.0, 1.0, (count, states, actions))
    rewards /= np.abs(rewards).max(axis=(1, 2), keepdims=True)
    start = dirichlet_models(rng, 0.3, (count, states))
    discount = 1.0 - np.exp(rng.uniform(np.log(0.03), np.log(0.7), count))
    return FiniteMDP(rewards, chosen, start, discount)  # pyright: ignore[reportArgumentType]


def random_policies(rng: np.random.Generator, count: int, states: int, actions: int) -> np.ndarray:
    """`count` random policies with every action possible, from nearly greedy to nearly uniform."""
    level = np.exp(rng.uniform(-1.5, 1.5, count))
    return 0.999 * dirichlet_models(rng, level, (count, states, actions)) + 0.001 / actions
