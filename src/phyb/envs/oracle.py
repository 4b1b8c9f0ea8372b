"""The exact optimum of the liquidation task, by dynamic programming on (time, price).

The reward is linear in the holding, so the best value is `m u_t(p)`, holding times value per unit, and the
best action sells all or nothing. What remains is an optimal-stopping problem with one continuous dimension.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from phyb.envs.liquidation import DEFAULT_SPEC, LiquidationSpec
from phyb.envs.rules import Rule
from phyb.errors import UsageError

GRID_POINTS = 1001

_erf = np.frompyfunc(math.erf, 1, 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Oracle:
    """The best policy for one market and discount: sell everything once the price reaches a threshold."""

    thresholds: Float[np.ndarray, " horizon"]
    """Lowest price at which selling is best, for each time; 0 in the last step."""
    optimal_return: float
    """Expected return from the start states, discounted with `discount`."""

    def action(self, observations: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 1"]:
        """1 (sell everything) at or above the threshold of the time, else 0 (hold)."""
        times = np.clip(np.rint(observations[:, 0]).astype(int), 0, len(self.thresholds) - 1)
        return (observations[:, 2] >= self.thresholds[times]).astype(np.float32)[:, None]


def interpolant_weights(
    means: Float[np.ndarray, " n"], std: float, grid: Float[np.ndarray, " points"]
) -> tuple[Float[np.ndarray, "n cells"], Float[np.ndarray, "n cells"]]:
    """Weights (L, R) with E[f(X)] = L l + R r for X = clip(N(mean, std^2), grid[0], grid[-1]).

    f is linear inside each cell [a, b] of the grid, from l at its left end to r at its right end, and may
    jump between cells. With z = (x - mean) / std, P = Phi(z_b) - Phi(z_a) and M = E[(X - a) 1{a < X < b}],

        M = (mean - a) P + std (phi(z_a) - phi(z_b)),    R = M / (b - a),    L = P - R,

    and the mass beyond either end of the grid falls on that end.
    """
    z = (grid[None, :] - means[:, None]) / std
    cdf = 0.5 * (1.0 + np.asarray(_erf(z / math.sqrt(2.0)), dtype=np.float64))
    pdf = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    mass = np.diff(cdf, axis=1)
    moment = (means[:, None] - grid[None, :-1]) * mass - std * np.diff(pdf, axis=1)
    right = moment / np.diff(grid)
    left = mass - right
    left[:, 0] += cdf[:, 0]
    right[:, -1] += 1.0 - cdf[:, -1]
    return left, right


_Market = tuple[np.ndarray, tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""A price grid, with the weights of one step from each grid price, and of the first price."""


# Two entries hold the plain grid and one with breaks, at 16 MB each: rules and optimum share the plain one.
@functools.lru_cache(maxsize=2)
def _market(spec: LiquidationSpec, grid_points: int, breaks: tuple[float, ...]) -> _Market:
    inside = np.clip(np.asarray(breaks, dtype=np.float64), 0.0, spec.price_max)
    grid = np.union1d(np.linspace(0.0, spec.price_max, grid_points), inside)
    next_means = grid + spec.reversion * (spec.long_run_price - grid)
    step = interpolant_weights(next_means, spec.volatility, grid)
    start = interpolant_weights(np.array([spec.initial_price_mean]), spec.initial_price_std, grid)
    return grid, step, start


@functools.lru_cache(maxsize=8)
def solve(discount: float = 1.0, spec: LiquidationSpec = DEFAULT_SPEC, grid_points: int = GRID_POINTS) -> Oracle:
    """Backward induction u_t(p) = max(p, discount E[u_{t+1}(p')]), with u = p in the last step.

    Between grid prices u is interpolated linearly, and the expectation of the interpolant is exact.
    """
    if not 0.0 <= discount <= 1.0:
        raise UsageError(f"discount {discount} is not between 0 and 1")
    grid, (left, right), (start_left, start_right) = _market(spec, grid_points, ())
    thresholds, values = np.zeros(spec.horizon), grid
    for time in reversed(range(spec.horizon - 1)):
        keep = discount * (left @ values[:-1] + right @ values[1:])
        values = np.maximum(grid, keep)
        # One zero only: one more unit of price raises `keep` by at most discount (1 - reversion) < 1.
        thresholds[time] = np.interp(0.0, grid - keep, grid)
    per_unit = start_left[0] @ values[:-1] + start_right[0] @ values[1:]
    return Oracle(thresholds, float(spec.initial_holding * per_unit))


def expected_return(
    fraction: Callable[[int, np.ndarray], np.ndarray],
    breaks: tuple[float, ...] = (),
    spec: LiquidationSpec = DEFAULT_SPEC,
) -> float:
    """Expected return of a policy that sells `fraction(time, prices)` on average, whatever its holding.

        w_t(p) = f_t(p) p + (1 - f_t(p)) E[w_{t+1}(p')]

    The fraction may jump at the prices `breaks`. The early end of an episode with almost nothing left is not
    modelled: it can cost a policy that sells piecemeal up to `sliver` units, a thousandth of the holding.
    """
    grid, (left, right), (start_left, start_right) = _market(spec, GRID_POINTS, breaks)
    middles = (grid[:-1] + grid[1:]) / 2.0
    keep = np.zeros_like(grid)
    lower, upper = keep[:-1], keep[1:]
    for time in reversed(range(spec.horizon)):
        sold = fraction(time, middles)
        lower = sold * grid[:-1] + (1.0 - sold) * keep[:-1]
        upper = sold * grid[1:] + (1.0 - sold) * keep[1:]
        keep = left @ lower + right @ upper
    return float(spec.initial_holding * (start_left[0] @ lower + start_right[0] @ upper))


def rule_return(rule: Rule) -> float:
    """Expected return of one of the simple rules on the paper's market, without simulation."""
    return expected_return(rule.mean_fraction, rule.breaks)


def stopping_return(thresholds: Float[np.ndarray, " horizon"]) -> float:
    """Expected return of selling everything once the price reaches the threshold of its time."""
    return expected_return(lambda time, prices: (prices >= thresholds[time]).astype(np.float64), tuple(thresholds))
