"""The built wheel in empty environments: does it install, how long does `import phyb` take, what does it load?

    python benchmarks/install.py [--python 3.11 3.12 3.13] [--runs 5]

Needs uv, which makes the environments with the interpreters it finds. Interpreters that are missing are fetched only
with --fetch. Prints one row per interpreter; exit code 1 if one that was found misses the bar.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
BAR_SECONDS = 1.0
EXTRAS = ("tensorboardX", "mujoco", "imageio_ffmpeg", "onnx", "onnxruntime", "pandas", "pyarrow")
"""Modules of optional packages, none of which may be needed."""
CHECK = f"""
import importlib.util, sys, phyb
heavy = [name for name in ("jax", "numpy", "gymnasium") if name in sys.modules]
extras = [name for name in {EXTRAS!r} if importlib.util.find_spec(name)]
for name in phyb.__all__:
    getattr(phyb, name)
print(f"{{heavy or 'nothing heavy'}}; extras present: {{extras or 'none'}}")
"""


def run(*command, **options):
    """Output of a command; its errors are shown if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise RuntimeError(
            (done.stderr or done.stdout).strip().splitlines()[-1] if done.stderr or done.stdout else "failed"
        )
    return done.stdout.strip()


def seconds_of(python, code, runs):
    """Wall time of a whole process, the median over runs; the first one writes byte code and is left out."""
    took = []
    for _ in range(runs + 1):
        started = time.perf_counter()
        run(python, "-c", code, cwd=python.parent, env=clean())
        took.append(time.perf_counter() - started)
    return statistics.median(took[1:])


def clean():
    """The environment without what would make other packages importable."""
    return {name: word for name, word in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}


def check(version, wheel, folder, runs, fetch):
    """One row of the table, and whether it meets the bar; None if there is no such interpreter."""
    place = folder / version.strip("/").replace("/", "-")
    found = ["--python-preference", "managed" if fetch else "only-system"]
    try:
        run("uv", "venv", "--quiet", *found, "--python", version, place, env=clean())
    except RuntimeError:
        return f"| {version} | no interpreter found | | | |", None
    python = place / "bin" / "python"
    started = time.perf_counter()
    try:
        run("uv", "pip", "install", "--quiet", "--python", python, wheel, env=clean())
        took = time.perf_counter() - started
        loads = run(python, "-c", CHECK, cwd=folder, env=clean())
        seconds, bare = (seconds_of(python, code, runs) for code in ("import phyb", "pass"))
    except RuntimeError as error:
        return f"| {version} | failed: {error} | | | |", False
    exact = run(python, "-c", "import platform; print(platform.python_version())", env=clean())
    row = f"| {exact} | {took:.0f} s | {seconds:.3f} s | {bare:.3f} s | {loads} |"
    return row, seconds < BAR_SECONDS and loads == "nothing heavy; extras present: none"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", nargs="+", default=["3.11", "3.12", "3.13"], help="versions, or paths of interpreters"
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--fetch", action="store_true", help="let uv download interpreters")
    arguments = parser.parse_args()
    if shutil.which("uv") is None:
        raise SystemExit("uv is not installed; get it with: pip install uv")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run("uv", "build", "--quiet", "--wheel", "--out-dir", folder, ROOT, env=clean())
        (wheel,) = folder.glob("*.whl")
        print(f"{wheel.name}, {wheel.stat().st_size:,} bytes\n")
        print("| Python | install | `import phyb` | `pass` | loaded by the import |\n|---|---|---|---|---|")
        met = []
        for version in arguments.python:
            row, well = check(version, wheel, folder, arguments.runs, arguments.fetch)
            print(row, flush=True)
            met.append(well)
    if False in met or not any(met):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
