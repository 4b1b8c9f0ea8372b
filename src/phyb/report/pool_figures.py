"""Figures of the pool on hold-out episodes: calibration, disagreement, and error against rollout length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from phyb.report.reading import reading
from phyb.report.style import COLORS, Key, Panel, drawing, short_number, to_svg, value_axis
from phyb.training.records import Record, number, numbers, records


def calibration_panel(dimension: Record, name: str) -> Panel | None:
    """Predicted against observed error in bins of rows; on the diagonal the predicted error is right."""
    points = _points(dimension.get("bins"))
    if not len(points):
        return None
    legend = [Key("rows of similar predicted error", "true"), Key("perfect calibration", "behaviour", "dashed")]
    svg, shown = _draw_bins(points, f"calibration {name}", ("predicted error (std)", "observed error (RMSE)"))
    text = "; ".join(f"{predicted:.3g} predicted, {seen:.3g} observed" for predicted, seen in points)
    return Panel(name, svg, f"Calibration of {name}: {text}.", legend, shown)


def disagreement_panel(bins: Any) -> Panel | None:
    """The members' disagreement against the pool's error in bins of rows; it should rise."""
    points = _points(bins)
    if not np.any(points > 0):
        return None
    title = "Disagreement and error"
    svg, shown = _draw_bins(points, title, ("disagreement / trivial error", "error / trivial error"))
    legend = [Key("rows of similar disagreement", "true"), Key("error as large as disagreement", "behaviour", "dashed")]
    text = "; ".join(f"disagreement {spread:.3g}, error {seen:.3g}" for spread, seen in points)
    return Panel(title, svg, f"{title} in units of the trivial error: {text}.", legend, shown)


def _points(bins: Any) -> np.ndarray:
    """The groups of rows that have both numbers: (predicted, observed)."""
    pairs = [(number(group.get("predicted_std")), number(group.get("observed_rmse"))) for group in records(bins)]
    return np.array([pair for pair in pairs if None not in pair], dtype=np.float64).reshape(-1, 2)


def _draw_bins(points: np.ndarray, name: str, labels: tuple[str, str]) -> tuple[str, str]:
    low, high = float(points.min()), float(points.max())
    log = low > 0 and high > 12 * low
    ends = (low / 1.5, high * 1.5) if log else (0.0, 1.15 * high or 1.0)
    with drawing((3.9, 3.1)) as (figure, axes):
        value_axis(axes, "x", points, log=log)
        value_axis(axes, "y", points, log=log)
        axes.set_xlim(*ends)
        axes.set_ylim(*ends)
        axes.plot(ends, ends, color=COLORS["behaviour"], linestyle=(0, (4, 3)), linewidth=1.3)
        axes.plot(*points.T, color=COLORS["true"], linewidth=1.2, alpha=0.5)
        axes.plot(*points.T, color=COLORS["true"], linestyle="none", marker="o", markersize=5)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        return to_svg(figure, name), reading(axes, labels[0], [(labels[1], "true", points[:, 0], points[:, 1])])


def growth_panel(lengths: np.ndarray, growth: Record, name: str, unit: str = "RMSE") -> Panel | None:
    """Error of rollouts along logged actions against their length, beside staying at the start."""
    kinds = (
        ("sampled", "one model with its noise", "belief", "-"),
        ("mean", "mean of all models", "true", "-"),
        ("trivial", "nothing moves", "behaviour", (0, (4, 3))),
    )
    curves = [(label, color, dash, numbers(growth.get(kind))) for kind, label, color, dash in kinds]
    curves = [curve for curve in curves if len(curve[3]) == len(lengths) and np.any(np.isfinite(curve[3]))]
    if not curves or not len(lengths):
        return None
    seen = np.concatenate([values for *_, values in curves])
    with drawing() as (figure, axes):
        for _, color, dash, values in curves:
            style = {"color": COLORS[color], "linestyle": dash, "linewidth": 1.8}
            axes.plot(lengths, values, marker="o", markersize=3.5, **style)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(list(lengths)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(short_number))
        axes.set_xlabel("rollout length (steps)")
        axes.set_ylabel(unit)
        value_axis(axes, "y", seen, log=True)
        if axes.get_yscale() == "linear":
            axes.set_ylim(bottom=0.0)
        svg = to_svg(figure, f"growth {name}")
        shown = reading(axes, "rollout length", [(label, color, lengths, y) for label, color, _, y in curves])
    at = f"at {lengths[0]:.0f} and {lengths[-1]:.0f} steps"
    show = lambda value: f"{value:.3g}" if np.isfinite(value) else "not known"  # noqa: E731
    text = "; ".join(f"{label} {show(values[0])} and {show(values[-1])}" for label, *_, values in curves)
    legend = [Key(label, color, "line" if dash == "-" else "dashed") for label, color, dash, _ in curves]
    return Panel(name, svg, f"Error of {name} {at}: {text}.", legend, shown)


def worst_calibrated(dimensions: Sequence[Record], count: int) -> list[Record]:
    """The outputs whose standardised squared error is farthest from 1, in their own order."""

    def distance(dimension: Record) -> float:
        square = number(dimension.get("standardised_squared_error"))
        return abs(float(np.log(max(square, 1e-12)))) if square is not None else -1.0

    worst = sorted(range(len(dimensions)), key=lambda i: -distance(dimensions[i]))[:count]
    return [dimensions[i] for i in sorted(worst)]
