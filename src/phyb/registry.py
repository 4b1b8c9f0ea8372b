"""Things that are chosen by name: algorithms, dynamics models, actors, log formats, tables.

A registry maps names to homes, written "package.module:attribute". A home is imported when it is asked for, not before.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from phyb.errors import DataError, UsageError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names of one kind of thing, and where each thing is.

    Arguments:
        kind: what the names stand for, in error messages: "algorithm", "log format".
        homes: by name, a home "package.module:attribute" or the thing itself.
    """

    def __init__(self, kind: str, homes: Mapping[str, str | T] | None = None) -> None:
        self.kind = kind
        self._homes: dict[str, str | T] = dict(homes or {})

    def register(self, name: str, home: str | T) -> None:
        """Make a thing known by a name.

        Raises:
            UsageError: the name stands for something else already, or the home cannot be one.
        """
        if isinstance(home, str) and not is_home(home):
            raise UsageError(f"{self.kind} {name}: {home!r:.80} is not of the form package.module:attribute.")
        if self._homes.get(name, home) != home:
            raise UsageError(f"{self.kind} {name}: the name is taken. Known are {', '.join(self._homes)}.")
        self._homes[name] = home

    def names(self) -> tuple[str, ...]:
        """The known names, in the order they were registered."""
        return tuple(self._homes)

    def load(self, name: str) -> T:
        """The thing with this name. Nothing but registered homes is imported, so the name may come from a file.

        Raises:
            DataError: the name is not known.
        """
        if name not in self:
            raise DataError(f"{self.kind}: found {name!r:.60}, expected one of {', '.join(self._homes)}.")
        home: Any = self._homes[name]
        return import_object(home, self.kind) if isinstance(home, str) else home

    def find(self, word: str) -> T:
        """The thing a user asks for: a known name, or "package.module:attribute", whose module is imported.

        Raises:
            UsageError: there is no such thing.
        """
        if word in self:
            return self.load(word)
        if not is_home(word):
            advice = f"Known are {', '.join(self._homes)}, or name your own as package.module:attribute."
            raise UsageError(f"{self.kind} {word}: there is no such {self.kind}. {advice}")
        return import_object(word, self.kind)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._homes


def is_home(word: str) -> bool:
    """Whether a word has the form package.module:attribute."""
    module, _, attribute = word.partition(":")
    return all(part.isidentifier() for part in (*module.split("."), attribute))


def import_object(home: str, purpose: str) -> Any:
    """What "package.module:attribute" names. `purpose` begins the message if there is no such thing (`UsageError`)."""
    module_name, _, attribute = home.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a user's module raises while it is imported
        found = f"cannot import {module_name} ({type(error).__name__}: {error})"
        advice = "Install its package, or add its folder to PYTHONPATH."
        raise UsageError(f"{purpose} {home}: {found}. {advice}") from error
    if not hasattr(module, attribute):
        raise UsageError(f"{purpose} {home}: {module_name} has no {attribute}.")
    return getattr(module, attribute)
