"""Kill small runs again and again, go on each time, and compare with a run that was never killed.

    python tests/faults/kills.py --kills 100 --seed 0 --algorithms phyb phyb-search

Every round starts a run in an empty folder with an empty pool cache, kills it several times with SIGKILL (half of the
times at a random call that changes the disk: before it, in the middle of a write, after it; half at a random moment),
lets it end, and compares every file with the unbroken run's, bit for bit. Left out are what differs between any two
runs: seconds (timing.json, and wall_seconds in result.json), the report made from them, and TensorBoard's time stamps.
Exit code 1 unless every killed run ended the same.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

VICTIM = Path(__file__).with_name("victim.py")
LEFT_OUT = ("timing.json", "report.html", ".lock")


@dataclasses.dataclass
class Arena:
    """A folder to run victims in; compiled code is kept between them, which changes no number."""

    folder: Path
    algorithm: str = "phyb"

    def start(self, name: str, *arguments: str) -> int:
        """Run a victim to its end or death; gives the exit code."""
        environment = {
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        } | os.environ
        places = str(self.run(name)), str(self.folder / f"{name}-cache")
        command = [sys.executable, str(VICTIM), *places, "--algorithm", self.algorithm, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode not in (0, -signal.SIGKILL):
            raise RuntimeError(f"the victim ended with {done.returncode}:\n{done.stderr[-3000:]}")
        return done.returncode

    def run(self, name: str) -> Path:
        """The run folder of a victim."""
        return self.folder / name

    def contents(self, name: str) -> dict[str, bytes | str]:
        """All that must be the same in any two runs."""
        run, found = self.run(name), {}
        for path in sorted(run.rglob("*")):
            relative = path.relative_to(run).as_posix()
            if path.is_file() and relative not in LEFT_OUT and not relative.startswith("tensorboard/"):
                found[relative] = path.read_bytes()
        result = json.loads(found["result.json"])
        del result["wall_seconds"]
        manifest = json.loads(found["manifest.json"])
        del manifest["files"]["result.json"]
        return found | {"result.json": json.dumps(result), "manifest.json": json.dumps(manifest)}

    def round(self, name: str, rng: random.Random, kills: int, calls: int, seconds: float) -> list[str]:
        """Kill a fresh run up to `kills` times, let it end, and say where it died. The caller compares."""
        deaths: list[str] = []
        while len(deaths) < kills:
            left = 1.0 / (1 + len(deaths))  # a run that was killed before has less to do
            if rng.random() < 0.5:
                how = rng.choice(["before", "torn", "after"])
                arguments = ["--call", str(rng.randint(1, max(1, int(left * calls)))), "--how", how]
            else:
                arguments = ["--seconds", f"{rng.uniform(0.0, seconds):.3f}"]
            if self.start(name, *arguments) == 0:
                break  # it got to the end before its time
            deaths.append(self.run(name).with_suffix(".death").read_text().strip())
        if self.start(name) != 0:
            raise RuntimeError("a run died that nobody killed")
        return deaths

    def remove(self, name: str) -> None:
        """Delete a run and its pool cache."""
        shutil.rmtree(self.run(name))
        shutil.rmtree(self.folder / f"{name}-cache", ignore_errors=True)


def reference(arena: Arena) -> tuple[dict[str, bytes | str], int, float]:
    """What the unbroken run leaves behind, how often it changes the disk, and its seconds once all is compiled."""
    arena.start("first")
    started = time.monotonic()
    arena.start("whole")
    seconds = time.monotonic() - started
    whole = arena.contents("whole")
    if whole != arena.contents("first"):
        raise RuntimeError("two unbroken runs differ: nothing can be said about broken ones")
    return whole, int(arena.run("whole").with_suffix(".calls").read_text()), seconds


def kill(arena: Arena, kills: int, per_run: int, rng: random.Random, console: Console) -> tuple[list[str], int]:
    """Kill runs until there have been so many kills: where they died, and how many ended as the unbroken run did."""
    whole, calls, seconds = reference(arena)
    console.print(f"unbroken {arena.algorithm} run: {len(whole)} files, {calls} disk changes, {seconds:.1f} s")
    died: list[str] = []
    same = number = 0
    while len(died) < kills:
        name, number = f"run{number}", number + 1
        deaths = arena.round(name, rng, min(per_run, kills - len(died)), calls, seconds)
        died, found = died + deaths, arena.contents(name)
        if found == whole:
            same += len(deaths)
            arena.remove(name)
        else:
            differing = sorted(name for name in whole.keys() | found.keys() if whole.get(name) != found.get(name))
            console.print(f"{name} differs in {', '.join(differing)} after: {'; '.join(deaths)}", style="red")
        console.print(f"{arena.algorithm}: {len(died)} of {kills} kills, {same} bit-identical")
    return died, same


def main() -> None:
    """Kill runs of each algorithm and print the count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="in all; each algorithm has its share")
    parser.add_argument("--kills-per-run", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--algorithms", nargs="+", default=["phyb", "phyb-search"])
    given = parser.parse_args()
    console, rng = Console(), random.Random(given.seed)
    table, killed, same = Table("algorithm", "stage it died in", "kills"), 0, 0
    for number, algorithm in enumerate(given.algorithms):
        share = (given.kills + number) // len(given.algorithms)
        with tempfile.TemporaryDirectory() as folder:
            died, ended = kill(Arena(Path(folder), algorithm), share, given.kills_per_run, rng, console)
        killed, same = killed + len(died), same + ended
        for stage, count in collections.Counter(death.split(":")[0] for death in died).most_common():
            table.add_row(algorithm, stage, str(count))
    console.print(table)
    console.print(f"{killed} kills: {killed} resumed, {same} bit-identical to the unbroken run")
    raise SystemExit(0 if same == killed else 1)


if __name__ == "__main__":
    main()
