"""Feed damaged and forged files to every reader: each must be read, or refused with an error of ours, soon and small.

    python tests/faults/fuzz.py --inputs 20000 --seed 0

Input number i of a reader depends only on the seed, the reader and i. What goes wrong is kept in the folder `--keep`.
"""

import argparse
import contextlib
import dataclasses
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

from fuzz_readers import Files, Reader, readers
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from phyb.errors import PhybError

SECONDS = 2.0
"""No input may take more computing time, that of child processes included; 20 s by the clock count as a hang."""
MEBIBYTES = 512
"""No input may make the reading process grow more; children that read HDF5 have limits of their own."""
_HANG = 20.0


class HangError(BaseException):
    """A reader did not come back; not an Exception, so that no reader can swallow it."""


@dataclasses.dataclass
class Tally:
    """What the inputs of one reader led to."""

    accepted: int = 0
    refused: int = 0
    other: int = 0
    slowest: float = 0.0
    memory: float = 0.0

    @property
    def inputs(self) -> int:
        return self.accepted + self.refused + self.other

    def add(self, outcome: "Outcome") -> None:
        setattr(self, outcome.kind, getattr(self, outcome.kind) + 1)
        self.slowest = max(self.slowest, outcome.seconds)
        self.memory = max(self.memory, outcome.memory)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One input: accepted, refused with our error, or other; its time in seconds, its memory in MiB."""

    kind: str
    seconds: float
    memory: float
    detail: str = ""

    @property
    def fault(self) -> str:
        """What is wrong, or nothing."""
        if self.kind == "other":
            return self.detail
        if self.seconds > SECONDS:
            return f"took {self.seconds:.1f} s"
        return f"took {self.memory:.0f} MiB" if self.memory > MEBIBYTES else ""


def make_input(reader: Reader, seed: int, number: int) -> Files:
    """The files of one input."""
    return reader.input(random.Random(f"{seed}/{reader.name}/{number}"))


def run_input(reader: Reader, files: Files, folder: Path) -> Outcome:
    """Let the reader loose on the files, in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    before = _reset_peak()
    start = _computing_time()
    kind, detail = "accepted", ""
    try:
        with _hang_guard():
            reader.read(folder)
    except PhybError as error:
        kind, detail = "refused", str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a panic of a Rust library is not an Exception
        kind, detail = "other", traceback.format_exc()
    return Outcome(kind, _computing_time() - start, (_peak() - before) / 2**20, detail)


def fuzz(reader: Reader, seed: int, count: int, folder: Path, keep: Path) -> Iterator[Outcome]:
    """Run the inputs of one reader; faulty ones are kept. A slow one is tried again."""
    for number in range(count):
        files = make_input(reader, seed, number)
        outcome = run_input(reader, files, folder)
        if outcome.kind != "other" and outcome.fault:
            again = run_input(reader, files, folder)
            outcome = min(outcome, again, key=lambda one: (one.kind != "other", one.seconds))
        if outcome.fault:
            place = keep / f"{reader.name.replace(' ', '-')}-{seed}-{number}"
            shutil.copytree(folder, place, dirs_exist_ok=True)
            (place / "FAULT.txt").write_text(outcome.fault, errors="replace")
        yield outcome


@contextlib.contextmanager
def _hang_guard() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise HangError(f"no answer after {_HANG} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _HANG)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _computing_time() -> float:
    """Processor seconds of this process and its children so far: other work on the machine does not count."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _reset_peak() -> int:
    """Begin to measure peak memory anew where the system can; returns what is in use now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def table(tallies: dict[str, Tally]) -> Table:
    """The result to print."""
    result = Table("reader")
    for name in ("inputs", "accepted", "refused", "other", "slowest", "memory"):
        result.add_column(name, justify="right")
    total = Tally()
    for name, tally in tallies.items():
        _row(result, name, tally)
        total.accepted += tally.accepted
        total.refused += tally.refused
        total.other += tally.other
        total.slowest, total.memory = max(total.slowest, tally.slowest), max(total.memory, tally.memory)
    result.add_section()
    _row(result, "total", total)
    return result


def _row(result: Table, name: str, tally: Tally) -> None:
    counts = (f"{count:,}" for count in (tally.inputs, tally.accepted, tally.refused, tally.other))
    result.add_row(name, *counts, f"{tally.slowest:.2f} s", f"{tally.memory:.0f} MiB")


def main() -> int:
    """Run from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000, help="inputs over all readers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one reader, by name")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-faults"), help="where faulty inputs are kept")
    options = parser.parse_args()
    warnings.simplefilter("error")
    console = Console()
    tallies: dict[str, Tally] = {}
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as scratch, Progress(console=console) as progress:
        chosen = [one for one in readers(Path(scratch)) if options.only in (None, one.name)]
        share = options.inputs / max(1, sum(one.weight for one in chosen))
        counts = {one.name: round(share * one.weight) for one in chosen}
        task = progress.add_task("fuzzing", total=sum(counts.values()))
        for reader in chosen:
            tally = tallies.setdefault(reader.name, Tally())
            for outcome in fuzz(reader, options.seed, counts[reader.name], Path(scratch) / "input", options.keep):
                tally.add(outcome)
                faults += [f"{reader.name}: {outcome.fault.splitlines()[-1]}"] if outcome.fault else []
                progress.update(task, advance=1, description=f"{reader.name}, {len(faults)} faults")
    console.print(table(tallies))
    console.print(f"{sum(one.inputs for one in tallies.values()):,} inputs, {len(faults)} faults")
    for line in sorted(set(faults))[:20]:
        console.print(f"  {faults.count(line)} x {line}", markup=False)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
