"""Things that are chosen by name: algorithms, dynamics models, actors, log formats, tables.

A registry maps names to homes, written "package.module:attribute". A home is imported when it is asked for, not before.
A file may name a home as well, but only one in a module that the user has named in this process (`use_plugins`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from phyb.errors import DataError, UsageError

T = TypeVar("T")
_PLUGINS: set[str] = set()
"""Modules that the user has named."""


def use_plugins(*modules: str) -> None:
    """Import modules of one's own, which may register things, and let files name what is in them.

    The command line does this with the modules in $PHYB_PLUGINS, separated by commas.
    """
    for module in modules:
        _import(module, f"plugin {module}")
        _PLUGINS.add(module)


class Registry(Generic[T]):
    """Names of one kind of thing, and where each thing is.

    Arguments:
        kind: what the names stand for, in error messages: "algorithm", "log format".
        homes: by name, a home "package.module:attribute" or the thing itself.
        base: home of the class that a user's own thing must be derived from, or be an instance of.
    """

    def __init__(self, kind: str, homes: Mapping[str, str | T] | None = None, base: str = "builtins:object") -> None:
        self.kind = kind
        self._homes: dict[str, str | T] = dict(homes or {})
        self._base = base

    def register(self, name: str, home: str | T) -> None:
        """Make a thing known by a name that does not stand for another one already."""
        if isinstance(home, str) and not is_home(home):
            raise UsageError(f"{self.kind} {name}: {home!r:.80} is not of the form package.module:attribute.")
        if self._homes.get(name, home) != home:
            raise UsageError(f"{self.kind} {name}: the name is taken. Known are {', '.join(self._homes)}.")
        self._homes[name] = home

    def names(self) -> tuple[str, ...]:
        """The known names, in the order they were registered."""
        return tuple(self._homes)

    def word(self, thing: Any) -> str:
        """What files call a thing: the name it is registered by, else its home."""
        own = f"{thing.__module__}:{thing.__qualname__}"
        return next((name for name, home in self._homes.items() if home is thing or home == own), own)

    def load(self, name: str) -> T:
        """The thing with this name, which may come from a file.

        Nothing is imported but what is registered, and what lies in modules that the user has named.
        """
        if name not in self and not (isinstance(name, str) and is_home(name) and _module_of(name) in _PLUGINS):
            module = _module_of(name) if isinstance(name, str) and is_home(name) else "MODULE"
            raise DataError(
                f"{self.kind}: found {name!r:.60}, expected one of {', '.join(self._homes)}. If it is your own, name "
                f'its module: PHYB_PLUGINS={module} before the command, or phyb.use_plugins("{module}").'
            )
        home: Any = self._homes.get(name, name)
        return self._checked(import_object(home, self.kind), name) if isinstance(home, str) else home

    def find(self, word: str) -> T:
        """The thing a user asks for: a known name, or "package.module:attribute", whose module is imported."""
        if word in self:
            return self.load(word)
        if not is_home(word):
            advice = f"Known are {', '.join(self._homes)}, or name your own as package.module:attribute."
            raise UsageError(f"{self.kind} {word}: there is no such {self.kind}. {advice}")
        thing = self._checked(import_object(word, self.kind), word)
        _PLUGINS.update((_module_of(word), getattr(thing, "__module__", _module_of(word))))
        return thing

    def _checked(self, thing: Any, word: str) -> T:
        base = import_object(self._base, self.kind)
        if not issubclass(thing if isinstance(thing, type) else type(thing), base):
            raise UsageError(f"{self.kind} {word}: is not made from {self._base.replace(':', '.')}.")
        return cast(T, thing)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._homes


def is_home(word: str) -> bool:
    """Whether a word has the form package.module:attribute."""
    module, _, attribute = word.partition(":")
    return all(part.isidentifier() for part in (*module.split("."), attribute))


def import_object(home: str, purpose: str) -> Any:
    """What "package.module:attribute" names. `purpose` begins the message if there is no such thing (`UsageError`)."""
    module_name, _, attribute = home.partition(":")
    module = _import(module_name, f"{purpose} {home}")
    if not hasattr(module, attribute):
        raise UsageError(f"{purpose} {home}: {module_name} has no {attribute}.")
    return getattr(module, attribute)


def _import(module: str, purpose: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:  # whatever a user's module raises while it is imported
        found = f"cannot import {module} ({type(error).__name__}: {error})"
        advice = "Install its package, or add its folder to PYTHONPATH."
        raise UsageError(f"{purpose}: {found}. {advice}") from error


def _module_of(home: str) -> str:
    return home.partition(":")[0]
