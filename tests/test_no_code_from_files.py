"""Nothing that is loaded may run code: the sources hold no call that could make it do so."""

import ast
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "phyb"
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
BUILTINS = {"eval", "exec", "compile"}
OWN_WORDS = {"deploy/numpy_module.py": ["calls exec", "calls compile"]}
"""Where code is run that the very call before has written: an exported module, to check it before anyone gets it."""
LOADERS = {"torch.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}


def findings(text: str) -> list[str]:
    """The calls and imports in a source text that could run code from a file."""
    return [f"line {getattr(node, 'lineno', 0)}: {what}" for node in ast.walk(ast.parse(text)) for what in _of(node)]


def _of(node: ast.AST):
    if isinstance(node, ast.Import | ast.ImportFrom):
        source = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        for name in [*source, *(alias.name for alias in node.names)]:
            if name.split(".")[0] in MODULES:
                yield f"imports {name}"
        if source and source[0] in {"torch", "yaml", "numpy"}:
            yield from (f"imports {source[0]}.{alias.name}" for alias in node.names if alias.name.endswith("load"))
        if source == ["builtins"]:
            yield from (f"imports {alias.name}" for alias in node.names if alias.name in BUILTINS)
    if not isinstance(node, ast.Call):
        return
    name = ast.unparse(node.func)
    if name.removeprefix("builtins.") in BUILTINS:
        yield f"calls {name}"
    if name in LOADERS:
        yield f"calls {name}"
    if name in {"__import__", "import_module", "importlib.import_module"} and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant) and str(first.value).split(".")[0] in MODULES:
            yield f"imports {first.value}"
    pickles = [keyword.value for keyword in node.keywords if keyword.arg == "allow_pickle"]
    if any(not (isinstance(value, ast.Constant) and value.value is False) for value in pickles):
        yield "allows pickles"
    reads_numpy = name in {"np.load", "numpy.load"} or name.endswith(("format.read_array", "memmap.load"))
    if reads_numpy and not pickles:
        yield f"calls {name} without allow_pickle=False"


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda path: path.relative_to(SOURCES).as_posix())
def test_no_source_can_run_code_from_a_file(path):
    found = [line.split(": ")[1] for line in findings(path.read_text(encoding="utf-8"))]
    assert found == OWN_WORDS.get(path.relative_to(SOURCES).as_posix(), [])


@pytest.mark.parametrize(
    "text",
    [
        *(f"import {module}" for module in sorted(MODULES)),
        "import numpy, pickle as p",
        "from pickle import loads",
        "from joblib.numpy_pickle import load",
        "__import__('pickle')",
        "import importlib\nimportlib.import_module('dill')",
        "eval('1')",
        "exec(text)",
        "compile(text, 'x', 'exec')",
        "import builtins\nbuiltins.eval(text)",
        "from builtins import exec",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=choice)",
        "np.lib.format.read_array(file, allow_pickle=1)",
        "np.lib.format.read_array(file)",
        "np.savez(path, allow_pickle=True)",
        "from numpy import load",
        "torch.load(path)",
        "from torch import load",
        "yaml.load(text)",
        "yaml.unsafe_load(text)",
        "def late():\n    import pickle",
    ],
)
def test_the_detector_finds(text):
    assert len(findings(text)) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "import re\nre.compile('x')",
        "np.load(path, allow_pickle=False)",
        "json.load(file)",
        "run.evaluate(policy)",
        "from phyb.data import load_log",
        "jax.jit(f).lower(x).compile()",
        "text = 'import pickle'",
    ],
)
def test_the_detector_leaves_alone(text):
    assert findings(text) == []
