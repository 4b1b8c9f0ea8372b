"""Two runs on one page: who earns more, their curves over each other, and the settings in which they differ."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from phyb.algorithms.registry import title_of
from phyb.report.elements import MISSING, Section, duration, plain, section, show, table
from phyb.report.figures import curve_panel
from phyb.report.html import document
from phyb.report.style import Panel
from phyb.storage.files import atomic_path
from phyb.training.records import RunData, mapping, number, read_run, text

Pair = tuple[RunData, RunData]
_COLORS = ("true", "belief")
_TITLES = {
    "normalized_score": ("True score", "score"),
    "true_return": ("True return", "return"),
    "belief_return": ("Return under the belief", "return"),
    "start_value": ("Learned value of start states", "discounted return"),
    "q_logged": ("Q on logged rows", "return"),
    "q_imagined": ("Q on imagined rows", "return"),
    "holdout_nll": ("Hold-out loss of the pool", "−log p"),
}
_ERRORS = {"true_return": "true_std_error", "belief_return": "belief_std_error"}
_NOT_DRAWN = ("step", "stage", *_ERRORS.values())


def write_comparison(
    first: str | os.PathLike[str], second: str | os.PathLike[str], out: str | os.PathLike[str]
) -> Path:
    """Lay two runs over each other on one page; a page that is already there is replaced.

    Raises:
        DataError: a folder holds nothing of a run, or one of its JSON files is damaged.
    """
    page = render((read_run(first), read_run(second)))
    with atomic_path(Path(out)) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(out)


def render(runs: Pair) -> str:
    """The whole page as text."""
    parts = [
        _headline(runs),
        _curves(runs, "evaluation"),
        _curves(runs, "policy"),
        _curves(runs, "pool"),
        settings(runs),
    ]
    found = [part for part in parts if part is not None]
    links = "".join(f'<a href="#{part.id}">{escape(part.short or part.title)}</a>' for part in found)
    lines = [f"{name}: {title_of(run.algorithm)} on {run.name}" for name, run in zip(_names(runs), runs, strict=True)]
    header = "<h1>Two runs</h1>" + "".join(f"<p>{escape(line)}</p>" for line in lines)
    header += f'<nav aria-label="Contents">{links}</nav>'
    return document(" and ".join(map(escape, _names(runs))), header, "".join(map(section, found)))


def _names(runs: Pair) -> tuple[str, str]:
    """The folders of the runs by their last parts, told apart by letters."""
    first, second = (run.folder.resolve().name for run in runs)
    return f"A {first}", f"B {second}"


def _headline(runs: Pair) -> Section:
    def row(label: str, key: str, error: str = "", digits: int = 2) -> list[str]:
        cells = [label]
        for run in runs:
            value, spread = number(run.result.get(key)), number(run.result.get(error))
            cells.append(show(value, digits) + (f" ± {show(spread, digits)}" if value is not None and spread else ""))
        return cells

    seconds = [sum(filter(None, map(number, mapping(run.result.get("wall_seconds")).values()))) or None for run in runs]
    rows = [
        row("score", "normalized_score"),
        row("mean return", "mean_return", "std_error"),
        row("CVaR 10 %", "cvar_10"),
        row("regret", "regret"),
        row("under the belief", "belief_return", "belief_std_error"),
        row("behaviour, in the log", "behaviour_return"),
        row("updates", "steps", digits=0),
        ["wall time", *map(duration, seconds)],
    ]
    known = [cells for cells in rows if any(cell != MISSING for cell in cells[1:])]
    kind, words = verdict(runs)
    html = f'<p class="verdict {kind}">{escape(words)}</p>'
    html += table(["", *_names(runs)], known, label="Results of both runs") if known else ""
    sentences = "± is one standard error over the episodes of one run; it says nothing about other seeds."
    return Section("headline", "In short", [], html=html + f'<p class="note">{sentences}</p>')


def verdict(runs: Pair) -> tuple[str, str]:
    """Which run earns more, if the difference exceeds two standard errors."""
    if runs[0].name != runs[1].name:
        return "caution", f"These runs are about different tasks, {runs[0].name} and {runs[1].name}."
    for key, error, where in (
        ("mean_return", "std_error", "in the simulator"),
        ("belief_return", "belief_std_error", "under the belief of each, which nothing has tested"),
    ):
        values = [number(run.result.get(key)) for run in runs]
        if values[0] is None or values[1] is None:
            continue
        gap = values[1] - values[0]
        margin = math.hypot(*(number(run.result.get(error)) or 0.0 for run in runs))
        if abs(gap) <= 2.0 * margin:
            return "open", f"No clear difference {where}: {show(gap, 2)} ± {show(margin, 2)}."
        better = "B" if gap > 0 else "A"
        return "good", f"{better} earns {show(abs(gap), 2)} ± {show(margin, 2)} more {where}."
    return "open", "The runs have no return in common that could be compared."


def _curves(runs: Pair, stage: str) -> Section | None:
    """Every metric of a stage that is a number in either run."""
    lines = [run.stage(stage) for run in runs]
    names = dict.fromkeys(key for each in lines for line in each for key in line if key not in _NOT_DRAWN)
    order = sorted(names, key=lambda name: (list(_TITLES).index(name) if name in _TITLES else len(_TITLES), name))
    panels = [panel for name in order if (panel := _overlay(runs, stage, name)) is not None]
    if not panels:
        return None
    titles = {"evaluation": ("Returns", "Returns during training"), "policy": ("Training", "Policy training")}
    short, title = titles.get(stage, ("Pool", "Pool training"))
    return Section(stage, title, [], panels, short=short)


def _overlay(runs: Pair, stage: str, metric: str) -> Panel | None:
    """One metric of both runs in one picture."""
    title, unit = _TITLES.get(metric, (metric.replace("_", " ").capitalize(), ""))
    error = _ERRORS.get(metric, "")
    lines = [
        {"step": line["step"], f"{metric} {place}": line.get(metric), f"{error} {place}": line.get(error)}
        for place, run in enumerate(runs)
        for line in run.stage(stage)
    ]
    return curve_panel(
        lines,
        [(f"{metric} {place}", name, _COLORS[place]) for place, name in enumerate(_names(runs))],
        title=title,
        unit=unit,
        log=metric.endswith("loss"),
        spread={f"{metric} {place}": f"{error} {place}" for place in range(2)} if error else None,
        steps_label="steps per model" if stage == "pool" else "updates",
    )


def settings(runs: Pair) -> Section:
    """A table of the settings whose values differ."""
    first, second = (_flat(run.config) for run in runs)
    differ = [name for name in dict.fromkeys([*first, *second]) if first.get(name) != second.get(name)]
    rows = [[name, *(plain(found[name]) if name in found else MISSING for found in (first, second))] for name in differ]
    if not rows:
        return Section("settings", "Settings", ["All settings, versions and the seed are the same."])
    html = table(["setting", *_names(runs)], rows, label="Settings that differ")
    return Section("settings", "Settings that differ", [], html=html, short="Settings")


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested settings by their way down."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = f"{above}{text(name)}"
        found |= _flat(value, f"{inner} · ") if isinstance(value, dict) and value else {inner: value}
    return found
