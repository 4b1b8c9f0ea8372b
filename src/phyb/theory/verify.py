"""Run the claims: draw cases, measure them, count violations inside and outside the conditions, keep the smallest."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from phyb.errors import UsageError
from phyb.theory.claims import CLAIMS, Claim, Measured

# Small, because the slowest case of a chunk decides how often the others are iterated along.
CHUNK = 250
MOST_INCONCLUSIVE = 1e-3
"""Share of cases that may stay unsolved before a claim is called inconclusive."""
DISTRIBUTIONS = ("models", "truth_model", "policy", "reference", "start", "rivals", "fixed_weights")
"""Arrays of a case whose last axis sums to 1."""
Report = Callable[[int, str], None]


@dataclasses.dataclass(frozen=True)
class Bin:
    """Cases with nearly the same control: its middle, their number, the share violated, worst and middle margin."""

    control: float
    cases: int
    share: float
    worst: float
    median: float


@dataclasses.dataclass(frozen=True)
class Finding:
    """What the cases say about one claim."""

    name: str
    title: str
    statement: str
    condition: str
    corrected: str
    trials: int
    inside: int
    """Cases inside the condition of the statement."""
    violations_inside: int
    violations_outside: int
    corrected_trials: int
    corrected_violations: int
    worst_margin: float
    """Least slack inside the corrected condition (or, without one, the paper's)."""
    verdict: str
    expected: str
    agrees: bool
    """Whether the cases agree with `expected`."""
    counterexample: dict[str, Any] | None
    control: str
    bins: list[Bin]
    """What the picture shows."""
    seconds: float
    inconclusive: int = 0
    """Cases left out because a fixed point was not found to the guaranteed residual."""


def verify(
    names: Sequence[str] | None = None, *, trials: int = 10_000, seed: int = 0, report: Report | None = None
) -> Iterator[Finding]:
    """Check the named claims (all by default), one after the other, on so many random cases each.

    Every claim is seeded on its own: alone it gives the same numbers as among all. `report` is called with the cases
    done in a claim and its name.

    Raises:
        UsageError: there is no such claim, or no trials.
    """
    chosen = list(CLAIMS) if names is None else list(names)
    for name in chosen:
        if name not in CLAIMS:
            raise UsageError(f"There is no claim {name!r}. Known claims: {', '.join(CLAIMS)}")
    if trials < 1:
        raise UsageError(f"trials must be at least 1, found {trials}")
    return (check(CLAIMS[name], trials, seed, report) for name in chosen)


def check(claim: Claim, trials: int, seed: int, report: Report | None = None, *, flaw: float = 0.0) -> Finding:
    """Check one claim; a positive `flaw` makes the statement stronger than the paper's, to test the checker itself."""
    started = time.monotonic()
    rng = np.random.default_rng([seed, *claim.name.encode()])
    families = list(itertools.product(claim.settings, claim.draws))
    per_family = max(1, trials // len(families))
    parts: list[Measured] = []
    example, done = None, 0
    with jax.enable_x64(True):
        for settings, draw in families:
            measure = jax.jit(jax.vmap(functools.partial(claim.measure, flaw=flaw, **settings)))
            hits: list[tuple[float, dict[str, Any]]] = []
            left = per_family
            size = min(CHUNK, per_family)
            while left > 0:
                cases = draw(rng, size)
                found = Measured(*(np.broadcast_to(np.asarray(x), (size,))[:left] for x in measure(cases)))
                parts.append(found)
                hits += _worst(claim, cases, found)
                left -= size
                done += min(size, size + left)
                if report is not None:
                    report(done, claim.name)
            if example is None and hits:
                example = _smallest(claim, measure, hits, size)
    all_cases = Measured(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return _summarise(claim, all_cases, example, time.monotonic() - started)


def _worst(claim: Claim, cases: dict[str, Any], found: Measured) -> list[tuple[float, dict[str, Any]]]:
    """The worst violations of a chunk: those inside the statement's condition if any, else those outside."""
    margin = np.nan_to_num(np.asarray(found.margin), nan=np.inf)
    broken = margin < -claim.tolerance
    inside = broken & np.asarray(found.stated)
    pick = inside if inside.any() else broken
    order = np.argsort(np.where(pick, margin, np.inf))[: min(int(pick.sum()), 200)]
    return [(float(margin[i]), {name: np.asarray(x)[i] for name, x in cases.items()}) for i in order]


def _smallest(
    claim: Claim, measure: Callable[..., Measured], hits: list[tuple[float, dict[str, Any]]], size: int
) -> dict[str, Any]:
    """The counterexample with the fewest digits that still breaks the claim by at least a tenth of the worst."""
    hits = sorted(hits, key=lambda hit: hit[0])[:size]
    need = min(-10.0 * claim.tolerance, 0.1 * hits[0][0])
    for digits in (1, 2, 3, 4):
        cases = [rounded(case, digits) for _, case in hits]
        padded = cases + [cases[-1]] * (size - len(cases))
        found = measure({name: np.stack([case[name] for case in padded]) for name in padded[0]})
        margin = np.nan_to_num(np.asarray(found.margin), nan=0.0)[: len(cases)]
        best = int(np.argmin(margin))
        if margin[best] < need:
            return _plain(cases[best], float(margin[best]))
    return _plain(hits[0][1], hits[0][0])


def rounded(case: dict[str, Any], digits: int) -> dict[str, Any]:
    """The case with few digits, distributions that still sum to 1; whole numbers, flags and seeds stay."""
    return {name: _round(name, np.asarray(value), digits) for name, value in case.items()}


def _round(name: str, value: np.ndarray, digits: int) -> np.ndarray:
    if value.dtype.kind in "biu":
        return value
    if name in DISTRIBUTIONS:
        return _round_simplex(value, 10**digits)
    if name == "discount":
        return np.clip(np.round(value, max(digits, 2)), 0.0, 0.99)
    if value.ndim == 0 and value > 0:
        return np.asarray(float(f"{float(value):.{digits}g}"))
    return np.round(value, digits) + 0.0


def _round_simplex(value: np.ndarray, parts: int) -> np.ndarray:
    """Whole shares of 1 / parts, as near as possible, that sum to 1: the largest remainders are rounded up."""
    scaled = value * parts
    whole = np.floor(scaled)
    missing = parts - np.round(whole.sum(axis=-1, keepdims=True)).astype(int)
    rank = np.argsort(np.argsort(-(scaled - whole), axis=-1), axis=-1)
    return (whole + (rank < missing)) / parts


def _plain(case: dict[str, Any], margin: float) -> dict[str, Any]:
    return {name: np.asarray(value).tolist() for name, value in case.items()} | {"margin": margin}


def _summarise(claim: Claim, measured: Measured, example: dict[str, Any] | None, seconds: float) -> Finding:
    # A case that could not be solved proves nothing either way: it neither holds nor breaks the claim.
    solved = ~np.isnan(np.asarray(measured.margin))
    found = Measured(*(np.asarray(column)[solved] for column in measured))
    inconclusive = int(np.sum(~solved))
    margin, stated, corrected = found.margin, found.stated.astype(bool), found.corrected.astype(bool)
    broken = margin < -claim.tolerance
    inside, corrected_inside = broken & stated, broken & corrected
    if inconclusive > MOST_INCONCLUSIVE * len(solved):
        verdict = "inconclusive"
    elif not inside.any():
        verdict = "holds"
    elif claim.corrected and corrected.any() and not corrected_inside.any():
        verdict = f"holds only if {claim.corrected}"
    else:
        verdict = "fails"
    conditional = claim.expected == "holds only if"
    scope = corrected if conditional else stated
    # Few trials may miss violations outside the condition; only a violation inside it contradicts the expectation.
    wrong = claim.expected != "fails" and (broken & scope).any()
    scope = scope if scope.any() else stated
    about = ("name", "title", "statement", "condition", "corrected", "control")
    return Finding(
        **{name: getattr(claim, name) for name in about},
        trials=len(solved),
        inside=int(stated.sum()),
        violations_inside=int(inside.sum()),
        violations_outside=int((broken & ~stated).sum()),
        corrected_trials=int(corrected.sum()),
        corrected_violations=int(corrected_inside.sum()),
        worst_margin=float(np.min(margin[scope])) if scope.any() else float("nan"),
        verdict=verdict,
        expected=f"holds only if {claim.corrected}" if conditional else claim.expected,
        agrees=verdict != "inconclusive" and not bool(wrong),
        counterexample=example,
        bins=_bins(found.control.astype(float), margin, broken),
        seconds=seconds,
        inconclusive=inconclusive,
    )


def _bins(control: np.ndarray, margin: np.ndarray, broken: np.ndarray, most: int = 12) -> list[Bin]:
    """Bins of about equally many cases along the control; cases of the same control share a bin."""
    values = np.unique(control)
    edges = values if len(values) <= most else np.unique(np.quantile(control, np.arange(most) / most))
    place = np.searchsorted(edges, control, side="right")
    groups = [place == number for number in np.unique(place)]
    return [
        Bin(
            control=float(np.median(control[group])),
            cases=len(control[group]),
            share=float(np.mean(broken[group])),
            worst=float(np.min(margin[group])),
            median=float(np.median(margin[group])),
        )
        for group in groups
    ]
