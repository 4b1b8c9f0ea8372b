"""Errors a user can act on. The command line prints their text, without a traceback, and exits with their code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class PhybError(Exception):
    """Something the user can mend; the message says what was found, where, and what to do."""

    exit_code = 1


class UsageError(PhybError):
    """A request that cannot be carried out as it was asked: unknown task, clashing settings, existing folder."""

    exit_code = 2


class DataError(PhybError):
    """A log, pool or policy file that is missing, damaged or not what it claims to be."""

    exit_code = 2


class LaterFormatError(DataError):
    """A file written by a later version than this one can read."""


class MissingExtraError(PhybError):
    """An optional dependency is not installed."""

    exit_code = 2

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs an optional package. Install it with: pip install 'phyb[{extra}]'")


class PoorPoolError(PhybError):
    """The dynamics models know no more than a guess that nothing changes; no policy is trained on them."""

    exit_code = 2


class DivergenceError(PhybError):
    """Training produced values that are not finite; the last good checkpoint is kept."""

    exit_code = 3


class StorageError(PhybError):
    """A file cannot be written or has vanished: full disk, missing rights, broken disk."""

    exit_code = 4


class MemoryShortError(PhybError):
    """The machine has less memory than the settings ask for."""

    exit_code = 5


class BusyError(PhybError):
    """Another process works on the same run."""

    exit_code = 6


class CallbackError(PhybError):
    """A callback of the user failed; the run is saved as after a request to stop."""


class InterruptedRunError(PhybError):
    """A run was asked to stop and has saved its state."""

    exit_code = 130


@contextlib.contextmanager
def memory_errors(advice: str) -> Iterator[None]:
    """Say in plain words that memory ran out, which numpy and XLA tell in different ways, and what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # XLA's error is a RuntimeError; naming it would import jax here
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        found = str(error).splitlines()[0] if str(error) else "no more could be had"
        raise MemoryShortError(f"Memory ran short ({found}). {advice}") from error
