"""One self-contained HTML page per run: no scripts, no network, readable on a phone."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from phyb.algorithms.registry import ALGORITHMS
from phyb.report import belief_sections, pool_sections, sections
from phyb.report.elements import section
from phyb.report.style import COLORS
from phyb.storage.files import atomic_path
from phyb.training.records import RunData, number, read_run, text

_DARK = {
    "ink": "#e8ecf2",
    "muted": "#a7b1c0",
    "grid": "#343d4a",
    "true": "#5fb2f2",
    "belief": "#f2945c",
    "optimum": "#45c99a",
    "behaviour": "#98a2b0",
    "extra": "#bd9bf0",
}

_CSS = """
:root { color-scheme: light dark; --page: #f6f7f9; --paper: #ffffff; %(light)s }
@media (prefers-color-scheme: dark) { :root { --page: #12161c; --paper: #1b212a; %(dark)s } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%%; scroll-behavior: smooth; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main, header { max-width: 72rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 2rem; }
h1 { font-size: clamp(1.5rem, 5vw, 2.1rem); line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .6rem; }
h3 { font-size: .95rem; margin: 0 0 .4rem; }
p { margin: 0 0 .8rem; max-width: 44rem; }
header p { color: var(--muted); margin: .4rem 0 1rem; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: .25rem .9rem; margin-bottom: 1.2rem; }
nav a { color: var(--true); text-decoration: none; padding: .2rem 0; }
nav a:hover { text-decoration: underline; }
main > section { background: var(--paper); border: 1px solid var(--grid); border-radius: .7rem;
  padding: 1.2rem; margin-bottom: 1.2rem; scroll-margin-top: .6rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%%, 11rem), 1fr)); gap: .8rem; }
.card { border: 1px solid var(--grid); border-radius: .6rem; padding: .7rem .9rem; }
.card p { margin: 0; }
.card .label, .card .remark { color: var(--muted); font-size: .875rem; }
.card .value { font-size: 1.9rem; line-height: 1.3; font-weight: 650; font-variant-numeric: tabular-nums; }
.beside { display: grid; grid-template-columns: minmax(0, 1fr); gap: .4rem 2rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%%, 19rem), 1fr));
  gap: 1.4rem 1.6rem; margin: .4rem 0 1rem; }
@media (min-width: 52rem) {
  .beside { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); align-items: start; }
  .panels:has(> figure:nth-child(2):last-child) { grid-template-columns: 1fr 1fr; }
}
figure { margin: 0; min-width: 0; display: flex; flex-direction: column; justify-content: space-between; }
figure svg { display: block; width: 100%%; height: auto; max-width: 34rem; }
figure svg text { font-family: inherit !important; }
figcaption { font-weight: 600; font-size: .95rem; margin-bottom: .3rem; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem .9rem; margin: .15rem 0 0; padding: 0;
  font-weight: 400; font-size: .85rem; color: var(--muted); }
.legend li { display: flex; align-items: center; gap: .4rem; }
.key { width: 1.3rem; border-top: .16rem solid var(--key); flex: none; }
.key.dashed { border-top-style: dashed; }
.key.dotted { border-top-style: dotted; }
.key.bar { width: .7rem; height: .7rem; border: 0; background: var(--key); border-radius: .1rem; }
.tables { display: flex; flex-wrap: wrap; gap: 0 4rem; align-items: flex-start; }
.scroll { max-width: 100%%; overflow-x: auto; margin: .4rem 0 1rem; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid); }
th:first-child { text-align: left; padding-left: 0; position: sticky; left: 0; background: var(--paper); }
thead th { color: var(--muted); font-weight: 500; }
tbody th { font-weight: 400; }
.strong th, .strong td { font-weight: 650; }
.groups { columns: 17rem; column-gap: 2rem; }
.group { break-inside: avoid-column; margin-bottom: 1.2rem; font-size: .875rem; }
dl { margin: 0; }
.note { font-size: .85rem; color: var(--muted); max-width: none; }
dl div { display: flex; justify-content: space-between; gap: 1rem; border-bottom: 1px solid var(--grid);
  padding: .15rem 0; break-inside: avoid; }
dt { color: var(--muted); flex: 0 0 auto; max-width: 65%%; overflow-wrap: anywhere; }
dd { margin: 0; text-align: right; overflow-wrap: anywhere; min-width: 0; }
@media (max-width: 34rem) {
  main, header { padding-left: .6rem; padding-right: .6rem; }
  main > section { padding: 1rem .9rem; }
  .cards { grid-template-columns: 1fr 1fr; }
  .card { padding: .5rem .7rem; }
  .card:first-child:nth-last-child(odd) { grid-column: 1 / -1; }
  .card .value { font-size: 1.6rem; }
  table { font-size: .85rem; }
  th, td { padding: .3rem .45rem; }
}
@media print { main > section { break-inside: avoid; } nav { display: none; } }
"""

_SECTIONS = (
    sections.headline,
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
_OF_THE_POOL = (pool_sections.calibration, pool_sections.error_growth)
"""Sections that are left out where no models are learned."""


def write_report(run_folder: str | os.PathLike[str]) -> Path:
    """Read a run folder and write its `report.html`; what the run did not record is left out.

    Raises:
        DataError: the folder holds nothing of a run, or one of its JSON files is damaged.
    """
    target = Path(run_folder) / "report.html"
    page = render(read_run(run_folder))
    with atomic_path(target) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return target


def render(run: RunData) -> str:
    """The whole page as text."""
    makers = [make for make in _SECTIONS if run.has_pool or make not in _OF_THE_POOL]
    parts = [part for make in makers if (part := make(run)) is not None]
    links = "".join(f'<a href="#{escape(part.id)}">{escape(part.short or part.title)}</a>' for part in parts)
    css = _CSS % {"light": _variables(COLORS), "dark": _variables(_DARK)}
    title, subtitle = escape(run.name), escape(_subtitle(run))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title} · PhyB report</title>\n<style>{css}</style>\n</head>\n<body>\n"
        f'<header><h1>{title}</h1><p>{subtitle}</p><nav aria-label="Contents">{links}</nav></header>\n'
        f"<main>\n{''.join(section(part) for part in parts)}\n</main>\n</body>\n</html>\n"
    )


def _variables(colors: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colors.items())


def _subtitle(run: RunData) -> str:
    algorithm = text(run.config.get("algorithm")) or text(run.result.get("algorithm"))
    title = ALGORITHMS[algorithm].title if algorithm in ALGORITHMS else algorithm
    parts = [title, text(run.config.get("env_id"))]
    preset, seed, steps = (
        text(run.config.get("preset")),
        number(run.config.get("seed")),
        number(run.result.get("steps")),
    )
    parts += [f"preset {preset}" if preset else "", f"seed {seed:.0f}" if seed is not None else ""]
    parts += [f"{steps:,.0f} updates" if steps is not None else ""]
    return " · ".join(filter(None, parts)) or "A run of PhyB"
