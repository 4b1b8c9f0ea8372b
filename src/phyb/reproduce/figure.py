"""The comparison as a picture: scores of our runs and of the paper, a line per algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from phyb.report.style import COLORS, drawing
from phyb.reproduce.table import Comparison, Row
from phyb.reproduce.tables import title
from phyb.storage.files import atomic_path

_APART = 0.16


def draw(found: Comparison, paths: Sequence[Path]) -> None:
    """Write the picture to files whose suffix gives the format.

    Dots are our runs, a bar their mean with one standard deviation to each side; a diamond is the paper's mean with its
    deviation; dashed lines are the exact optimum and the policy that made the log.
    """
    with drawing((7.2, 0.42 * len(found.rows) + 1.3)) as (figure, axes):
        lines = (COLORS["optimum"], COLORS["behaviour"])
        for each, color in zip(found.references, lines, strict=False):
            label = f"{each.title}, {each.score:.1f}"
            axes.axvline(each.score, color=color, linestyle=(0, (4, 3)), linewidth=1.3, label=label)
        for place, row in enumerate(found.rows):
            _draw_row(axes, row, -place)
        axes.set_yticks([-place for place in range(len(found.rows))], [row.title for row in found.rows])
        axes.set_ylim(-len(found.rows) + 0.4, 0.6)
        axes.grid(False, axis="y")
        axes.set_xlabel("normalised score" + (" (ROUGH NUMBERS)" if found.rough else ""))
        axes.set_title(title(found), loc="left", fontsize=10.5)
        handles, labels = axes.get_legend_handles_labels()
        once = dict(zip(labels, handles, strict=True))
        figure.legend(once.values(), once.keys(), loc="outside lower center", ncols=2, frameon=False, fontsize=8.5)
        for path in paths:
            with atomic_path(path) as temporary:
                metadata = {"Date": None} if path.suffix == ".svg" else None
                figure.savefig(temporary, format=path.suffix[1:], dpi=150, metadata=metadata)


def _draw_row(axes: Axes, row: Row, height: float) -> None:
    ours, theirs = COLORS["true"], COLORS["belief"]
    if row.mean is not None:
        style = {"fmt": "|", "markersize": 11, "color": ours, "capsize": 0, "linewidth": 2.2, "alpha": 0.6}
        axes.errorbar(row.mean, height + _APART, xerr=row.std or 0.0, label="ours, mean ± std over seeds", **style)
        places = [height + _APART] * len(row.scores)
        axes.plot(row.scores, places, "o", color=ours, markersize=3.4, alpha=0.9, label="ours, each run")
    if row.paper is not None:
        style = {"fmt": "D", "markersize": 4.4, "markerfacecolor": "white", "color": theirs, "linewidth": 1.3}
        axes.errorbar(row.paper.mean, height - _APART, xerr=row.paper.std, label="the paper, mean ± std", **style)
