"""The comparison shown: Markdown, LaTeX, CSV, JSON, a table for the terminal, and a picture."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from rich.table import Table

from phyb.algorithms.registry import title_of
from phyb.evaluation.statistics import Estimate
from phyb.report.style import COLORS, drawing
from phyb.reproduce.table import Comparison, Row
from phyb.storage.files import atomic_path

NOTHING = "–"
ROUGH = "ROUGH NUMBERS from --quick: short training on a small log. They test the procedure, not the algorithms."
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip
CSV_COLUMNS: tuple[str, ...] = (
    "algorithm", "title", "rough", "seeds", "score_mean", "score_std", "paper_mean", "paper_std", "iqm", "iqm_low",
    "iqm_high", "cvar_10", "phyb_better", "phyb_better_low", "phyb_better_high", "minutes", "pool_minutes",
)  # fmt: skip


def title(found: Comparison) -> str:
    """One line over the table."""
    words = f"{found.table.title}: {found.seeds} seed{'s' if found.seeds != 1 else ''}"
    return f"ROUGH (--quick): {words}" if found.rough else words


def headers(found: Comparison) -> list[str]:
    """Names of the columns."""
    names = ["algorithm", "seeds", "score, rough" if found.rough else "score, ours", "score, paper", "IQM [95 %]"]
    return [*names, "CVaR 10 %", f"{_ours(found)} better [95 %]", "minutes"]


def cells(found: Comparison) -> list[list[str]]:
    """The cells of each row; the policies known without training come last."""
    rows = [_row_cells(row) for row in found.rows]
    for each in found.references:
        rows.append([each.title, NOTHING, f"{each.score:.1f}", *[NOTHING] * 2, f"{each.cvar_10:.1f}", *[NOTHING] * 2])
    return rows


def notes(found: Comparison) -> list[str]:
    """How to read the table, in sentences."""
    lines = [ROUGH] if found.rough else []
    if found.missing:
        lines.append(f"Not all of the {found.seeds} seeds are finished: {', '.join(found.missing)}.")
    episodes = sorted({run.episodes for run in found.outcomes})
    evaluated = f", each evaluated on {' or '.join(f'{count:,}' for count in episodes)} episodes" if episodes else ""
    lines += [
        *([found.table.note] if found.table.note else []),
        f"Ours: mean ± standard deviation over seeds of the last policy{evaluated}; paper: as printed there.",
        "IQM: interquartile mean with a bootstrap interval over seeds. CVaR: mean return of the worst tenth of "
        f"episodes. {_ours(found)} better: probability that a run of it scores higher than one of the row, ties half.",
        f"Minutes: wall time per run, {found.jobs} at a time sharing the cores. The pool of models is trained once per "
        "seed and counted in the row that trained it.",
    ]
    return lines


def markdown(found: Comparison) -> str:
    """The table with its notes, for a page on the web."""
    lines = [f"**{title(found)}**", ""]
    lines += ["| " + " | ".join(headers(found)) + " |", "|---|" + "---:|" * (len(headers(found)) - 1)]
    lines += ["| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in cells(found)]
    return "\n".join([*lines, "", *(f"{note}\n" for note in notes(found))]).rstrip() + "\n"


def latex(found: Comparison) -> str:
    """A table environment with booktabs rules."""
    names, rows, cut = headers(found), cells(found), len(found.rows)

    def line(texts: list[str]) -> str:
        return " & ".join(map(escape_latex, texts)) + r" \\"

    body = [*map(line, rows[:cut]), r"\midrule", *map(line, rows[cut:])]
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            r"\begin{table}",
            rf"\caption{{{escape_latex(title(found))}. {escape_latex(' '.join(notes(found)))}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(names) - 1)}}}",
            r"\toprule",
            line(names),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def comma_separated(found: Comparison) -> str:
    """One line per algorithm and reference in full precision; empty where there is no number."""
    lines = [_csv_row(row, found.rough) for row in found.rows]
    for each in found.references:
        lines.append({"title": each.title, "rough": "no", "score_mean": each.score, "cvar_10": each.cvar_10})
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue()


def data(found: Comparison, command: str) -> dict[str, Any]:
    """Everything, ready for JSON: every run with the command that made it, and the rows."""
    return {
        "table": found.table.name,
        "task": found.table.task,
        "rough": found.rough,
        "command": command,
        "seeds": found.seeds,
        "jobs": found.jobs,
        "notes": notes(found),
        "rows": [dataclasses.asdict(row) for row in found.rows],
        "references": [dataclasses.asdict(each) for each in found.references],
        "runs": [dataclasses.asdict(run) for run in found.outcomes],
    }


def terminal(found: Comparison) -> Table:
    """The table for a console."""
    table = Table(title=title(found), title_justify="left", caption_justify="left")
    for number, name in enumerate(headers(found)):
        table.add_column(name, justify="right" if number else "left", no_wrap=number == 0)
    for number, row in enumerate(cells(found)):
        table.add_row(*row, end_section=number == len(found.rows) - 1)
    if found.rough:
        table.caption = ROUGH
    return table


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


def _ours(found: Comparison) -> str:
    return title_of(found.table.ours)


def _row_cells(row: Row) -> list[str]:
    minutes = NOTHING if row.minutes is None else f"{row.minutes:.1f}"
    if row.pool_minutes is not None and row.pool_minutes >= 0.1:
        minutes += f" (pool {row.pool_minutes:.1f})"
    return [
        row.title,
        str(len(row.scores)),
        NOTHING if row.mean is None else f"{row.mean:.1f}" + ("" if row.std is None else f" ± {row.std:.1f}"),
        NOTHING if row.paper is None else str(row.paper),
        _estimated(row.iqm, 1),
        NOTHING if row.cvar_10 is None else f"{row.cvar_10:.1f}",
        _estimated(row.phyb_better, 2),
        minutes,
    ]


def _estimated(found: Estimate | None, digits: int) -> str:
    if found is None:
        return NOTHING
    value = f"{found.value:.{digits}f}"
    return value if found.low is None else f"{value} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _csv_row(row: Row, rough: bool) -> dict[str, Any]:
    line: dict[str, Any] = {"rough": "yes" if rough else "no", "seeds": len(row.scores)}
    line |= {"score_mean": row.mean, "score_std": row.std}
    for name, value in dataclasses.asdict(row).items():
        if isinstance(value, dict):
            line |= {name if part == "value" else f"{name}_{part}": number for part, number in value.items()}
        else:
            line[name] = value
    return line


def _draw_row(axes: Axes, row: Row, height: float) -> None:
    ours, theirs, apart = COLORS["true"], COLORS["belief"], 0.16
    if row.mean is not None:
        style = {"fmt": "|", "markersize": 11, "color": ours, "capsize": 0, "linewidth": 2.2, "alpha": 0.6}
        axes.errorbar(row.mean, height + apart, xerr=row.std or 0.0, label="ours, mean ± std over seeds", **style)
        places = [height + apart] * len(row.scores)
        axes.plot(row.scores, places, "o", color=ours, markersize=3.4, alpha=0.9, label="ours, each run")
    if row.paper is not None:
        style = {"fmt": "D", "markersize": 4.4, "markerfacecolor": "white", "color": theirs, "linewidth": 1.3}
        axes.errorbar(row.paper.mean, height - apart, xerr=row.paper.std, label="the paper, mean ± std", **style)
