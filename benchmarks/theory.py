"""Bring the numbers and pictures of `docs/theory.md` up to date with one run of `phyb verify --out DIR`.

    python benchmarks/theory.py DIR docs/theory.md

Rewritten are the sentence on where the numbers come from, the rows of the table, and in the section of each claim
everything down to its picture; the words below the picture are written by hand and stay.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phyb.errors import DataError
from phyb.storage.files import atomic_path, read_json
from phyb.theory.command import found, number, row
from phyb.theory.verify import Bin, Finding

PICTURES = "img/theory"


def refreshed(text: str, findings: Sequence[Finding], about: dict[str, Any]) -> str:
    """The page with the numbers of a run.

    Raises:
        DataError: the page has no place for the numbers of a claim.
    """
    origin = f"All numbers below come from one run of `phyb verify` with seed {about['seed']}"
    text = _replaced(text, r"All numbers below come from[^:;.]*", f"{origin} and {about['trials']:,} cases per claim")
    text = _replaced(
        text, r"(?<=\n\|---\|---\|---\|---\|---\|---\|---\|\n).*?(?=\n\n)", "\n".join(map(_line, findings))
    )
    for finding in findings:
        block = rf"(?m)^## {finding.name}\n.*?\({PICTURES}/{finding.name}\.svg\)$"
        text = _replaced(text, block, _block(finding))
    return text


def refresh(run: Path, page: Path) -> None:
    """Rewrite `page` from the folder of a run, and put the pictures beside it."""
    content = read_json(run / "verify.json")
    findings = [_finding(each) for each in content["claims"]]
    text = refreshed(page.read_text(encoding="utf-8"), findings, content)
    pictures = page.parent / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    for finding in findings:
        shutil.copyfile(run / "figures" / f"{finding.name}.svg", pictures / f"{finding.name}.svg")
    shutil.copyfile(run / "violations.svg", pictures / "violations.svg")
    with atomic_path(page) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _finding(content: dict[str, Any]) -> Finding:
    worst = content["worst_margin"]
    bins = [Bin(**part) for part in content["bins"]]
    return Finding(**(content | {"bins": bins, "worst_margin": float("nan") if worst is None else worst}))


def _line(finding: Finding) -> str:
    name, *numbers, _ = row(finding)
    cells = [f"[`{name}`](#{name})", finding.condition.replace("|", r"\|"), *numbers, finding.verdict]
    return f"| {' | '.join(cells)} |"


def _block(finding: Finding) -> str:
    statement = " ".join(finding.statement.split("\n\n")[0].split())
    worst = {"holds": "Worst margin", "fails": "Largest error"}.get(
        finding.expected, "Worst margin under the corrected condition"
    )
    margin = number(abs(finding.worst_margin) if finding.expected == "fails" else finding.worst_margin)
    return (
        f"## {finding.name}\n\n**{finding.title}.** {statement}\n\n"
        f"Condition stated: {finding.condition}. Verdict: **{finding.verdict}**.\n\n"
        f"Found: {found(finding)} {worst}: {margin}.\n\n"
        f"![{finding.title}, along {finding.control}]({PICTURES}/{finding.name}.svg)"
    )


def _replaced(text: str, pattern: str, words: str) -> str:
    after, count = re.subn(pattern, lambda _: words, text, count=1, flags=re.DOTALL)
    if not count:
        raise DataError(f"The page has no place that looks like {pattern!r}; add it by hand once.")
    return after


if __name__ == "__main__":
    refresh(Path(sys.argv[1]), Path(sys.argv[2]))
