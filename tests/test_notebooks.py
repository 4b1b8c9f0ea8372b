"""The notebooks run, and become pages of text, code and what the code shows."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
_spec = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
assert _spec is not None
assert _spec.loader is not None
notebooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(notebooks)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((DOCS / "notebooks").glob("*.py")), ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    page = notebooks.run(path, tmp_path)
    assert page.startswith("# ")
    assert page.count("```text") >= 2
    assert len(page) < 20_000
    assert sum(image.stat().st_size for image in tmp_path.iterdir()) < 200_000


def test_cells_become_text_code_and_output(tmp_path):
    source = '# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 2\nprint("hello")\nx * 3\n\n# %%\ny = x\n'
    (tmp_path / "note.py").write_text(source)
    page = notebooks.run(tmp_path / "note.py")
    code = '```python\nx = 2\nprint("hello")\nx * 3\n```\n\n```text\nhello\n6\n```'
    assert page == f"# Title\n\nText.\n\n{code}\n\n```python\ny = x\n```\n"


def test_a_picture_is_kept_and_an_error_is_not_hidden(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "note.py"
    path.write_text("# %%\nfrom matplotlib.figure import Figure\nFigure(figsize=(1, 1))\n")
    assert "![Output of the cell above](note-1.png)" in notebooks.run(path, tmp_path)
    assert (tmp_path / "note-1.png").stat().st_size > 100
    path.write_text("# %%\n1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        notebooks.run(path)
    assert Path.cwd() == tmp_path
