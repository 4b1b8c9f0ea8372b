"""One self-contained HTML page per run: no network, readable on a phone, curves that can be read off."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from phyb.algorithms.registry import ALGORITHMS
from phyb.report import belief_sections, pool_sections, sections
from phyb.report.elements import section
from phyb.report.headline import headline
from phyb.report.html import document
from phyb.storage.files import atomic_path
from phyb.training.records import RunData, number, read_run, text

_SECTIONS = (
    headline,
    sections.results,
    sections.learning_curve,
    sections.belief_against_truth,
    belief_sections.values_and_disagreement,
    belief_sections.ranks,
    belief_sections.policy_over_prices,
    pool_sections.calibration,
    pool_sections.disagreement,
    pool_sections.error_growth,
    pool_sections.training,
    pool_sections.settings,
)


def write_report(run_folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Read a run folder and write its `report.html`, or the file `out`; what the run did not record is left out.

    Raises:
        DataError: the folder holds nothing of a run, or one of its JSON files is damaged.
    """
    target = Path(run_folder) / "report.html" if out is None else Path(out)
    page = render(read_run(run_folder))
    with atomic_path(target) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return target


def render(run: RunData) -> str:
    """The whole page as text."""
    parts = [part for make in _SECTIONS if (part := make(run)) is not None]
    links = "".join(f'<a href="#{escape(part.id)}">{escape(part.short or part.title)}</a>' for part in parts)
    title = escape(run.name)
    header = f'<h1>{title}</h1><p>{escape(_subtitle(run))}</p><nav aria-label="Contents">{links}</nav>'
    return document(f"{title} · PhyB report", header, "\n" + "".join(section(part) for part in parts) + "\n")


def _subtitle(run: RunData) -> str:
    algorithm = text(run.config.get("algorithm")) or text(run.result.get("algorithm"))
    title = ALGORITHMS[algorithm].title if algorithm in ALGORITHMS else algorithm
    parts = [title, text(run.config.get("env_id"))]
    preset, seed, steps = (
        text(run.config.get("preset")),
        *map(number, (run.config.get("seed"), run.result.get("steps"))),
    )
    parts += [f"preset {preset}" if preset else "", f"seed {seed:.0f}" if seed is not None else ""]
    parts += [f"{steps:,.0f} updates" if steps is not None else ""]
    return " · ".join(filter(None, parts)) or "A run of PhyB"
