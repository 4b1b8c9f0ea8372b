"""The liquidation policy as a map over time and price, beside the optimal stopping boundary."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator

from phyb.envs.liquidation import DEFAULT_SPEC
from phyb.envs.oracle import solve
from phyb.policy.policy import Policy
from phyb.report.style import COLORS, Key, Panel, drawing, to_svg

PRICE_POINTS = 120
_MAP = LinearSegmentedColormap.from_list("sold", ["#f3ead2", "#e2b45f", "#b3541e", "#5a1a1f"])


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyMap:
    """What the policy sells at full holding, and how likely a price is while one waits."""

    prices: Float[np.ndarray, " prices"]
    sold: Float[np.ndarray, "horizon prices"]
    weight: Float[np.ndarray, "horizon prices"]
    thresholds: Float[np.ndarray, " horizon"]

    @property
    def agreement(self) -> float:
        """How often more than half is sold exactly where selling is optimal; likely prices count more."""
        best = self.prices[None, :] >= self.thresholds[:, None]
        return float(np.sum(self.weight * ((self.sold > 0.5) == best)) / np.sum(self.weight))


def price_law() -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the price at each time, before clipping, if one only waits."""
    spec, keep = DEFAULT_SPEC, 1.0 - DEFAULT_SPEC.reversion
    means, variances = [spec.initial_price_mean], [spec.initial_price_std**2]
    for _ in range(spec.horizon - 1):
        means.append(spec.long_run_price + keep * (means[-1] - spec.long_run_price))
        variances.append(keep**2 * variances[-1] + spec.volatility**2)
    return np.array(means), np.sqrt(variances)


def map_policy(policy: Policy) -> PolicyMap | None:
    """Evaluate the policy at every time and price with nothing sold yet; None if its task is another one."""
    if policy.standardizer.mean.shape != (3,) or policy.action_low.shape != (1,):
        return None
    spec = DEFAULT_SPEC
    prices = np.linspace(0.0, 3.0, PRICE_POINTS)
    times = np.arange(spec.horizon, dtype=np.float64)
    time, price = np.meshgrid(times, prices, indexing="ij")
    rows = np.stack([time, np.full_like(time, spec.initial_holding), price], axis=-1).reshape(-1, 3)
    sold = np.clip(policy.act(rows.astype(np.float32))[:, 0], 0.0, 1.0).reshape(time.shape)
    mean, std = price_law()
    weight = np.exp(-0.5 * ((price - mean[:, None]) / std[:, None]) ** 2) / std[:, None]
    return PolicyMap(prices, sold, weight, solve().thresholds)


def policy_panel(found: PolicyMap) -> Panel:
    """The sold fraction as a heat map, with the boundary above which selling everything is optimal."""
    horizon = len(found.thresholds)
    mean, std = price_law()
    edges = np.arange(horizon + 1) - 0.5
    with drawing((3.9, 3.2)) as (figure, axes):
        axes.grid(False)
        image = axes.imshow(
            found.sold.T,
            origin="lower",
            aspect="auto",
            cmap=_MAP,
            vmin=0.0,
            vmax=1.0,
            interpolation="nearest",
            extent=(-0.5, horizon - 0.5, float(found.prices[0]), float(found.prices[-1])),
        )
        axes.stairs(found.thresholds, edges, baseline=None, color=COLORS["true"], linewidth=2.4)
        for side in (-1.96, 1.96):
            axes.plot(mean + side * std, color="#fffdf5", linewidth=2.6, alpha=0.7)
            axes.plot(mean + side * std, color="#3c3c3c", linestyle=(0, (1, 1.6)), linewidth=1.3)
        axes.set_xlim(-0.5, horizon - 0.5)
        axes.set_ylim(0.0, float(found.prices[-1]))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_xlabel("time")
        axes.set_ylabel("price")
        bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=28)
        bar.set_ticks([0.0, 0.5, 1.0], labels=["0", "½", "1"])
        bar.set_label("fraction sold")
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        bar.ax.tick_params(length=0)
        svg = to_svg(figure, "policy map")
    alt = (
        f"Heat map of the fraction sold over {horizon} times and prices 0 to 3. The optimal boundary falls from "
        f"{found.thresholds[0]:.2f} to 0; the policy agrees with it in {100 * found.agreement:.0f} % of cases."
    )
    legend = [Key("optimal: sell at or above", "true"), Key("95 % of prices while waiting", "muted", "dotted")]
    return Panel("Fraction sold with the full holding", svg, alt, legend)
