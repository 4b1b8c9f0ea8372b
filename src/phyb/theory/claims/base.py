"""What a claim is: a statement, how to draw cases for it, and how far each case is from breaking it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

Case = dict[str, Any]
"""Named arrays; drawn with a batch axis in front, measured one by one."""
Draw = Callable[[np.random.Generator, int], Case]
Verdict = Literal["holds", "holds only if", "fails"]
ALWAYS = np.bool_(True)


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
    draws: Sequence[Draw]
    """Families of cases, each of one size."""
    measure: Callable[..., Measured]
    """Of a case and a number that makes the statement stronger than the paper's, to test the checker."""
    statement: str
    condition: str = "none"
    """What the statement itself demands."""
    corrected: str = ""
    """The condition under which it holds, where the paper's own is not enough; empty if it is."""
    expected: Verdict = "holds"
    """The verdict this project states; `phyb verify` ends with exit code 1 if the cases contradict it."""
    control: str = "lambda / Delta"
    tolerance: float = 1e-9
    curves: Callable[[], Curves] | None = None
    settings: Sequence[Mapping[str, Any]] = ({},)
    """What the measure takes beside; every family of cases is drawn for each of them."""


CLAIMS: dict[str, Claim] = {}


def claim(name: str, title: str, *draws: Draw, **about: Any) -> Callable[[Callable[..., Measured]], Any]:
    """Register a measure as the check of a claim; the statement is its docstring, `about` other fields of `Claim`.

    Without `expected` a claim should hold, and only under the corrected condition where there is one.
    """
    about.setdefault("expected", "holds only if" if "corrected" in about else "holds")

    def register(measure: Callable[..., Measured]) -> Callable[..., Measured]:
        statement = inspect.getdoc(measure) or ""
        CLAIMS[name] = Claim(name, title, draws, measure, statement, **about)
        return measure

    return register
