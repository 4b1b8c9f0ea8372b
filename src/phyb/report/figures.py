"""Pictures of a training run: learning curve, belief against truth, values, ranks, diagnostics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from phyb.report.reading import reading
from phyb.report.style import COLORS, Key, Panel, drawing, steps_axis, to_svg, value_axis
from phyb.training.records import Record, number, numbers, series, thinned


def curve_panel(
    lines: Sequence[Record],
    curves: Sequence[tuple[str, str, str]],
    *,
    title: str,
    unit: str,
    log: bool = False,
    levels: Sequence[tuple[str, float | None, str]] = (),
    steps_label: str = "updates",
    spread: dict[str, str] | None = None,
    spread_scale: float = 1.0,
) -> Panel | None:
    """Metrics over training, with horizontal lines to compare with; None where no metric was recorded.

    Args:
        lines: metrics of one stage.
        curves: (metric, label, colour) of each curve.
        title: what the picture shows.
        unit: label of the vertical axis.
        log: allow a logarithmic vertical axis.
        levels: (label, value, colour) of horizontal lines; a value of None is left out.
        steps_label: label of the horizontal axis.
        spread: metric with the standard error of a curve's metric, drawn as a band of two of them.
        spread_scale: factor from the unit of the standard errors to that of the curves.
    """
    found = [(label, color, metric, *thinned(*series(lines, metric))) for metric, label, color in curves]
    found = [each for each in found if len(each[3])]
    if not found:
        return None
    lines_at = [(label, value, color) for label, value, color in levels if value is not None]
    seen = np.concatenate([each[4] for each in found] + [np.array([value for _, value, _ in lines_at])])
    legend: list[Key] = []
    with drawing() as (figure, axes):
        for label, value, color in lines_at:
            axes.axhline(value, color=COLORS[color], linestyle=(0, (4, 3)), linewidth=1.4)
            legend.append(Key(f"{label} {value:,.4g}", color, "dashed"))
        for label, color, metric, steps, values in found:
            _draw_curve(axes, steps, values, color)
            _draw_band(axes, lines, metric, (spread or {}).get(metric), spread_scale, color)
            legend.append(Key(label, color))
        axes.set_ylabel(unit)
        value_axis(axes, "y", seen, log=log)
        steps_axis(axes, np.concatenate([each[3] for each in found]), steps_label)
        svg = to_svg(figure, title)
        shown = reading(axes, steps_label, [(label, color, x, y) for label, color, _, x, y in found])
    ends = "; ".join(f"{label} from {v[0]:.4g} to {v[-1]:.4g}" for label, _, _, _, v in found)
    marks = "".join(f"; {label} at {value:.4g}" for label, value, _ in lines_at)
    return Panel(title, svg, f"{title}, {unit} over {steps_label}: {ends}{marks}.", legend, shown)


def _draw_curve(axes: Axes, steps: np.ndarray, values: np.ndarray, color: str) -> None:
    marker = "o" if len(steps) <= 40 else None
    axes.plot(steps, values, color=COLORS[color], linewidth=1.8, marker=marker, markersize=3.2, clip_on=False)


def _draw_band(axes: Axes, lines: Sequence[Record], metric: str, error: str | None, scale: float, color: str) -> None:
    if error is None:
        return
    both = [
        (float(line["step"]), middle, 2.0 * scale * std_error)
        for line in lines
        if (middle := number(line.get(metric))) is not None and (std_error := number(line.get(error))) is not None
    ]
    if len(both) > 1:
        steps, middle, width = np.array(both).T
        axes.fill_between(steps, middle - width, middle + width, color=COLORS[color], alpha=0.18, linewidth=0)


def mean_by_rank(lines: Sequence[Record], key: str) -> np.ndarray:
    """A metric with one number per rank, averaged over the last quarter of training."""
    rows = [row for line in lines if len(row := numbers(line.get(key))) and np.all(np.isfinite(row))]
    rows = [row for row in rows if len(row) == len(rows[-1])]
    return np.mean(rows[-max(1, len(rows) // 4) :], axis=0) if rows else np.array([])


def rank_panel(lines: Sequence[Record]) -> Panel | None:
    """Weights of the belief by rank, and how often the rollout followed each rank."""
    groups = [
        ("weight in the belief", "belief", mean_by_rank(lines, "weight_by_rank")),
        ("share of imagined steps", "true", mean_by_rank(lines, "chosen_by_rank")),
    ]
    groups = [group for group in groups if len(group[2])]
    if not groups:
        return None
    title = "Weight and choice by rank"
    width = 0.8 / len(groups)
    with drawing() as (figure, axes):
        for place, (_, color, heights) in enumerate(groups):
            ranks = np.arange(1, len(heights) + 1)
            axes.bar(ranks + (place - 0.5 * (len(groups) - 1)) * width, heights, 0.92 * width, color=COLORS[color])
        count = max(len(heights) for _, _, heights in groups)
        axes.set_xticks(range(1, count + 1, max(1, -(-count // 12))))
        axes.set_xlabel("rank (1 = lowest value)")
        axes.set_ylabel("share")
        axes.grid(False, axis="x")
        value_axis(axes, "y", np.concatenate([heights for _, _, heights in groups]))
        svg = to_svg(figure, title)
        shown = reading(axes, "rank", [(label, color, np.arange(1.0, len(y) + 1), y) for label, color, y in groups])
    rows = "; ".join(f"{label}: " + ", ".join(f"{v:.2f}" for v in heights) for label, _, heights in groups)
    return Panel(title, svg, f"{title}. {rows}.", [Key(label, color, "bar") for label, color, _ in groups], shown)


_SMALL = (
    ("Losses", "squared error", True, ("critic_loss", "critics", "true"), ("value_loss", "value", "belief")),
    ("Divergence from the reference", "divergence", False, ("divergence", "mirror step", "true")),
    ("Step size of the mirror step", "β", True, ("step_size", "step size β", "true")),
    ("Pessimism: mean minus target", "return", False, ("pessimism", "pessimism", "belief")),
    ("Imagined states outside the data", "share", False, ("outside_data", "imagined states", "belief")),
    ("Imagined steps that end the episode", "share", False, ("imagined_end", "imagined steps", "true")),
    ("Age of imagined rollouts", "steps", False, ("rollout_age", "mean age", "true")),
    ("Spread of the actor", "std", True, ("actor_std", "before the tanh", "true")),
)
"""Title, unit and whether the axis may be logarithmic; metric, label and colour of each curve."""


def training_panels(lines: Sequence[Record], pool: Sequence[Record], target: float | None) -> list[Panel]:
    """Small pictures of everything else that was recorded; metrics without a picture of their own get a plain one."""
    nll = [("holdout_nll", "mean of the models", "true")]
    panels = [curve_panel(pool, nll, title="Hold-out loss of the pool", unit="−log p", steps_label="steps per model")]
    drawn = {"step", "q_logged", "q_imagined", "uncertainty"}
    for title, unit, log, *curves in _SMALL:
        levels = [("target", target, "optimum")] if unit == "divergence" else []
        panels.append(curve_panel(lines, curves, title=title, unit=unit, log=log, levels=levels))
        drawn |= {metric for metric, _, _ in curves}
    names = sorted({key for line in lines for key in line} - drawn)
    others = [(name, name.replace("_", " ")) for name in names if len(series(lines, name)[0])]
    panels += [curve_panel(lines, [(n, words, "true")], title=words.capitalize(), unit="") for n, words in others[:12]]
    return [panel for panel in panels if panel is not None]
