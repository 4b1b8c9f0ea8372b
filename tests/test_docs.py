"""The pages keep up with the code: links lead somewhere, commands parse, examples run or call what exists."""

import ast
import importlib
import inspect
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

import phyb
from phyb import cli, registry
from phyb.algorithms.registry import ALGORITHMS
from phyb.data.formats import FORMATS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

QUICK = {"algorithms", "oracle", "--help", "data describe", "data make"}
"""Commands that are run as they stand on the page."""
LONG = {
    "train": ("trains for minutes", "tests/test_cli.py"),
    "collect": ("trains for minutes", "tests/collection/test_collection.py"),
    "reproduce": ("trains for hours", "tests/reproduce/test_table2_command.py"),
    "verify": ("takes minutes", "tests/theory/test_claims.py"),
    "evaluate": ("needs a finished run", "tests/test_cli.py"),
    "select": ("needs finished runs", "tests/evaluation/test_select.py"),
    "report": ("needs a finished run", "tests/report/test_comparison.py"),
    "doctor": ("needs a finished run", "tests/training/test_doctor.py"),
    "export": ("needs a finished run", "tests/deploy/test_export.py"),
    "serve": ("needs a finished run and stays", "tests/deploy/test_server.py"),
    "monitor": ("needs a finished run", "tests/deploy/test_monitor.py"),
    "data import": ("needs a file of one's own", "tests/commands/test_importing.py"),
}
"""Why the others are not, and where the command is run on something small. They are parsed with their options."""

RUNNING = {
    ("docs/data.md", "import pandas as pd"),
    ("docs/data.md", "import gymnasium as gym"),
    ("docs/data.md", "rng = np.random.default_rng(0)\nlog = phyb.record("),
    ("docs/liquidation.md", "import gymnasium"),
    ("docs/statistics.md", "from phyb.evaluation import statistics"),
    ("docs/theory.md", "from phyb.theory import"),
}
"""Examples that are run, by page and a part of their text. Others train or need files: what they call is looked up."""


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name, language):
    """Fenced blocks; for shell also those that are indented."""
    pattern = r"^```(\w*)\n(.*?)^```$"
    found = re.findall(pattern, text_of(name), re.DOTALL | re.MULTILINE)
    if language == "python":
        return [block for word, block in found if word == "python"]
    rest = re.sub(pattern, "", text_of(name), flags=re.DOTALL | re.MULTILINE)
    indented = [line[4:] for line in rest.splitlines() if line.startswith("    ")]
    return [block for word, block in found if word in ("", "sh")] + ["\n".join(indented)]


def commands(name):
    """Lines of shell that call `phyb` or `make`, in blocks and between backticks, as lists of words."""
    shell = "\n".join(blocks(name, "shell")).replace("\\\n", " ").splitlines()
    inline = re.findall(r"`([^`\n]+)`", text_of(name))
    for line in [*shell, *inline]:
        code: str = re.split(r"\s+(?:#|[|]+|&&)\s", line.strip())[0]
        words = [] if "..." in code or "'" in code else shlex.split(code)
        while words and re.fullmatch(r"[A-Z_]+=\S+", words[0]):
            words.pop(0)
        if len(words) > 1 and words[0] in ("phyb", "make"):
            yield words


