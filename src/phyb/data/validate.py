"""The validator: what stops a log from being used (errors) and what its owner should check (findings)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

import numpy as np

from phyb.data._checks import check_actions, check_arrays, check_connected
from phyb.data.log import FIELDS, Log
from phyb.storage.mapped import blocks, rows_where

SHORT_LOG = 1000
"""Below this many rows a dynamics model has little to learn from."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something in a log that is allowed but suspicious.

    A "warning" is likely to hurt what is learned; a "note" is for information.
    """

    severity: Literal["warning", "note"]
    field: str
    row: int | None
    message: str
    advice: str


def validate(log: Log, source: str) -> list[Finding]:
    """What is suspicious in a log, warnings first; `source` is its name in messages, usually the path of its file.

    Raises:
        DataError: the log cannot be used; the message names source, field and row, and says what to do.
    """
    check(log, source)
    findings = [*_constants(log), *_borrowed_successors(log), *_duplicates(log), *_episode_ends(log), *_notes(log)]
    return sorted(findings, key=lambda finding: finding.severity != "warning")


def check(log: Log, source: str) -> None:
    """Only the errors of `validate`: raise `DataError` if the log cannot be used."""
    check_arrays({field: getattr(log, field) for field in FIELDS}, source)
    check_actions(log.actions, log.action_low, log.action_high, source)
    check_connected(log.observations, log.next_observations, log.episode_ends, source)


def _constants(log: Log) -> Iterator[Finding]:
    for field in ("observations", "actions") if len(log) > 1 else ():
        array = getattr(log, field)
        constant = np.flatnonzero(np.all([(array[block] == array[0]).all(axis=0) for block in blocks(array)], axis=0))
        for column in constant.tolist():
            message = f"column {column} is {array[0, column]:g} on every row"
            advice = "It carries no information; drop it, or check that the recording is right"
            yield Finding("warning", field, None, message, advice)
    if len(log) > 1 and (log.rewards == log.rewards[0]).all():
        message, advice = f"every reward is {log.rewards[0]:g}", "Nothing can be learned from it but episode length"
        yield Finding("warning", "rewards", None, message, advice)


def _borrowed_successors(log: Log) -> Iterator[Finding]:
    reached, first = log.next_observations[:-1], log.observations[1:]
    row, count = rows_where(reached, lambda block: (reached[block] == first[block]).all(axis=1) & log.terminated[block])
    if count:
        message = f"{count:,} terminal rows lead to the first state of the next episode"
        advice = (
            "A terminal row needs the state it really reached. If that state is lost, remove next_observations"
            " from the file: the reader then rebuilds them and drops these rows"
        )
        yield Finding("warning", "next_observations", row, message, advice)


def _duplicates(log: Log) -> Iterator[Finding]:
    columns = [log.observations, log.actions, log.rewards[:, None], log.next_observations]
    # A random linear hash of the bits: sorting one number per row is far cheaper than sorting whole rows.
    width = sum(part.shape[1] for part in columns)
    factors = np.random.default_rng(0).integers(1, 2**63, width, dtype=np.uint64)
    hashes = np.zeros(len(log), np.uint64)
    for block in blocks(log.observations):
        words = np.hstack([np.ascontiguousarray(part[block], dtype=np.float32) for part in columns]).view(np.uint32)
        for column, factor in enumerate(factors):
            hashes[block] += words[:, column].astype(np.uint64) * factor
    repeated = np.ones(len(hashes), bool)
    repeated[np.unique(hashes, return_index=True)[1]] = False
    if count := int(repeated.sum()):
        message = f"{count:,} rows ({count / len(hashes):.1%}) repeat an earlier row exactly"
        advice = "Check that no part of the recording was stored twice; a hold-out set would not be independent"
        severity = "warning" if count > 0.01 * len(hashes) else "note"
        yield Finding(severity, "observations", int(np.argmax(repeated)), message, advice)


def _episode_ends(log: Log) -> Iterator[Finding]:
    if not log.terminated.any():
        advice = "Fine for tasks that only time out; otherwise check that terminals were recorded"
        yield Finding("note", "terminated", None, "no episode terminates", advice)
    if not (log.terminated[-1] or log.truncated[-1]):
        message = "the last episode has no end"
        yield Finding("note", "truncated", len(log) - 1, message, "It is treated as truncated there")
    if len(log) < SHORT_LOG:
        message, advice = f"the log has only {len(log):,} rows", f"Record more; aim for {SHORT_LOG:,} at the least"
        yield Finding("warning", "observations", None, message, advice)


def _notes(log: Log) -> Iterator[Finding]:
    """What the reader dropped, assumed and clipped."""
    dropped, assumed, clipped = map(log.provenance.get, ("dropped_rows", "assumed", "clipped_actions"))
    if isinstance(dropped, dict) and any(dropped.values()):
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items() if count)
        message = f"rebuilt from the following rows; episode ends without successor were dropped: {reasons}"
        advice = "Record next_observations to keep them; without terminal rows termination cannot be learned"
        yield Finding("note", "next_observations", None, message, advice)
    for name, text in assumed.items() if isinstance(assumed, dict) else ():
        yield Finding("note", str(name), None, str(text), "Store it in the file if this is wrong")
    if clipped:
        message = f"{clipped} rows were a rounding error outside the bounds and were clipped"
        yield Finding("note", "actions", None, message, "Nothing to do")
