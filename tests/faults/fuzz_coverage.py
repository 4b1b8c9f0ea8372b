"""Let libFuzzer search for inputs that reach new code in one reader; stops at the first that is not refused properly.

    pip install atheris
    python tests/faults/fuzz_coverage.py settings -max_total_time=600

Options after the name of the reader are libFuzzer's. Only readers written in Python gain from it: log.npz, read_json,
settings, "run folder", manifest.
"""

import contextlib
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

try:
    atheris: Any = importlib.import_module("atheris")
except ImportError:
    sys.exit("The coverage-guided fuzzer needs a package of its own. Install it with: pip install atheris")

PYTHON_READERS = (
    "phyb.data",
    "phyb.storage",
    "phyb.algorithms.settings",
    "phyb.training.folder",
    "phyb.training.records",
)

with atheris.instrument_imports(include=[*PYTHON_READERS, "zipfile", "numpy.lib.format", "numpy.lib._format_impl"]):
    import zipfile  # noqa: F401

    import fuzz_readers

    from phyb.errors import PhybError


def main() -> None:
    """Run from the command line."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = Path(tempfile.mkdtemp())
    wanted = sys.argv.pop(1)
    reader = next(one for one in fuzz_readers.readers(folder) if one.name == wanted)
    target = list(reader.damage)[-1]
    for name, content in reader.seeds[0].items():
        (folder / name).write_bytes(content)
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, files in enumerate(reader.seeds):
        (corpus / str(number)).write_bytes(files[target])

    def one_input(content: bytes) -> None:
        (folder / target).write_bytes(content)
        with contextlib.suppress(PhybError):
            reader.read(folder)

    atheris.Setup([*sys.argv, str(corpus)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
