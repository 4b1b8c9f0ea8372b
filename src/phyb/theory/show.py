"""What `phyb verify` prints: two lines per claim, which fit into 80 columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from phyb.report.elements import MISSING
from phyb.theory.verify import Finding

HEAD = ("claim", "trials", "violated\ninside", "violated\noutside", "worst\nmargin", "verdict")
COLOURS = {"holds": "green", "holds only if": "yellow", "fails": "red", "inconclusive": "red"}


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
