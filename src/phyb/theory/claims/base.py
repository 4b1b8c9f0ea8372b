"""What a claim is: a statement, how to draw cases for it, and how far each case is from breaking it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from phyb.theory.mdp import FiniteMDP, Hybrid

Case = dict[str, Any]
"""Named arrays; drawn with a batch axis in front, measured one by one."""
Draw = Callable[[np.random.Generator, int], Case]
Verdict = Literal["holds", "holds only if", "fails"]


class Measured(NamedTuple):
    """One case: the slack of the claimed inequality (negative is a violation) and where the case stands."""

    margin: Any
    stated: Any
    """Inside the condition the paper's statement names."""
    mended: Any
    """Inside the condition under which we say the claim holds."""
    control: Any
    """The quantity that decides, for the picture."""


class Variant(NamedTuple):
    """A family of cases of one size."""

    draw: Draw
    measure: Callable[[Case], Measured]


class Claim(NamedTuple):
    """One statement of the paper as an executable check."""

    name: str
    title: str
    statement: str
    condition: str
    """What the statement itself demands."""
    mended: str
    """The condition under which it holds, where the paper's own is not enough; empty if it is."""
    says: Verdict
    """What we say about it; `phyb verify` ends with exit code 1 if the cases disagree."""
    control: str
    tolerance: float
    share: float
    """Part of the asked trials to run; below 1 where a case is expensive."""
    variants: Callable[[float], tuple[Variant, ...]]
    """The families of cases. Its number makes the statement stronger than the paper's, to test the checker."""


CLAIMS: dict[str, Claim] = {}


def claim(
    name: str,
    title: str,
    *,
    condition: str,
    says: Verdict,
    control: str,
    mended: str = "",
    tolerance: float = 1e-9,
    share: float = 1.0,
) -> Callable[[Callable[[float], tuple[Variant, ...]]], Callable[[float], tuple[Variant, ...]]]:
    """Register a check; the statement is the docstring of the function below."""

    def register(variants: Callable[[float], tuple[Variant, ...]]) -> Callable[[float], tuple[Variant, ...]]:
        statement = inspect.getdoc(variants) or ""
        CLAIMS[name] = Claim(
            name, title, statement, condition, mended, says, control, tolerance, share, variants
        )  # fmt: skip
        return variants

    return register


ALWAYS = np.bool_(True)


def world(case: Case) -> FiniteMDP:
    """The finite world inside a case."""
    return FiniteMDP(case["rewards"], case["models"], case["start"], case["discount"])


def belief(case: Case) -> Hybrid:
    """The belief's numbers inside a case."""
    return Hybrid(case["subset_size"], case["temperature"])


def world_case(mdp: FiniteMDP) -> Case:
    """A case that holds a finite world."""
    return {"rewards": mdp.rewards, "models": mdp.models, "start": mdp.start, "discount": mdp.discount}


def draw_belief(rng: np.random.Generator, count: int, largest: int, discount: np.ndarray) -> Case:
    """K from 1 to `largest`, and lambda over six orders of e around the scale of values."""
    scale = np.minimum(1.0 / (1.0 - discount), 10.0)
    temperature = np.exp(rng.uniform(-4.5, 1.5, count)) * scale
    return {"subset_size": rng.integers(1, largest + 1, count), "temperature": temperature}


def ratio(temperature: Array, spread: Array) -> Array:
    """Lambda / Delta, kept finite where all models agree."""
    return jnp.clip(temperature / jnp.maximum(spread, 1e-12), 1e-3, 1e3)
