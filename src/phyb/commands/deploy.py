"""Commands for policies where they are used: export."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from phyb.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Export:
    """Write the policy of a finished run to one file that other programs can run without phyb.

    Standardisation, network, and scaling and clipping of actions are inside, and where the policy comes from. Before
    the file is written, it is compared with the policy on 10,000 observations, within the log's range and beyond it.

    Try:  phyb export runs/hopper --to onnx --out policy.onnx
    or:   phyb export runs/hopper --to numpy --out policy.py
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run folder."""
    out: Path
    """File to write, .onnx or .py; an existing file is never overwritten."""
    to: Literal["onnx", "numpy"] | None = None
    """onnx: a model for ONNX Runtime and others, needs phyb[onnx] to write; numpy: a Python module that needs NumPy
    alone. By default the suffix of the file decides."""
    data: str | None = None
    """File of the log, or minari:ID, if it is no longer where the run found it. It says where to compare."""

    def run(self, console: Console) -> None:
        """Export, and say what was checked."""
        from phyb.deploy.export import CHECKED_ROWS, export
        from phyb.training.run import open_run

        if self.out.exists():
            raise UsageError(f"{self.out}: already exists. Choose another name with --out, or delete it first.")
        found = export(open_run(self.run_folder, data=self.data, console=console), self.out, self.to)
        console.print(
            f"{found.path}: {found.path.stat().st_size:,} bytes. On {CHECKED_ROWS:,} observations its actions differ "
            f"from those of the policy by at most {found.largest_difference:.1e} of half their range.",
            highlight=False,
            soft_wrap=True,
        )
