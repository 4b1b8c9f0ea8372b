"""Run a notebook and write it as a page: python docs/notebooks.py docs/notebooks/NAME.py docs/notebooks/NAME.md.

Notebooks are Python files in the percent format: "# %%" begins a cell of code, "# %% [markdown]" one of text. Jupytext,
Jupyter and VS Code open them as notebooks; git and linters see plain Python, and no outputs are kept in the repository.
"""

import ast
import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

from matplotlib.figure import Figure


def cells(source):
    """The cells of a notebook: (whether it is text, its content)."""
    parts = re.split(r"^# %%(.*)\n", source, flags=re.MULTILINE)
    for title, content in zip(parts[1::2], parts[2::2], strict=True):
        is_text = "[markdown]" in title
        yield is_text, re.sub(r"^# ?", "", content, flags=re.MULTILINE).strip() if is_text else content.strip()


def run_cell(code, names):
    """What a cell prints, and the value of its last expression."""
    tree = ast.parse(code)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(last, "cell", "eval"), names) if last is not None else None
    return printed.getvalue(), value


def run(path, images=None):
    """Run a notebook in a temporary folder and give it as Markdown; pictures go into the folder `images`."""
    page, names = [], {"__name__": "__main__"}
    here, source = Path.cwd(), Path(path).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for is_text, content in cells(source):
                if is_text:
                    page.append(content)
                    continue
                printed, value = run_cell(content, names)
                page.append(f"```python\n{content}\n```")
                if isinstance(value, Figure) and images is not None:
                    name = f"{Path(path).stem}-{len(page)}.png"
                    value.savefig(Path(images) / name, dpi=90)
                    page.append(f"![Output of the cell above]({name})")
                elif value is not None and not isinstance(value, Figure):
                    printed += repr(value)
                if printed.strip():
                    page.append(f"```text\n{printed.rstrip()}\n```")
        finally:
            os.chdir(here)
    return "\n\n".join(page) + "\n"


if __name__ == "__main__":
    notebook, target = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    target.write_text(run(notebook, target.parent), encoding="utf-8")
