"""What is damaged in a run folder, and what can still be used."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from phyb.dynamics.fit import POOL_FILES
from phyb.errors import DataError, LaterFormatError, PhybError
from phyb.policy.policy import load_policy
from phyb.storage.files import read_json
from phyb.storage.lock import NAME as LOCK
from phyb.storage.lock import owner
from phyb.storage.store import FORMAT_VERSION, LOST, MANIFEST, inside
from phyb.storage.trees import load_arrays
from phyb.training.folder import POLICY_FILES, RunFolder

State = Literal["fine", "readable", "damaged", "missing", "unlisted", "extra"]
_STYLES = {"fine": "green", "readable": "green", "damaged": "bold red", "missing": "bold red", "unlisted": "yellow"}
_OLD = (
    "Written by phyb 0.1, which kept no manifest. Its policy, report and result can be used; an unfinished run of that "
    "version can be gone on with by phyb 0.1 only."
)
_EXTRAS = ("report.html", "timing.json", "tensorboard/", "rows/")


@dataclasses.dataclass(frozen=True)
class FileFinding:
    """One file of a run folder and its state."""

    name: str
    state: State
    detail: str


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """All that `phyb doctor` says."""

    files: list[FileFinding]
    usable: list[str]
    """Sentences: what can still be done with the folder."""
    notes: list[str]
    """Sentences about the folder as a whole: in use, an old format, a lost manifest."""

    @property
    def healthy(self) -> bool:
        """Whether nothing is damaged or missing."""
        return not any(file.state in ("damaged", "missing") for file in self.files)


def examine(path: str | os.PathLike[str]) -> Diagnosis:
    """Compare every file of a run folder with the manifest; without one, see which files can be read."""
    folder, notes = RunFolder(path), []
    if not folder.config.is_file() and not folder.manifest.is_file():
        folder.read_config()
    holder = owner(folder.path)
    if holder is not None:
        notes.append(f"In use by {holder}; files may change while they are checked.")
    problem = _manifest_problem(folder)
    if problem is None:
        files = _compare(folder)
    else:
        notes.append(problem)
        state = "damaged" if folder.manifest.is_file() else "missing"
        files = [FileFinding(MANIFEST, state, "no checksums")]
        files += [_try_to_read(folder, name) for name in _files(folder)[0]]
    return Diagnosis(files, _usable(folder, files, problem is None), notes)


def render(diagnosis: Diagnosis, console: Console, name: str) -> None:
    """Print a diagnosis as a table and sentences."""
    table = Table(title=name, title_justify="left", show_edge=False)
    table.add_column("file", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("", overflow="fold")
    for file in diagnosis.files:
        style = _STYLES.get(file.state, "dim")
        table.add_row(file.name, f"[{style}]{file.state}[/]", file.detail, style="dim" if style == "dim" else None)
    console.print(table)
    for note in diagnosis.notes:
        console.print(note, style="yellow", highlight=False, markup=False, soft_wrap=True)
    for sentence in diagnosis.usable:
        console.print(f"- {sentence}", highlight=False, markup=False, soft_wrap=True)


def _compare(folder: RunFolder) -> list[FileFinding]:
    found = []
    for name, entry in sorted(folder.entries.items()):
        state, path = folder.state(name), folder.path / name
        newer = path.stat().st_size - entry.size if state != "missing" else 0
        detail = {
            "fine": f"{entry.size:,} bytes, checksum agrees" + (f"; {newer:,} newer bytes" if newer else ""),
            "damaged": f"{newer:+,} bytes to the {entry.size:,} written" if newer else "checksum differs",
            "missing": f"{entry.size:,} bytes were written",
        }[state]
        found.append(FileFinding(name, state, detail))
    names, extras = _files(folder)
    for name in names:
        if name not in folder.entries:
            found.append(FileFinding(name, "unlisted", "was being written when the run stopped, or put here by hand"))
    return found + [FileFinding(name, "extra", "not needed to go on; no checksum") for name in extras]


def _try_to_read(folder: RunFolder, name: str) -> FileFinding:
    try:
        path = inside(folder.path, name)
        if path.suffix == ".safetensors":
            load_arrays(path)
        elif path.suffix == ".json":
            read_json(path)
    except PhybError as error:
        return FileFinding(name, "damaged", str(error))
    return FileFinding(name, "readable", "no checksum to compare with")


def _files(folder: RunFolder) -> tuple[list[str], list[str]]:
    """The files that a manifest should list, and the rest, where a folder counts as one."""
    names, extras = [], set()
    for path in folder.path.rglob("*"):
        name = path.relative_to(folder.path).as_posix()
        if not path.is_file() or name in (MANIFEST, LOCK) or name.endswith(".tmp"):
            continue
        if name.startswith(_EXTRAS):
            extras.add("".join(name.partition("/")[:2]))
        else:
            names.append(name)
    return sorted(names), sorted(extras)


def _manifest_problem(folder: RunFolder) -> str | None:
    """Why the manifest cannot be used, or None if it can; one of a later version is an error."""
    if folder.manifest.is_file():
        try:
            _ = folder.entries
        except LaterFormatError:
            raise
        except DataError as error:
            return str(error)
        return None
    try:
        old = folder.read_config()["format"] < FORMAT_VERSION
    except DataError:
        old = False
    return _OLD if old else f"There is no manifest. {LOST}"


def _usable(folder: RunFolder, files: list[FileFinding], listed: bool) -> list[str]:
    good = {file.name for file in files if file.state in ("fine", "readable")}
    sentences = []
    if good.issuperset(POLICY_FILES):
        try:
            load_policy(folder.path)
            sentences.append("The policy can be used: phyb evaluate, phyb.load_policy.")
        except PhybError as error:
            sentences.append(f"The policy cannot be used: {error}")
    elif any(file.name in POLICY_FILES for file in files):
        sentences.append("The policy cannot be used; --resume writes it again from the last checkpoint.")
    checkpoints = sorted(name for name in good if name.startswith("checkpoints/"))
    if good.issuperset(("result.json", *POLICY_FILES)):
        sentences.append("The run is finished.")
    elif listed and checkpoints:
        step = int(Path(checkpoints[-1]).stem.removeprefix("step-"))
        sentences.append(f"The same command with --resume goes on from update {step:,}.")
    elif listed and any(name.startswith(f"{POOL_FILES}/") for name in good):
        sentences.append("The same command with --resume goes on with the pool; members trained so far are kept.")
    elif listed:
        sentences.append("The same command with --resume starts again; a finished pool is found in the cache.")
    return sentences
