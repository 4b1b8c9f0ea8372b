"""The examples of docs/data.md under "Bring your own log" run as they stand."""

import re
from pathlib import Path

import pytest

from phyb import Log

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Bring your own log\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"### ([^\n]+)\n(?:(?!###).)*?```python\n(.*?)```", SECTION, re.DOTALL)


@pytest.mark.parametrize(("title", "code"), BLOCKS, ids=[title for title, _ in BLOCKS])
def test_the_example_makes_a_log(title, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code, f"docs/data.md, {title}", "exec"), names)
    assert isinstance(names["log"], Log)


def test_the_page_says_what_the_frame_loses(capsys):
    names = {}
    exec(dict(BLOCKS)["From a data frame"], names)
    log = names["log"]
    assert (len(log), log.provenance["dropped_row_numbers"]) == (5, [2])
    assert "patient" not in str(log.provenance["names"])
    assert "nothing counts after them" in capsys.readouterr().out
