"""Commands for policies where they are used: export, serve, monitor."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from phyb.errors import UsageError
from phyb.fields import Positive

VERDICT_CODES = {"fine": 0, "alarm": 7, "unclear": 8}
"""Exit codes of phyb monitor."""


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
    tolerance: Positive = 1e-5
    """Largest difference of the file's actions from the policy's, in half the action range. Raise it only for policies
    whose large weights make the rounding of float32 show."""
    data: str | None = None
    """File of the log, or minari:ID, if it is no longer where the run found it. It says where to compare."""

    def run(self, console: Console) -> None:
        """Export, and say what was checked."""
        from phyb.deploy.export import CHECKED_ROWS, export
        from phyb.training.run import open_run

        if self.out.exists():
            raise UsageError(f"{self.out}: already exists. Choose another name with --out, or delete it first.")
        run = open_run(self.run_folder, data=self.data, console=console)
        found = export(run, self.out, self.to, tolerance=self.tolerance)
        console.print(
            f"{found.path}: {found.path.stat().st_size:,} bytes. On {CHECKED_ROWS:,} observations its actions differ "
            f"from those of the policy by at most {found.largest_difference:.1e} of half their range.",
            highlight=False,
            soft_wrap=True,
        )


@dataclasses.dataclass(frozen=True)
class Serve:
    """Serve the policy of a finished run over HTTP, to try it out.

    POST /act with {"observations": [[...], ...]} gives actions, whether the rows lie outside the data, and with models
    how much they disagree beside what is usual on the log. GET / is a page to try it on, GET /health says that it runs.
    Ctrl-C or SIGTERM stops.

    Try:  phyb serve runs/hopper --port 8000
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run folder."""
    port: int = 8000
    """Port to listen at; 0 takes a free one."""
    host: str = "127.0.0.1"
    """Address to listen at. The default is reached from this machine only; there are no users and no encryption."""
    data: str | None = None
    """File of the log, or minari:ID, if it is no longer where the run found it."""
    cache: Path | None = None
    """Folder of trained pools; by default $PHYB_CACHE, else phyb in the user's cache folder."""

    def run(self, console: Console) -> None:
        """Serve until somebody asks to stop."""
        from phyb.deploy.server import serve
        from phyb.training.run import open_run

        run = open_run(self.run_folder, data=self.data, cache=self.cache, console=console)

        def show(message: str) -> None:
            console.print(message, highlight=False, markup=False, soft_wrap=True)

        serve(run, host=self.host, port=self.port, on_message=show)


@dataclasses.dataclass(frozen=True)
class Monitor:
    """Are newly logged rows still where the models of a run know the world?

    NEW_LOG is compared with the hold-out episodes of the run's own log: rows outside the range of the data,
    disagreement of the models, one-step errors, and what was observed, done and earned. If the new log was earned by
    the run's policy, which its actions tell, its returns are compared with the return under the belief instead of its
    behaviour with that of the log.

    Exit codes: 0 fine, 7 alarm, 8 too few episodes to tell.

    Try:  phyb monitor runs/hopper yesterday.hdf5 --json
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run folder."""
    new_log: Annotated[Positional[str], arg(metavar="NEW_LOG")]
    """File of the new log, .hdf5 or .npz, or minari:ID."""
    json: bool = False
    """Print everything as JSON and nothing else."""
    data: str | None = None
    """File of the run's own log, or minari:ID, if it is no longer where the run found it."""
    cache: Path | None = None
    """Folder of trained pools; by default $PHYB_CACHE, else phyb in the user's cache folder."""

    def run(self, console: Console) -> None:
        """Compare, print the verdict, and end with its code."""
        from phyb.deploy.monitor import monitor, titles
        from phyb.storage.files import json_bytes
        from phyb.training.run import open_run

        quiet = Console(stderr=True, quiet=self.json)
        found = monitor(open_run(self.run_folder, data=self.data, cache=self.cache, console=quiet), self.new_log)
        if self.json:
            sys.stdout.write(json_bytes(found).decode())
        else:
            table = Table("check", "most certain difference", "hold-out", "new", "effect", "p", "")
            for check in found["checks"]:
                numbers = (f"{check[name]:.3g}" for name in ("holdout", "new", "effect", "p"))
                table.add_row(titles()[check["name"]], check["worst"], *numbers, "alarm" if check["alarm"] else "")
            if found["return"] is not None:
                sums = (f"{found['return'][name]:.4g}" for name in ("belief", "mean"))
                p, alarm = found["return"]["p"], "alarm" if found["return"]["alarm"] else ""
                table.add_row("return", "earned against belief", *sums, "", f"{p:.3g}", alarm)
            console.print(table)
            for sentence in found["words"]:
                console.print(sentence, highlight=False, markup=False, soft_wrap=True)
        if VERDICT_CODES[found["verdict"]]:
            raise SystemExit(VERDICT_CODES[found["verdict"]])
