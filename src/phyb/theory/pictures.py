"""One picture per claim, for the page and as a file of its own; the same findings give the same bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phyb.report.style import COLORS, Key, Panel, drawing, to_svg, value_axis
from phyb.storage.files import atomic_path
from phyb.theory.claims import CLAIMS
from phyb.theory.verify import Finding

THRESHOLDS = {"lambda / Delta": 1.0, "gamma (1 + Delta / (2 lambda))": 1.0, "gamma": 0.5}
"""Where the condition that a claim needs begins or ends, for controls that have such a place."""
LINES = ("belief", "true")


def picture(finding: Finding) -> Panel:
    """The picture of one claim, in the colours of the page."""
    with _drawn(finding) as (figure, title, alt, keys):
        return Panel(title, to_svg(figure, finding.name), alt, keys)


def write_picture(finding: Finding, path: Path) -> None:
    """The picture of one claim as an SVG file, with its legend inside."""
    with _drawn(finding) as (figure, title, _, keys):
        axes = figure.axes[0]
        axes.set_title(title, fontsize=10.0, loc="left")
        if keys:
            axes.legend([key.label for key in keys], frameon=False, fontsize=8.0)
        _save(figure, finding.name, path)


def overview(findings: Sequence[Finding], path: Path) -> None:
    """One picture of all claims that lambda / Delta decides: violations fall to none at 1."""
    shown = [f for f in findings if f.control == "lambda / Delta" and any(part.share > 0 for part in f.bins)]
    with drawing((6.4, 3.6)) as (figure, axes):
        for place, finding in enumerate(shown):
            style = ("-", "--", ":")[place % 3]
            ratio, share = [part.control for part in finding.bins], [100.0 * part.share for part in finding.bins]
            axes.plot(ratio, share, style, label=finding.name, linewidth=1.6, marker="o", markersize=3.0)
        axes.axvline(1.0, color=COLORS["muted"], linewidth=1.0)
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=0.1)
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("lambda / Delta")
        axes.set_ylabel("violations, % of cases")
        if shown:
            axes.legend(frameon=False, fontsize=8.0)
        _save(figure, "violations", path)


@contextmanager
def _drawn(finding: Finding) -> Iterator[tuple[Figure, str, str, list[Key]]]:
    """Figure, title, description and legend.

    Where some cases break the claim the picture is the share of them, where all do the size of the error, where none
    does the slack that is left; a claim may bring curves of its own.
    """
    curves = CLAIMS[finding.name].curves
    place, share, worst, median = (
        np.array([getattr(part, name) for part in finding.bins]) for name in ("control", "share", "worst", "median")
    )
    with drawing() as (figure, axes):
        if curves is not None:
            x_label, y_label, lines = curves()
            title = f"{y_label} against {x_label}".capitalize()
            _curves(axes, x_label, y_label, lines)
        elif share.max() > 0.0 and share.min() < 1.0:
            title, lines = f"Violations along {finding.control}", {"": (place, 100.0 * share)}
            _curves(axes, finding.control, "% of cases", lines, log_y=False)
            axes.set_ylim(0.0, max(1.0, 105.0 * float(share.max())))
            if finding.control in THRESHOLDS:
                axes.axvline(THRESHOLDS[finding.control], color=COLORS["muted"], linewidth=1.0, linestyle=(0, (4, 3)))
        else:
            sign, word = (-1.0, "error") if share.max() > 0 else (1.0, "slack")
            lines = {f"worst {word}": (place, sign * worst), f"median {word}": (place, sign * median)}
            title = f"{word.capitalize()} along {finding.control}"
            _curves(axes, finding.control, word, lines)
        keys = [Key(label, color) for label, color in zip(lines, LINES, strict=False) if label]
        ranges = "; ".join(f"{label or 'share'} from {min(y):.3g} to {max(y):.3g}" for label, (_, y) in lines.items())
        yield figure, title, f"{title}: {ranges}.", keys


def _curves(
    axes: Axes, x_label: str, y_label: str, lines: dict[str, tuple[np.ndarray, np.ndarray]], *, log_y: bool = True
) -> None:
    for (x, y), color in zip(lines.values(), LINES, strict=False):
        axes.plot(x, y, color=COLORS[color], linewidth=1.8, marker="o", markersize=3.5)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    places = np.concatenate([x for x, _ in lines.values()])
    value_axis(axes, "x", places, log=True)
    if np.all(places == np.round(places)) and np.ptp(places) < 10:
        axes.set_xticks(np.unique(places))
    value_axis(axes, "y", np.concatenate([y for _, y in lines.values()]), log=log_y)


def _save(figure: Figure, name: str, path: str | os.PathLike[str]) -> None:
    settings: dict[str, object] = {"svg.fonttype": "none", "svg.hashsalt": name}
    with atomic_path(Path(path)) as temporary, matplotlib.rc_context(settings):  # pyright: ignore[reportArgumentType]
        figure.savefig(temporary, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
