"""What a claim is: a statement, how to draw cases for it, and how far each case is from breaking it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

Case = dict[str, Any]
"""Named arrays; drawn with a batch axis in front, measured one by one."""
Draw = Callable[[np.random.Generator, int], Case]
Verdict = Literal["holds", "holds only if", "fails"]


class Measured(NamedTuple):
    """One case: the slack of the claimed inequality (negative is a violation) and where the case stands."""

    margin: Any
    """Not a number where a fixed point was not found: such a case counts neither way."""
    stated: Any
    """Inside the condition the paper's statement names."""
    corrected: Any
    """Inside the corrected condition, under which the claim holds."""
    control: Any
    """The quantity that decides, for the picture."""


class Variant(NamedTuple):
    """A family of cases of one size."""

    draw: Draw
    measure: Callable[[Case], Measured]


Variants = Callable[[float], tuple[Variant, ...]]


class Curves(NamedTuple):
    """A picture of a claim's own, where shares of violations would say little."""

    x_label: str
    y_label: str
    lines: dict[str, tuple[np.ndarray, np.ndarray]]
    """Label to x and y."""


class Claim(NamedTuple):
    """One statement of the paper as an executable check."""

    name: str
    title: str
    statement: str
    condition: str
    """What the statement itself demands."""
    corrected: str
    """The condition under which it holds, where the paper's own is not enough; empty if it is."""
    expected: Verdict
    """The verdict this project states; `phyb verify` ends with exit code 1 if the cases contradict it."""
    control: str
    tolerance: float
    variants: Variants
    """The families of cases. Its number makes the statement stronger than the paper's, to test the checker."""
    curves: Callable[[], Curves] | None = None


CLAIMS: dict[str, Claim] = {}


def claim(
    name: str,
    title: str,
    *,
    condition: str = "none",
    corrected: str = "",
    expected: Verdict | None = None,
    control: str = "lambda / Delta",
    tolerance: float = 1e-9,
    curves: Callable[[], Curves] | None = None,
) -> Callable[[Variants], Variants]:
    """Register a check; the statement is the docstring of the function below.

    Without `expected` a claim should hold, and only under the corrected condition where there is one.
    """
    verdict: Verdict = expected or ("holds only if" if corrected else "holds")

    def register(variants: Variants) -> Variants:
        statement = inspect.getdoc(variants) or ""
        CLAIMS[name] = Claim(
            name, title, statement, condition, corrected, verdict, control, tolerance, variants, curves
        )
        return variants

    return register


ALWAYS = np.bool_(True)
