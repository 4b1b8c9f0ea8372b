"""What `phyb verify --out` writes: JSON, a page with one picture per claim, and the pictures as files."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from phyb.report.elements import duration, figure
from phyb.report.style import COLORS
from phyb.storage.files import atomic_path, write_json
from phyb.theory.pictures import overview, picture, write_picture
from phyb.theory.show import row, short_verdict
from phyb.theory.verify import Finding

_CSS = """
:root { color-scheme: light; --page: #f6f7f9; --paper: #ffffff; %s }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
main, header { max-width: 72rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 2rem; }
header p { color: var(--muted); max-width: 48rem; margin: .6rem 0 1.2rem; }
h1 { margin: 0; line-height: 1.2; } h2 { margin: 0 0 .6rem; font-size: 1.25rem; line-height: 1.3; }
h2 code { font-size: .85rem; font-weight: 400; color: var(--muted); margin-left: .5rem; }
p { margin: 0 0 .8rem; }
a { color: var(--true); text-decoration: none; } a:hover { text-decoration: underline; }
section { background: var(--paper); border: 1px solid var(--grid); border-radius: .7rem; padding: 1.2rem;
  margin-bottom: 1.2rem; scroll-margin-top: .6rem; }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%%, 22rem), 1fr)); gap: 0 2.5rem; }
figure { margin: 0; } figure svg { display: block; width: 100%%; height: auto; max-width: 30rem; }
figure svg text { font-family: inherit !important; }
figcaption { font-weight: 600; font-size: .95rem; }
.legend { list-style: none; display: flex; gap: .9rem; margin: .1rem 0 0; padding: 0; font-weight: 400;
  font-size: .85rem; color: var(--muted); }
.legend li { display: flex; align-items: center; gap: .4rem; }
.key { width: 1.3rem; border-top: .16rem solid var(--key); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--grid); }
th { font-weight: 400; white-space: nowrap; } thead th { color: var(--muted); vertical-align: bottom; }
.number { text-align: right; white-space: nowrap; }
.verdict { font-weight: 600; }
.holds { color: var(--optimum); } .only { color: var(--belief); } .fails, .inconclusive { color: #b3261e; }
.remark { color: var(--muted); font-size: .92rem; }
code { font: .88em/1.4 ui-monospace, Consolas, monospace; }
pre { overflow-x: auto; font: .82rem/1.45 ui-monospace, Consolas, monospace; background: var(--page); padding: .7rem;
  border-radius: .4rem; margin: 0; }
summary { cursor: pointer; color: var(--muted); font-size: .92rem; margin: .5rem 0; }
"""
_ABOUT = """Every claim is checked on random finite MDPs, where all quantities can be computed exactly. A margin is
the slack of the claimed inequality; below rounding it is a violation. Inside and outside refer to the condition the
paper states. Shares of violations depend on how MDPs are drawn: read them as “exists” and “not found”."""
_HEAD = (
    "claim",
    "condition stated",
    "trials",
    "violated inside",
    "violated outside",
    "worst margin",
    "verdict",
)


def write(out: str | os.PathLike[str], findings: Sequence[Finding], about: dict[str, Any]) -> list[Path]:
    """Write `verify.json`, `verify.html`, `violations.svg` and `figures/CLAIM.svg` into a folder."""
    folder = Path(out)
    write_json(folder / "verify.json", about | {"claims": [_plain(finding) for finding in findings]})
    with atomic_path(folder / "verify.html") as temporary:
        temporary.write_text(page(findings, about), encoding="utf-8")
    overview(findings, folder / "violations.svg")
    for finding in findings:
        write_picture(finding, folder / "figures" / f"{finding.name}.svg")
    return [folder / name for name in ("verify.json", "verify.html", "violations.svg", "figures")]


def page(findings: Sequence[Finding], about: dict[str, Any]) -> str:
    """The whole page as text; no scripts, nothing loaded from elsewhere."""
    css = _CSS % " ".join(f"--{name}: {value};" for name, value in COLORS.items())
    words = f"{about['trials']:,} trials per claim, seed {about['seed']}, {duration(about['seconds'])}."
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>PhyB: claims checked</title>\n<style>{css}</style>\n</head>\n<body>\n"
        f"<header><h1>The paper's claims on finite MDPs</h1><p>{_ABOUT} {escape(words)}</p></header>\n"
        f"<main>{_table(findings)}{''.join(_section(finding) for finding in findings)}</main>\n</body>\n</html>\n"
    )


def found(finding: Finding) -> str:
    """What the cases showed, in sentences."""
    words = f"{finding.violations_inside:,} violations in {finding.inside:,} cases inside the stated condition"
    outside = finding.trials - finding.inside - finding.inconclusive
    if outside:
        words += f", {finding.violations_outside:,} in {outside:,} outside it"
    if finding.corrected:
        words += f"; {finding.corrected_violations:,} in {finding.corrected_trials:,} where {finding.corrected}"
    if finding.inconclusive:
        words += f"; inconclusive, because no fixed point was found to 1e-12: {finding.inconclusive:,}"
    return words + "."


def readable(example: dict[str, Any]) -> str:
    """A counterexample with one name per line; its margin to three digits."""
    shown = example | {"margin": float(f"{example['margin']:.3g}")}
    return "\n".join(f"{name}: {json.dumps(value)}" for name, value in shown.items())


def _table(findings: Sequence[Finding]) -> str:
    head = "".join(
        f'<th scope="col"{" class=number" if 2 <= place < 6 else ""}>{name}</th>' for place, name in enumerate(_HEAD)
    )
    body = ""
    for finding in findings:
        name, *numbers, _ = row(finding)
        cells = "".join(f'<td class="number">{escape(cell)}</td>' for cell in numbers)
        body += (
            f'<tr><th scope="row"><a href="#{name}">{name}</a></th><td>{escape(finding.condition)}</td>{cells}'
            f"<td>{_verdict(finding)}</td></tr>"
        )
    return (
        '<section><div class="scroll" role="region" aria-label="All claims" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _section(finding: Finding) -> str:
    statement, *remarks = finding.statement.split("\n\n")
    example = ""
    if finding.counterexample is not None:
        text = escape(readable(finding.counterexample))
        example = f"<details><summary>Smallest counterexample found</summary><pre>{text}</pre></details>"
    words = (
        f"<p>{_code(statement)}</p>"
        + f"<p>Condition stated: {escape(finding.condition)}. {_verdict(finding, first='Verdict: ')}.</p>"
        + f"<p>{escape(found(finding))}</p>"
        + "".join(f'<p class="remark">{_code(remark)}</p>' for remark in remarks)
    )
    return (
        f'<section id="{finding.name}"><h2>{escape(finding.title)} <code>{finding.name}</code></h2>'
        f'<div class="beside"><div>{words}</div>{figure(picture(finding))}</div>{example}</section>'
    )


def _verdict(finding: Finding, first: str = "") -> str:
    kind = {"holds only if": "only"}.get(short_verdict(finding), short_verdict(finding))
    but = "" if finding.agrees else f", expected: {finding.expected}"
    return f'{first}<span class="verdict {kind}">{escape(finding.verdict + but)}</span>'


def _code(text: str) -> str:
    """Escaped text with `formulas` set as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _plain(finding: Finding) -> dict[str, Any]:
    content = dataclasses.asdict(finding)
    if not math.isfinite(finding.worst_margin):
        content["worst_margin"] = None
    return content
