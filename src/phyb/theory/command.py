"""The work behind `phyb verify`."""

from __future__ import annotations

import os
import time

from rich.console import Console

from phyb.errors import PhybError
from phyb.theory.claims import CLAIMS
from phyb.theory.show import findings_table, write
from phyb.theory.verify import Finding, verify
from phyb.training.progress import Stages


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
