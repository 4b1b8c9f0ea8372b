"""What `phyb verify` shows: a table for the terminal, JSON, and one page with pictures."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from phyb.report.elements import MISSING, Section, section, show_short, table
from phyb.report.style import COLORS, Panel, drawing, to_svg, value_axis
from phyb.storage.files import atomic_path, write_json
from phyb.theory.verify import Finding

_CSS = """
:root { color-scheme: light; --page: #f6f7f9; --paper: #ffffff; %s }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
main, header { max-width: 72rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 2rem; }
section { background: var(--paper); border: 1px solid var(--grid); border-radius: .7rem; padding: 1.2rem;
  margin-bottom: 1.2rem; }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%%, 20rem), 1fr)); gap: 0 2rem; }
figure { margin: 0; } figure svg { width: 100%%; max-width: 30rem; }
figcaption { font-weight: 600; font-size: .95rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--grid); }
th:first-child, td:last-child { text-align: left; }
pre { overflow-x: auto; font-size: .85rem; background: var(--page); padding: .7rem; border-radius: .4rem; }
"""
_HEAD = ("claim", "condition stated", "trials", "violated inside", "violated outside", "worst margin", "verdict")


def findings_table(findings: Sequence[Finding]) -> Table:
    """One row per claim, for the terminal."""
    found = Table(title="The paper's claims on random finite worlds", title_justify="left")
    for name in _HEAD:
        number = name in _HEAD[2:6]
        found.add_column(name, justify="right" if number else "left", no_wrap=name == "claim")
    for finding in findings:
        colour = "red" if not finding.agrees else "green" if finding.verdict == "holds" else "yellow"
        *cells, verdict = row(finding)
        found.add_row(*cells, f"[{colour}]{verdict}[/]")
    wrong = [finding.name for finding in findings if not finding.agrees]
    found.caption = f"violated where we say it holds: {', '.join(wrong)}" if wrong else None
    return found


def row(finding: Finding) -> list[str]:
    """The cells of one claim."""
    outside = finding.trials - finding.inside
    return [
        finding.name,
        finding.condition,
        f"{finding.trials:,}",
        f"{finding.violations_inside:,} of {finding.inside:,}",
        f"{finding.violations_outside:,} of {outside:,}" if outside else MISSING,
        show_short(finding.worst_margin if math.isfinite(finding.worst_margin) else None),
        finding.verdict if finding.agrees else f"{finding.verdict}, but we say: {finding.says}",
    ]


def picture(finding: Finding) -> Panel:
    """Share of violations along the quantity that decides."""
    title = f"Violations along {finding.control}"
    places, shares, _ = (np.array(column, float) for column in zip(*finding.shares, strict=True))
    with drawing() as (figure, axes):
        axes.plot(places, 100.0 * shares, color=COLORS["belief"], linewidth=1.8, marker="o", markersize=3.5)
        axes.set_xlabel(finding.control)
        axes.set_ylabel("% of cases")
        value_axis(axes, "x", places, log=True)
        value_axis(axes, "y", 100.0 * shares)
        axes.set_ylim(bottom=0.0, top=max(1.0, 105.0 * float(shares.max())))
        svg = to_svg(figure, finding.name)
    worst = int(np.argmax(shares))
    return Panel(title, svg, f"{title}: at most {shares[worst]:.1%}, at {places[worst]:.3g}.")


def overview(findings: Sequence[Finding], path: Path) -> None:
    """One picture, on its own, of all claims that lambda / Delta decides: violations fall to none at 1."""
    shown = [f for f in findings if f.control == "lambda / Delta" and any(share > 0 for _, share, _ in f.shares)]
    with drawing((6.4, 3.6)) as (figure, axes):
        for place, finding in enumerate(shown):
            ratio, share, _ = (np.array(column, float) for column in zip(*finding.shares, strict=True))
            style = ("-", "--", ":")[place % 3]
            axes.plot(ratio, 100.0 * share, style, label=finding.name, linewidth=1.6, marker="o", markersize=3.0)
        axes.axvline(1.0, color=COLORS["muted"], linewidth=1.0)
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=0.1)
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("lambda / Delta")
        axes.set_ylabel("violations, % of cases")
        if shown:
            axes.legend(frameon=False, fontsize=8.0)
        figure.savefig(path, format="svg", metadata={"Date": None})


def write(out: str | os.PathLike[str], findings: Sequence[Finding], about: dict[str, Any]) -> list[Path]:
    """Write `verify.json`, `verify.html` and `violations.svg` into a folder."""
    folder = Path(out)
    content = about | {"claims": [_plain(finding) for finding in findings]}
    write_json(folder / "verify.json", content)
    with atomic_path(folder / "verify.html") as temporary:
        temporary.write_text(page(findings, about), encoding="utf-8")
    with atomic_path(folder / "violations.svg") as temporary:
        overview(findings, temporary)
    return [folder / name for name in ("verify.json", "verify.html", "violations.svg")]


def page(findings: Sequence[Finding], about: dict[str, Any]) -> str:
    """The whole page as text; no scripts, nothing loaded from elsewhere."""
    overview = Section("table", "All claims", [], html=table(_HEAD, [row(f) for f in findings], label="All claims"))
    parts = [overview, *(_section(finding) for finding in findings)]
    css = _CSS % " ".join(f"--{name}: {value};" for name, value in COLORS.items())
    words = escape(f"{about['trials']:,} trials per claim, seed {about['seed']}, {about['seconds']:.0f} s")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>PhyB: claims checked</title>\n<style>{css}</style>\n</head>\n<body>\n"
        f"<header><h1>The paper's claims on finite worlds</h1><p>{words}</p></header>\n"
        f"<main>{''.join(section(part) for part in parts)}</main>\n</body>\n</html>\n"
    )


def _section(finding: Finding) -> Section:
    count = f"{finding.violations_inside:,} violations in {finding.inside:,} cases inside the stated condition"
    sentences = [finding.statement, f"Condition stated: {finding.condition}. Verdict: {finding.verdict}.", f"{count}."]
    if finding.mended:
        sentences.append(
            f"Inside “{finding.mended}”: {finding.mended_violations:,} violations in {finding.mended_trials:,} cases."
        )
    html = ""
    if finding.counterexample is not None:
        html = f"<p>Smallest counterexample found:</p><pre>{escape(readable(finding.counterexample))}</pre>"
    return Section(finding.name, finding.title, sentences, [picture(finding)], html)


def readable(example: dict[str, Any]) -> str:
    """A counterexample with one name per line."""
    return "\n".join(f"{name}: {json.dumps(value)}" for name, value in example.items())


def _plain(finding: Finding) -> dict[str, Any]:
    content = dataclasses.asdict(finding)
    if not math.isfinite(finding.worst_margin):
        content["worst_margin"] = None
    return content
