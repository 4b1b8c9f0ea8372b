"""The formats that a log can be stored in. A new one is a subclass of `LogFormat` and a line in `FORMATS`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from phyb.data._limits import problem
from phyb.registry import Registry

if TYPE_CHECKING:
    from phyb.data.log import Log

FORMAT_VERSION = 1
FILE_KEYS = {
    "observations": ("observations",),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "next_observations": ("next_observations",),
    "terminated": ("terminals", "terminated"),
    "truncated": ("timeouts", "truncated"),
}
"""Each field of a log with the names it may have in a file; the first is the one we write."""
METADATA = ("env_id", "action_low", "action_high", "provenance", "phyb_format")
_OPTIONAL = ("next_observations", "truncated")


@dataclasses.dataclass(frozen=True)
class FileContent:
    """What a file holds. `next_observations` and `truncated` may be absent, see docs/data.md."""

    arrays: Mapping[str, np.ndarray]
    """The stored arrays by field of `Log`."""
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The name of each field in the file, for messages, where it differs."""
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Any of `METADATA`; `provenance` is text, usually JSON."""
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Other facts in the file; they are kept in the provenance of the log."""


@dataclasses.dataclass(frozen=True)
class LogHeader:
    """What a file says about its log before any row is read."""

    rows: int
    observation_size: int
    action_size: int
    env_id: str | None = None
    dataset: str | None = None
    """What the file says it is: the kind of a collected log ("medium-replay") or the id of a Minari data set."""


class LogFormat:
    """How one kind of file holds a log; `read` is all that a format must have."""

    title = "a log"
    """How messages call such a file."""

    def find(self, source: str) -> Path:
        """The file that a user's word stands for."""
        return Path(source)

    def read(self, path: Path, source: str, rows_in: Path | None = None) -> FileContent:
        """Read everything. `source` is the name of the file in messages.

        With `rows_in`, a format for large files puts float32 numbers into files in that folder; others may ignore it.
        """
        raise NotImplementedError

    def header(self, path: Path, source: str) -> LogHeader | None:
        """Read sizes and facts, but no rows; None if this format cannot."""
        return None

    def write(self, log: Log, path: Path) -> None:
        """Write a log whose numbers are float32 already."""
        raise problem(str(path), None, f"{self.title} cannot be written", "Choose another suffix, such as .hdf5")


FORMATS: Registry[type[LogFormat]] = Registry(
    "log format",
    {
        ".hdf5": "phyb.data._hdf5:HDF5",
        ".h5": "phyb.data._hdf5:HDF5",
        ".npz": "phyb.data._npz:NPZ",
        ".csv": "phyb.data._tables:CSV",
        ".parquet": "phyb.data._tables:Parquet",
        "minari:": "phyb.data._hdf5:Minari",
    },
)
"""By the suffix of a file, or by the prefix of a name that is no path."""


def names_log(source: str) -> bool:
    """Whether a word has the suffix or the prefix of a log."""
    return _key(source) in FORMATS


def format_of(source: str) -> LogFormat:
    """The format of a file, by its suffix, or of a name, by its prefix."""
    if not names_log(source):
        suffixes = ", ".join(name for name in FORMATS.names() if name.startswith("."))
        found = f"has suffix '{Path(source).suffix}', expected one of {suffixes}"
        raise problem(source, None, found, "Convert the log, or rename the file if only its name is wrong")
    return FORMATS.load(_key(source))()


def _key(source: str) -> str:
    prefix = source.partition(":")[0] + ":"
    return prefix if prefix in FORMATS else Path(source).suffix.lower()


def find_keys(present: list[str], source: str) -> dict[str, str]:
    """Which key of the file holds which field. Raises when a field is missing or given twice."""
    found: dict[str, str] = {}
    for field, names in FILE_KEYS.items():
        keys = [name for name in names if name in present]
        if len(keys) > 1:
            raise problem(source, keys[0], f"is given twice, also as {keys[1]}", "Keep one of the two")
        if keys:
            found[field] = keys[0]
        elif field not in _OPTIONAL:
            listing = ", ".join(sorted(present)[:20]) or "nothing"
            raise problem(source, names[0], f"is missing; the file holds {listing}", "Add it; see docs/data.md")
    if "next_observations" not in found and "truncated" not in found:
        advice = "Without both, episode ends are unknown: add timeouts (all False if there were none)"
        raise problem(source, "timeouts", "is missing, and so is next_observations", advice)
    return found


def metadata_of(log: Log) -> dict[str, Any]:
    """What is stored beside the arrays, ready to write."""
    metadata = {
        "action_low": log.action_low,
        "action_high": log.action_high,
        "provenance": json.dumps(dict(log.provenance), sort_keys=True),
        "phyb_format": FORMAT_VERSION,
    }
    return metadata if log.env_id is None else {**metadata, "env_id": log.env_id}


def provenance_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance that a file gives as text; what is no JSON object becomes a note."""
    text = metadata.get("provenance")
    if text is None:
        return {}
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = text
    return dict(content) if isinstance(content, dict) else {"note": content}


def header_of(shapes: Mapping[str, tuple[int, ...]], metadata: Mapping[str, Any]) -> LogHeader:
    """The header of a log, from the shapes of its fields and its metadata."""
    provenance = provenance_of(metadata)
    minari = provenance.get("minari")
    dataset = minari.get("dataset_id") if isinstance(minari, dict) else provenance.get("kind")
    return LogHeader(
        rows=shapes["actions"][0],
        observation_size=shapes["observations"][1],
        action_size=shapes["actions"][1],
        env_id=metadata.get("env_id"),
        dataset=dataset if isinstance(dataset, str) else None,
    )
