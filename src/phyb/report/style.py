"""How pictures look: one size, one set of colours, and SVG that takes its colours from the page."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

# The page defines a CSS variable of each name, for light and for dark; these are the light values.
COLORS = {
    "ink": "#1c2430",
    "muted": "#5c6675",
    "grid": "#dde2ea",
    "true": "#0f74cc",
    "belief": "#c2560c",
    "optimum": "#0d5a40",
    "behaviour": "#8a8d94",
    "extra": "#5b2470",
}
LineStyle = Literal["line", "dashed", "dotted", "bar"]
SIZE = (3.9, 2.55)
"""Inches; a panel fills the width of a phone, where 10 points are then easy to read."""


@dataclasses.dataclass(frozen=True)
class Key:
    """One entry of a legend."""

    label: str
    color: str
    style: LineStyle = "line"


@dataclasses.dataclass(frozen=True)
class Panel:
    """One picture with its title, its legend and a description for those who cannot see it."""

    title: str
    svg: str
    alt: str
    legend: Sequence[Key] = ()
    curves: str = ""
    """What can be read off with the pointer, see phyb.report.reading."""


@contextlib.contextmanager
def drawing(size: tuple[float, float] = SIZE) -> Iterator[tuple[Figure, Axes]]:
    """A figure with one set of axes in the style of the report; nothing global is left behind."""
    settings: dict[Any, Any] = {
        "font.size": 10.0,
        "axes.edgecolor": COLORS["grid"],
        "axes.labelcolor": COLORS["muted"],
        "xtick.color": COLORS["muted"],
        "ytick.color": COLORS["muted"],
        "text.color": COLORS["ink"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.parse_math": False,
        "svg.fonttype": "none",
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.grid(True, color=COLORS["grid"], linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(which="both", length=0)
        yield figure, axes


def to_svg(figure: Figure, name: str) -> str:
    """The figure as an `<svg>` element to put into a page; `name` keeps ids of several figures apart."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'<svg[^>]*?(viewBox="[^"]*")[^>]*>', r"<svg \1>", svg, count=1)
    # Group names such as "axes_1" repeat in every figure; only shapes and clips are referred to.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    for color, value in COLORS.items():
        svg = svg.replace(value, f"var(--{color})")
    return svg.strip()


def short_number(value: float, _: object = None) -> str:
    """1500 as 1.5k, 20000 as 20k, 3e6 as 3M; small numbers as they are."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{suffix}"
    return f"{value:.4g}".replace("-", "\u2212")


def steps_axis(axes: Axes, steps: np.ndarray, label: str = "updates") -> None:
    """The horizontal axis of a training curve."""
    axes.set_xlabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(short_number))
    if len(steps) and steps.max() > steps.min():
        axes.set_xlim(steps.min(), steps.max())


def value_axis(axes: Axes, which: Literal["x", "y"], values: np.ndarray, *, log: bool = False) -> None:
    """Few, plain tick labels; a logarithmic axis only where the values span more than a factor of ten."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    seen = values[np.isfinite(values)]
    if log and len(seen) and seen.min() > 0 and seen.max() > 10 * seen.min():
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        axis.set_major_locator(FixedLocator(log_ticks(float(seen.min()), float(seen.max()))))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        size = float(np.abs(seen).max()) if len(seen) else 0.0
        if which == "y" and size and np.ptp(seen) < 0.01 * size:  # nearly constant: rounding is no curve
            axes.set_ylim(float(seen.min()) - 0.05 * size, float(seen.max()) + 0.05 * size)
    axis.set_major_formatter(FuncFormatter(short_number))


def log_ticks(low: float, high: float) -> list[float]:
    """Two to six round numbers that span the values."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for parts in ((1, 2, 5), (1, 3), (1,)):
        ticks = [part * 10.0**power for power in range(first, last + 1) for part in parts]
        ticks = [tick for tick in ticks if low / 1.3 <= tick <= high * 1.3]
        if len(ticks) <= 6:
            return ticks
    return ticks[:: -(-len(ticks) // 6)]
