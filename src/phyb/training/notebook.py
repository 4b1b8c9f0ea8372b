"""How runs show themselves in a notebook. IPython is not needed: a notebook asks objects for their HTML."""

from __future__ import annotations

import html
import io
from pathlib import Path

from rich.console import Console
from rich.table import Table

from phyb.errors import DataError

_WIDTH = 100


def table_text(table: Table) -> str:
    """A table as plain text."""
    console = Console(file=io.StringIO(), width=_WIDTH, no_color=True, force_terminal=False, force_jupyter=False)
    console.print(table)
    text = console.file
    assert isinstance(text, io.StringIO)
    return text.getvalue().rstrip("\n")


def table_html(table: Table) -> str:
    """A table as HTML, in colours that a light and a dark page can show."""
    console = Console(file=io.StringIO(), record=True, width=_WIDTH, force_terminal=True, force_jupyter=False)
    console.print(table)
    return console.export_html(inline_styles=True, code_format='<pre style="line-height:1.2">{code}</pre>')


class Page:
    """A page of HTML in a file, which a notebook shows in a frame of its own."""

    def __init__(self, path: Path, height: int = 800) -> None:
        self.path, self.height = path, height
        if not path.is_file():
            raise DataError(f"{path}: there is no report. Write it with: phyb report {path.parent}")

    def __repr__(self) -> str:
        return f"Page({str(self.path)!r})"

    def _repr_html_(self) -> str:
        content = html.escape(self.path.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{content}" width="100%" height="{self.height}" style="border:0"></iframe>'
