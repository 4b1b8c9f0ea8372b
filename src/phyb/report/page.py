"""One self-contained HTML page per run."""

from pathlib import Path


def write_report(run_folder: Path) -> Path:
    """Write `report.html`."""
    raise NotImplementedError
