"""Several logs as one: episodes stay whole and follow each other in the order of the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from phyb.data._limits import problem
from phyb.data.formats import LogHeader
from phyb.data.log import Log
from phyb.storage.mapped import ROWS_SUFFIX, blocks, new_array

_SIZES = ("observation_size", "action_size")
_NUMBERS = ("observations", "actions", "rewards", "next_observations")


def join_logs(logs: Sequence[Log], sources: Sequence[str], folder: Path | None = None) -> Log:
    """One log of all rows. Where a log stops in the middle of an episode, it is truncated.

    Args:
        logs: logs of the same sizes, environment and columns.
        sources: their names in messages and in the provenance.
        folder: where the numbers of logs on disk are written, a block at a time; None joins in memory.

    Raises:
        DataError: two logs do not belong together; the message names both.
    """
    if len(logs) == 1:
        return logs[0]
    first, source = logs[0], sources[0]
    for log, other in zip(logs[1:], sources[1:], strict=True):
        for name in _SIZES:
            if getattr(log, name) != getattr(first, name):
                what = name.removesuffix("_size")
                ours, theirs = (f"{getattr(each, name)} {what} columns" for each in (log, first))
                raise _differ(other, f"{what}s", ours, source, theirs)
        columns = [each.provenance.get("names") for each in (log, first)]
        if all(columns) and columns[0] != columns[1]:
            raise _differ(other, "columns", f"the columns {columns[0]}", source, f"{columns[1]}")
    low, high = _bounds(logs, sources)
    truncated = np.concatenate([log.truncated for log in logs])
    lasts = np.cumsum([len(log) for log in logs]) - 1
    terminated = np.concatenate([log.terminated for log in logs])
    truncated[lasts] |= ~terminated[lasts]
    return Log(
        **{name: _concatenated(logs, name, folder) for name in _NUMBERS},
        terminated=terminated,
        truncated=truncated,
        action_low=low,
        action_high=high,
        env_id=_env_id([log.env_id for log in logs], sources),
        provenance=_provenance(logs, sources),
    )


def join_headers(headers: Sequence[LogHeader | None], sources: Sequence[str]) -> LogHeader | None:
    """The header of the joined log; None if a format cannot say."""
    known = [header for header in headers if header is not None]
    if len(known) < len(headers):
        return None
    return LogHeader(
        sum(header.rows for header in known),
        known[0].observation_size,
        known[0].action_size,
        _env_id([header.env_id for header in known], sources),
        _kind([header.dataset for header in known]),
    )


def _concatenated(logs: Sequence[Log], name: str, folder: Path | None) -> np.ndarray:
    parts = [getattr(log, name) for log in logs]
    if folder is None:
        return np.concatenate(parts)
    path = folder / f"{name}{ROWS_SUFFIX}"
    shape = (sum(map(len, parts)), *parts[0].shape[1:])
    array, row = new_array(path, shape, parts[0].dtype), 0
    for part in parts:
        for block in blocks(part):
            array[row + block.start : row + block.stop] = part[block]
        row += len(part)
    array.flush()
    return np.memmap(path, parts[0].dtype, "r", shape=shape)


def _bounds(logs: Sequence[Log], sources: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The bounds that all logs have; those taken from the actions of each log are widened to hold all of them."""
    if not all("action_bounds" in _assumed(log) for log in logs):
        for log, other in zip(logs[1:], sources[1:], strict=True):
            for name in ("action_low", "action_high"):
                ours, theirs = getattr(log, name), getattr(logs[0], name)
                if not np.array_equal(ours, theirs):
                    raise _differ(other, name, f"{name} {ours.tolist()}", sources[0], f"{theirs.tolist()}")
    low = np.min([log.action_low for log in logs], axis=0)
    return low, np.max([log.action_high for log in logs], axis=0)


def _env_id(ids: Sequence[str | None], sources: Sequence[str]) -> str | None:
    """The id that the logs name; those that name none go along."""
    found = [(name, source) for name, source in zip(ids, sources, strict=True) if name is not None]
    for name, source in found[1:]:
        if name != found[0][0]:
            raise _differ(source, "env_id", f"env_id {name}", found[0][1], found[0][0])
    return found[0][0] if found else None


def _kind(kinds: Sequence[str | None]) -> str | None:
    """What D4RL calls the joined log, if it has a name for it."""
    found = set(kinds)
    return kinds[0] if len(found) == 1 else "medium-expert" if found == {"medium", "expert"} else None


def _provenance(logs: Sequence[Log], sources: Sequence[str]) -> dict[str, Any]:
    joined = [
        {"path": source, "rows": len(log), "env_id": log.env_id, "provenance": dict(log.provenance)}
        for log, source in zip(logs, sources, strict=True)
    ]
    found: dict[str, Any] = {"joined": joined}
    found |= {name: logs[0].provenance[name] for name in ("names",) if name in logs[0].provenance}
    kind = _kind([log.provenance.get("kind") for log in logs])
    found |= {} if kind is None else {"kind": kind}
    assumed = {
        f"{field} ({source})": text
        for log, source in zip(logs, sources, strict=True)
        for field, text in _assumed(log).items()
    }
    return found | ({"assumed": assumed} if assumed else {})


def _assumed(log: Log) -> dict[str, Any]:
    found = log.provenance.get("assumed")
    return found if isinstance(found, dict) else {}


def _differ(source: str, field: str, ours: str, other: str, theirs: str) -> Exception:
    advice = "Only logs of the same environment and the same columns make one log"
    return problem(source, field, f"has {ours}, but {other} has {theirs}", advice)
