"""The cases most claims share: random MDPs with a belief and a policy, and how lambda stands to Delta in them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from phyb.theory import operators as op
from phyb.theory.claims.base import ALWAYS, Case, Draw, Measured
from phyb.theory.mdp import FiniteMDP, Hybrid, random_mdps, random_policies


def mdp_of(case: Case) -> FiniteMDP:
    """The finite MDP inside a case."""
    return FiniteMDP(case["rewards"], case["models"], case["start"], case["discount"])


def belief(case: Case) -> Hybrid:
    """The belief's numbers inside a case."""
    return Hybrid(case["subset_size"], case["temperature"])


def draw_belief(rng: np.random.Generator, count: int, largest: int) -> Case:
    """K from 1 to `largest`, and lambda over six orders of e around the size of a reward."""
    temperature = np.exp(rng.uniform(-4.5, 1.5, count))
    return {"subset_size": rng.integers(1, largest + 1, count), "temperature": temperature}


def draw_mdps(states: int, actions: int, models: int, *, largest: int | None = None) -> Draw:
    """Random MDPs of this size with a random policy, and a belief that keeps up to `largest` models (all)."""

    def draw(rng: np.random.Generator, count: int) -> Case:
        case: Case = random_mdps(rng, count, states, actions, models)._asdict()
        case["policy"] = random_policies(rng, count, states, actions)
        return case | draw_belief(rng, count, models if largest is None else largest)

    return draw


def ratio(temperature: Array, spread: Array) -> Array:
    """Lambda / Delta, kept finite where all models agree."""
    return jnp.clip(temperature / jnp.maximum(spread, 1e-12), 1e-3, 1e3)


def contraction(case: Case, first: Array, second: Array) -> tuple[Array, Array]:
    """`|B Q1 - B Q2| / (gamma |Q1 - Q2|)` of the case's two Q-functions, given the V of each; and Delta."""
    mdp, hybrid = mdp_of(case), belief(case)
    change = jnp.max(jnp.abs(op.backup(mdp, first, hybrid) - op.backup(mdp, second, hybrid)))
    distance = jnp.max(jnp.abs(case["q"] - case["q_other"]))
    return change / (mdp.discount * distance + 1e-300), op.span(mdp, first, second)


def beside_delta(case: Case, slack: Array, spread: Array, flaw: float) -> Measured:
    """A claim the paper states without a condition and that we say holds where `lambda >= Delta`.

    A positive `flaw` says so already where `lambda >= (1 - flaw) Delta`.
    """
    inside = case["temperature"] >= (1.0 - flaw) * spread
    return Measured(slack, ALWAYS, inside, ratio(case["temperature"], spread))
