"""The work behind `phyb verify`: check claims, show two lines for each, and write JSON and a page with pictures."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from phyb.errors import PhybError
from phyb.report.elements import MISSING, duration, figure
from phyb.report.html import document
from phyb.storage.files import atomic_path, write_json
from phyb.theory.claims import CLAIMS
from phyb.theory.pictures import overview, picture, write_picture
from phyb.theory.verify import Finding, verify
from phyb.training.progress import Stages
from phyb.training.records import number as finite

HEAD = ("claim", "trials", "violated\ninside", "violated\noutside", "worst\nmargin", "verdict")
COLOURS = {"holds": "green", "holds only if": "yellow", "fails": "red", "inconclusive": "red"}
_CSS = """
h2 code { font-size: .85rem; font-weight: 400; color: var(--muted); margin-left: .5rem; }
table { font-size: .88rem; }
th, td { padding: .3rem .6rem; text-align: left; vertical-align: top; white-space: normal; }
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
_HEAD = ("claim", "condition stated", "trials", "violated inside", "violated outside", "worst margin", "verdict")


class ViolatedClaimError(PhybError):
    """A claim is violated inside the condition under which it should hold."""

    exit_code = 1


def run(
    names: list[str] | None, *, trials: int, seed: int, out: str | os.PathLike[str] | None, console: Console
) -> list[Finding]:
    """Check claims with a progress bar, print the table, and write JSON and a page if `out` is given.

    Raises:
        ViolatedClaimError: a claim is violated where it should hold.
    """
    started = time.monotonic()
    chosen = names or list(CLAIMS)
    whole = trials * len(chosen)
    findings: list[Finding] = []

    def report(done: int, name: str) -> None:
        advance(min(trials * len(findings) + done, whole), name)

    # Before the bar appears: an unknown claim is refused here.
    checks = verify(chosen, trials=trials, seed=seed, report=report)
    with Stages(console).stage("verify", "Checking claims", whole) as advance:
        for finding in checks:
            findings.append(finding)
    console.print(findings_table(findings))
    if out is not None:
        about = {"trials": trials, "seed": seed, "seconds": time.monotonic() - started}
        for path in write(out, findings, about):
            console.print(f"Written: {path.resolve()}", highlight=False, soft_wrap=True)
    wrong = [finding.name for finding in findings if not finding.agrees]
    if wrong:
        raise ViolatedClaimError(f"violated where it should hold: {', '.join(wrong)}. See the table.")
    return findings


def row(finding: Finding) -> list[str]:
    """The numbers of one claim: name, trials, violations inside and outside the stated condition, margin, verdict."""
    outside = finding.trials - finding.inside - finding.inconclusive
    return [
        finding.name,
        f"{finding.trials:,}",
        f"{finding.violations_inside:,}" + (f" of {finding.inside:,}" if outside else ""),
        f"{finding.violations_outside:,} of {outside:,}" if outside else MISSING,
        number(finding.worst_margin),
        short_verdict(finding),
    ]


def number(value: float) -> str:
    """Two significant digits, one where the number is tiny, or a dash where there is none."""
    if not math.isfinite(value):
        return MISSING
    return (f"{value:.0e}" if 0.0 < abs(value) < 1e-4 else f"{value:.2g}").replace("-", "\u2212")


def short_verdict(finding: Finding) -> str:
    """The verdict without the condition under which the claim holds."""
    return "holds only if" if finding.verdict.startswith("holds only if") else finding.verdict


def conditions(finding: Finding) -> str:
    """What the paper demands, what the claim needs, and what stayed open, in one sentence."""
    parts = [f"stated: {finding.condition}"]
    if finding.corrected:
        found = f"{finding.corrected_violations:,} violations in {finding.corrected_trials:,}"
        parts.append(f"where {finding.corrected}: {found}")
    if finding.inconclusive:
        parts.append(f"{finding.inconclusive:,} inconclusive")
    if not finding.agrees:
        parts.append(f"EXPECTED: {finding.expected}")
    return "; ".join(parts)


def findings_table(findings: Sequence[Finding]) -> RenderableType:
    """Numbers of each claim on one line, its conditions on the next; columns are as wide as they must be."""
    rows = [row(finding) for finding in findings]
    heads = [[head.split("\n")[0] if "\n" in head else "" for head in HEAD], [head.split("\n")[-1] for head in HEAD]]
    widths = [max(len(line[column]) for line in heads + rows) for column in range(len(HEAD))]

    def aligned(cells: Sequence[str]) -> str:
        places = zip(cells[1:-1], widths[1:-1], strict=True)
        return "  ".join([cells[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in places)]) + "  "

    lines: list[RenderableType] = [Text("The paper's claims on random finite MDPs", "bold"), Text()]
    lines += [Text(aligned(head) + head[-1], "dim", no_wrap=True) for head in heads]
    for finding, cells in zip(findings, rows, strict=True):
        colour = COLOURS[cells[-1]] if finding.agrees else "bold red"
        lines.append(Text(aligned(cells), no_wrap=True).append(cells[-1], colour))
        lines.append(Padding(Text(conditions(finding), "dim" if finding.agrees else "red"), (0, 0, 0, 2), expand=False))
    return Group(*lines)


def write(out: str | os.PathLike[str], findings: Sequence[Finding], about: dict[str, Any]) -> list[Path]:
    """Write `verify.json`, `verify.html`, `violations.svg` and `figures/CLAIM.svg` into a folder."""
    folder = Path(out)
    claims = [dataclasses.asdict(finding) | {"worst_margin": finite(finding.worst_margin)} for finding in findings]
    write_json(folder / "verify.json", about | {"claims": claims})
    with atomic_path(folder / "verify.html") as temporary:
        temporary.write_text(page(findings, about), encoding="utf-8")
    overview(findings, folder / "violations.svg")
    for finding in findings:
        write_picture(finding, folder / "figures" / f"{finding.name}.svg")
    return [folder / name for name in ("verify.json", "verify.html", "violations.svg", "figures")]


def page(findings: Sequence[Finding], about: dict[str, Any]) -> str:
    """The whole page as text; no scripts, nothing loaded from elsewhere."""
    words = f"{about['trials']:,} trials per claim, seed {about['seed']}, {duration(about['seconds'])}."
    header = f"<h1>The paper's claims on finite MDPs</h1><p>{_ABOUT} {escape(words)}</p>"
    body = _table(findings) + "".join(map(_section, findings))
    return document("PhyB: claims checked", header, body, _CSS)


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
