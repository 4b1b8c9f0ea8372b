"""A folder with a manifest: a file counts once it is listed with its size and SHA-256, and as long as it matches."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

from phyb.errors import DataError, LaterFormatError
from phyb.storage.files import read_json, storage_errors, write_json
from phyb.storage.trees import load_tree, read_about, save_tree

Tree = TypeVar("Tree")
FORMAT_VERSION = 3
"""Of run folders: 1 had no manifest; in 2 settings and metrics had other names."""
MANIFEST = "manifest.json"
LOST = "Without it the run cannot go on: restore it, or train into another folder. phyb.load_policy can be used."
State = Literal["fine", "damaged", "missing"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the manifest says about a file; of one that `grows` only the first `size` bytes are vouched for."""

    size: int
    sha256: str
    grows: bool = False


class Store:
    """Files of one folder and the manifest that vouches for them.

    A file is written whole first and listed afterwards. One that is not listed, because the process died between the
    two, is treated as not written. Only one process may write at a time; `phyb.storage.lock` sees to that.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.manifest = self.path / MANIFEST
        self.guard: Callable[[], None] = lambda: None
        """Called before every change; raises if this process may not write here (any more)."""
        self._entries: dict[str, Entry] | None = None

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The listed files; none without a manifest, and a `DataError` if it is damaged or of a later format."""
        if self._entries is None:
            self._entries = _read_manifest(self.manifest) if self.manifest.exists() else {}
        return self._entries

    def start(self) -> None:
        """Write an empty manifest if there is none."""
        if not self.manifest.exists():
            self._write({})

    def add(self, *names: str, grows: bool = False) -> None:
        """List files as they are on disk now."""
        found = {name: Entry(*digest(inside(self.path, name)), grows) for name in names}
        self._write({**self.entries, **found})

    def drop(self, *names: str) -> None:
        """Take files out of the manifest, then delete them."""
        if any(name in self.entries for name in names):
            self._write({name: entry for name, entry in self.entries.items() if name not in names})
        for name in names:
            path = inside(self.path, name)
            with storage_errors(path):
                path.unlink(missing_ok=True)
            if path.parent != self.path:
                with contextlib.suppress(OSError):  # other files may be left in it
                    path.parent.rmdir()

    def state(self, name: str) -> State:
        """Whether a listed file is as the manifest says; a file that is not listed counts as missing."""
        entry = self.entries.get(name)
        if entry is None:
            return "missing"
        path = inside(self.path, name)
        if not os.path.isfile(path):  # unlike Path.is_file, also for names no file can have
            return "missing"
        try:
            size, sha256 = digest(path, entry.size if entry.grows else None)
        except OSError:
            return "damaged"
        return "fine" if (size, sha256) == (entry.size, entry.sha256) else "damaged"

    def vouches(self, *names: str) -> bool:
        """Whether every one of the files is listed and as the manifest says."""
        return all(self.state(name) == "fine" for name in names)

    def save_json(self, name: str, content: Any) -> None:
        """Write JSON and list it."""
        self.guard()
        write_json(self.path / name, content)
        self.add(name)

    def save_tree(self, name: str, tree: Any, about: Mapping[str, Any] | None = None) -> None:
        """Write a tree of arrays with a note about it, and list it."""
        self.guard()
        save_tree(self.path / name, tree, about)
        self.add(name)

    def about(self, name: str) -> dict[str, Any] | None:
        """The note of a tree, or None if the file is not vouched for."""
        return read_about(self.path / name) if self.vouches(name) else None

    def load_tree(self, name: str, like: Tree, part: str = "") -> Tree:
        """A tree, or a part of it, that the manifest vouches for; ask `about` or `vouches` first."""
        return load_tree(inside(self.path, name), like, part)

    def _write(self, entries: dict[str, Entry]) -> None:
        self.guard()
        files = {name: dataclasses.asdict(entry) for name, entry in sorted(entries.items())}
        write_json(self.manifest, {"format": FORMAT_VERSION, "written_by": _version(), "files": files})
        self._entries = entries


def check_format(found: Any, source: str | os.PathLike[str], written_by: Any = None) -> None:
    """Refuse a run folder of a later format than this version knows."""
    if type(found) is not int or found < 1:
        raise DataError(f"{source}: format {found!r} is not a number that phyb ever wrote. Is the file damaged?")
    if found > FORMAT_VERSION:
        writer = f" by {written_by:.40}" if isinstance(written_by, str) else ""
        raise LaterFormatError(
            f"{source}: was written{writer} in format {found}; this is {_version()}, which reads formats 1 to "
            f"{FORMAT_VERSION}. Install the version that wrote it, or a later one."
        )


def inside(root: Path, name: str) -> Path:
    """The path of a file of a folder; a name or link that leads out of the folder is refused."""
    pure = PurePosixPath(name)
    path = root / name
    if "\0" in name or pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise DataError(f"{root}: names a file outside of itself ({name!r:.80}). Do not trust this folder.")
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise DataError(f"{path}: is a link to a place outside of {root}. Replace it by the file itself.")
    return path


def _read_manifest(path: Path) -> dict[str, Entry]:
    try:
        content = read_json(path)
    except DataError as error:
        raise DataError(f"{path}: cannot be read as JSON. {LOST}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: is not a manifest. {LOST}")
    check_format(content.get("format"), path, content.get("written_by"))
    files = content.get("files")
    if not isinstance(files, dict):
        raise DataError(f"{path}: lists no files. {LOST}")
    entries = {}
    for name, said in files.items():
        kinds = {"size": int, "sha256": str, "grows": bool}
        if not isinstance(said, dict) or {key: type(value) for key, value in said.items()} != kinds:
            raise DataError(f"{path}: the entry of {name!r:.80} cannot be read. {LOST}")
        inside(path.parent, name)
        entries[name] = Entry(**said)
    return entries


def digest(path: Path, first: int | None = None) -> tuple[int, str]:
    """Size and SHA-256 of a file, or of its first bytes."""
    digest, left = hashlib.sha256(), first if first is not None else path.stat().st_size
    with path.open("rb") as file:
        while left > 0 and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
        return file.tell(), digest.hexdigest()


def _version() -> str:
    return f"phyb {importlib.metadata.version('phyb')}"