def slug(heading):
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", re.sub(r"[`*]", "", heading)).strip().lower())


def anchors(path):
    prose = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)}


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    for link in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text_of(name)):
        target, _, anchor = "".join(link).partition("#")
        if "://" in target:
            continue
        path = (ROOT / name).parent / target if target else ROOT / name
        source = path.with_suffix(".py") if path.parent.name == "notebooks" else path
        assert source.exists(), f"{name}: {target} does not exist"
        assert not anchor or anchor in anchors(path), f"{name}: {target} has no heading #{anchor}"


def test_every_page_is_in_the_navigation():
    config = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    entries = []
    for found in (value for part in config["nav"] for value in part.values()):
        entries += found if isinstance(found, list) else [found]
    notebooks = [f"notebooks/{path.stem}.md" for path in (ROOT / "docs" / "notebooks").glob("*.py")]
    assert sorted(entries) == sorted([path.name for path in PAGES[2:]] + notebooks)
    assert config["theme"]["font"] is False, "fonts of others are requests to others"


def test_the_page_on_algorithms_names_all_of_them():
    listed = re.findall(r"^\| `([\w-]+)` \|", text_of("docs/algorithms.md"), re.MULTILINE)
    built_in = [name for name, entry in ALGORITHMS.items() if entry.home.startswith("phyb.")]
    assert sorted(listed) == sorted(built_in)


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """The modules that pages ask to save, importable and named; what was named before is put back."""
    found = {
        module: block
        for name in NAMES
        for module, block in re.findall(r"`(my_\w+)\.py`[^`]*\n\n```python\n(.*?)```", text_of(name), re.DOTALL)
    }
    for module, block in found.items():
        (tmp_path / f"{module}.py").write_text(block, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_PLUGINS", set())
    monkeypatch.setattr(FORMATS, "_homes", dict(FORMATS._homes))
    monkeypatch.chdir(tmp_path)
    yield found
    for module in found:
        sys.modules.pop(module, None)


def test_every_command_runs_or_is_marked_as_long_and_parses(modules, monkeypatch, capsys):
    targets = set(re.findall(r"^([a-z0-9-]+):", text_of("Makefile"), re.MULTILINE))
    lines = {tuple(words): name for name in NAMES for words in commands(name)}
    assert len(lines) > 40
    cli.main(["data", "make", "liquidation", "--transitions", "300", "--out", "log.hdf5"])
    for (program, *words), name in lines.items():
        if program == "make":
            assert words[0] in targets, f"{name}: there is no target {words[0]}"
            continue
        command = " ".join(words[: 2 if words[0] == "data" else 1])
        where = f"{name}: phyb {' '.join(words)}"
        if command in QUICK:
            files = [word for word in words if word.endswith((".hdf5", ".csv", ".parquet", ".tsv"))]
            if command == "data describe" and files != ["log.hdf5"]:
                continue  # the same command on other files
            if command == "data make":
                Path(words[words.index("--out") + 1]).unlink(missing_ok=True)
            try:
                code = cli.main(words)
            except SystemExit as stop:
                code = stop.code
            assert not code, where
            continue
        assert command in LONG, f"{where} is neither run nor marked as long"
        with monkeypatch.context() as patch:
            patch.setattr(cli, "log_origin", lambda data: (None, None))
            if len(words) > 1:
                assert exit_code(words) in (0, None), f"{where}\n{capsys.readouterr().err}"


@pytest.mark.parametrize("command", LONG)
def test_long_commands_have_a_test_of_their_own(command):
    assert command.split()[-1] in text_of(LONG[command][1])


def exit_code(words):
    """How the real command line ends when it has read the words: with an error, with a help text, or not at all."""
    try:
        cli.parse(placeholders(words))
    except SystemExit as stop:
        return stop.code
    return None


def placeholders(words: list[str]) -> list[str]:
    """Capital words stand for something: a number, an algorithm, an environment."""
    stands = {
        "S": "0",
        "A": "bc",
        "NAME": "bc",
        "ENV": "Hopper-v5",
        "TABLE": "table2",
        "weighted": "my_algorithm:Weighted",
    }
    return [stands.get(word, word) for word in words]


@pytest.mark.parametrize("name", NAMES)
def test_examples_run_or_call_what_exists(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    parts = [part for page, part in RUNNING if page == name]
    ran = set()
    for block in blocks(name, "python"):
        tree = ast.parse(block)
        check_calls(tree)
        found = {part for part in parts if part in block}
        if found:
            exec(compile(tree, name, "exec"), {"theirs": {"hopper": [0.6, 0.7], "walker2d": [0.5, 0.6]}})
            ran |= found
    assert ran == set(parts)


def check_calls(tree):
    """Every name taken from phyb exists, and its calls give only arguments that it takes."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "phyb":
                    importlib.import_module(alias.name)
                    known["phyb"] = phyb
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "phyb":
            home = importlib.import_module(node.module)
            known |= {alias.asname or alias.name: getattr(home, alias.name) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
            getattr(known[node.value.id], node.attr)
        if isinstance(node, ast.Call):
            called = resolve(node.func, known)
            if called is not None and not inspect.ismodule(called):
                check_arguments(called, node)


def resolve(node, known):
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        home = resolve(node.value, known)
        return getattr(home, node.attr) if home is not None else None
    return None


def check_arguments(called, node):
    parameters = inspect.signature(called).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    unknown = {keyword.arg for keyword in node.keywords if keyword.arg} - set(parameters)
    assert not unknown, f"{called.__name__} takes no {', '.join(sorted(unknown))}"
