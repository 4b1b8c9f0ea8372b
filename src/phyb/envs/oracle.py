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

    spec: LiquidationSpec
    discount: float
    thresholds: Float[np.ndarray, " horizon"]
    """Lowest price at which selling is best, for each time; 0 in the last step."""
    grid: Float[np.ndarray, " points"]
    """Prices of the value table."""
    values: Float[np.ndarray, "horizon points"]
    """Value of one unit, u_t(p), at each time and grid price."""
    optimal_return: float
    """Expected return from the start states, discounted with `discount`."""

    def action(self, observations: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 1"]:
        """1 (sell everything) at or above the threshold of the time, else 0 (hold)."""
        sells = observations[:, 2] >= self.thresholds[self._times(observations)]
        return sells.astype(np.float32)[:, None]

    def value(self, observations: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, " n"]:
        """Best expected return from each state to the end of its episode: m u_t(p)."""
        times = self._times(observations)
        per_unit = np.empty(len(observations))
        for time in np.unique(times):
            rows = times == time
            per_unit[rows] = np.interp(observations[rows, 2], self.grid, self.values[time])
        return observations[:, 1] * per_unit

    def _times(self, observations: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(observations[:, 0]).astype(int), 0, self.spec.horizon - 1)


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


@dataclasses.dataclass(frozen=True, eq=False)
class _Market:
    """A price grid with the weights of one step from each grid price, and of the first price."""

    grid: np.ndarray
    step: tuple[np.ndarray, np.ndarray]
    start: tuple[np.ndarray, np.ndarray]


# Two entries hold the plain grid and one with breaks, at 16 MB each: rules and optimum share the plain one.
@functools.lru_cache(maxsize=2)
def _market(spec: LiquidationSpec, grid_points: int, breaks: tuple[float, ...]) -> _Market:
    inside = np.clip(np.asarray(breaks, dtype=np.float64), 0.0, spec.price_max)
    grid = np.union1d(np.linspace(0.0, spec.price_max, grid_points), inside)
    next_means = grid + spec.reversion * (spec.long_run_price - grid)
    step = interpolant_weights(next_means, spec.volatility, grid)
    start = interpolant_weights(np.array([spec.initial_price_mean]), spec.initial_price_std, grid)
    return _Market(grid, step, start)


@functools.lru_cache(maxsize=8)
def solve(discount: float = 1.0, spec: LiquidationSpec = DEFAULT_SPEC, grid_points: int = GRID_POINTS) -> Oracle:
    """Backward induction u_t(p) = max(p, discount E[u_{t+1}(p')]), with u = p in the last step.

    Between grid prices u is interpolated linearly, and the expectation of the interpolant is exact.
    """
    if not 0.0 <= discount <= 1.0:
        raise UsageError(f"discount {discount} is not between 0 and 1")
    market = _market(spec, grid_points, ())
    grid, (left, right), (start_left, start_right) = market.grid, market.step, market.start
    values = np.empty((spec.horizon, grid_points))
    thresholds = np.zeros(spec.horizon)
    values[-1] = grid
    for time in reversed(range(spec.horizon - 1)):
        later = values[time + 1]
        keep = discount * (left @ later[:-1] + right @ later[1:])
        values[time] = np.maximum(grid, keep)
        # One zero only: one more unit of price raises `keep` by at most discount (1 - reversion) < 1.
        thresholds[time] = np.interp(0.0, grid - keep, grid)
    per_unit = start_left[0] @ values[0, :-1] + start_right[0] @ values[0, 1:]
    return Oracle(spec, discount, thresholds, grid, values, float(spec.initial_holding * per_unit))


def expected_return(
    fraction: Callable[[int, np.ndarray], np.ndarray],
    breaks: tuple[float, ...] = (),
    discount: float = 1.0,
    spec: LiquidationSpec = DEFAULT_SPEC,
    grid_points: int = GRID_POINTS,
) -> float:
    """Expected return of a policy that sells `fraction(time, prices)` on average, whatever its holding.

        w_t(p) = f_t(p) p + (1 - f_t(p)) discount E[w_{t+1}(p')]

    The fraction may jump at the prices `breaks`. The early end of an episode with almost nothing left is not
    modelled: it can cost a policy that sells piecemeal up to `sliver` units, a thousandth of the holding.
    """
    market = _market(spec, grid_points, breaks)
    grid, (left, right), (start_left, start_right) = market.grid, market.step, market.start
    middles = (grid[:-1] + grid[1:]) / 2.0
    keep = np.zeros_like(grid)
    lower, upper = keep[:-1], keep[1:]
    for time in reversed(range(spec.horizon)):
        sold = fraction(time, middles)
        lower = sold * grid[:-1] + (1.0 - sold) * keep[:-1]
        upper = sold * grid[1:] + (1.0 - sold) * keep[1:]
        keep = discount * (left @ lower + right @ upper)
    return float(spec.initial_holding * (start_left[0] @ lower + start_right[0] @ upper))


def rule_return(rule: Rule, discount: float = 1.0) -> float:
    """Expected return of one of the simple rules on the paper's market, without simulation."""
    return expected_return(rule.mean_fraction, rule.breaks, discount)


def stopping_return(thresholds: Float[np.ndarray, " horizon"], discount: float = 1.0) -> float:
    """Expected return of selling everything once the price reaches the threshold of its time."""
    return expected_return(
        lambda time, prices: (prices >= thresholds[time]).astype(np.float64), tuple(thresholds), discount
    )
