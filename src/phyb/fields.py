"""Settings whose rules live on the field: bounds, and the combinations in which a setting has an effect.

A rule is metadata of the annotation, `steps: Count = 1000` or
`step_size: Annotated[Positive, only_if("step_size_rule", "fixed")] = 0.1`. Settings are frozen dataclasses, which may
hold others. Names of settings are unique over the whole tree, as they are on the command line.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from phyb.errors import DataError, UsageError

T = TypeVar("T")
Changes = Mapping[str, Any]
"""Settings by name that differ from their defaults; a group of settings is a mapping of its own."""


class Bound(NamedTuple):
    """What a number, or each of several, must be."""

    text: str
    holds: Callable[[float], bool]
    """False for NaN."""


class Condition(NamedTuple):
    """When a setting has an effect: another setting has one of these values, or (`unless`) none of them."""

    setting: str
    values: tuple[Any, ...]
    unless: bool

    def broken(self, values: Mapping[str, Any]) -> str | None:
        """Why the setting has no effect beside these values, or None if it has one."""
        found = values.get(self.setting)
        if self.setting not in values:
            return None if self.unless else f"there is no {self.setting}"
        if self.unless:
            return f"{self.setting} is {found}" if found in self.values else None
        words = " or ".join(map(str, self.values))
        return f"{self.setting} is {found}, not {words}" if self.values and found not in self.values else None


def at_least(low: float) -> Bound:
    """A finite number that is not smaller."""
    return Bound(f"{low} or more", lambda x: low <= x < math.inf)


def only_if(setting: str, *values: Any) -> Condition:
    """There is an effect only if another setting has one of these values; without values, only if there is such one."""
    return Condition(setting, values, unless=False)


def not_if(setting: str, *values: Any) -> Condition:
    """There is no effect if another setting has one of these values."""
    return Condition(setting, values, unless=True)


Count = Annotated[int, at_least(1)]
Whole = Annotated[int, at_least(0)]
NonNegative = Annotated[float, at_least(0)]
Positive = Annotated[float, Bound("above 0", lambda x: 0 < x < math.inf)]
Share = Annotated[float, Bound("above 0 and at most 1", lambda x: 0 < x <= 1)]
Fraction = Annotated[float, Bound("between 0 and 1", lambda x: 0 <= x <= 1)]
OpenFraction = Annotated[float, Bound("between 0 and 1, both excluded", lambda x: 0 < x < 1)]
Layers = tuple[Count, ...]


def check(config: Any, base: Any = None) -> list[str]:
    """One sentence for every setting that breaks its bound, or has no effect and yet differs from `base`.

    `base` is what the settings were made from, such as a preset; None looks at bounds only.
    """
    found, values = [], flat(config)
    before = None if base is None else flat(base)
    for name, value, hint in _leaves(config):
        found += [f"{name}: {value}, must be {text}" for text in dict.fromkeys(_broken_bounds(value, hint))]
        if before is not None and (name not in before or before[name] != value):
            rules = (rule for rule in getattr(hint, "__metadata__", ()) if isinstance(rule, Condition))
            reasons = [reason for rule in rules if (reason := rule.broken(values))]
            found += [f"{name}: {value}, has no effect here: {reason}" for reason in reasons[:1]]
    return found


def refuse(found: list[str]) -> None:
    """Raise a `UsageError` with what `check` found, if it found anything."""
    if found:
        raise UsageError("These settings cannot be used:\n  " + "\n  ".join(found))


def flat(config: Any) -> dict[str, Any]:
    """All settings by name, without their groups."""
    return {name: value for name, value, _ in _leaves(config)}


def with_changes(config: T, changes: Changes) -> T:
    """A copy with other values for some settings, wherever in the tree they are; a `UsageError` if there is none."""
    known = {name: hint for name, _, hint in _leaves(config, groups=True)}
    values: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            raise UsageError(f"{name}: there is no such setting. " + (f"Close are {', '.join(near)}." if near else ""))
        hint = _plain(known[name])
        values[name] = tuple(value) if isinstance(value, list) else value
        if not _fits(values[name], hint):
            raise UsageError(f"{name}: found {value!r:.60}, expected {_describe(hint)}.")
    try:
        return _replace(config, values)
    except ValueError as error:  # values that each are fine but not together
        raise UsageError(f"{error}.") from error


def changed(config: T, changes: Changes) -> T:
    """A copy of a dataclass with some of its fields changed; a mapping for a nested dataclass changes that one."""
    values = {
        name: changed(getattr(config, name), value) if dataclasses.is_dataclass(getattr(config, name)) else value
        for name, value in changes.items()
    }
    return dataclasses.replace(cast(Any, config), **values)


def difference(ours: dict[str, Any], theirs: dict[str, Any], prefix: str = "") -> list[str]:
    """The settings in which two nested dictionaries differ, one line each."""
    lines = []
    for name in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(name), theirs.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += difference(a, b, f"{prefix}{name}.")
        elif (list(a) if isinstance(a, tuple) else a) != (list(b) if isinstance(b, tuple) else b):
            lines.append(f"{prefix}{name}: {a} here, {b} in the run")
    return lines


def build(kind: type[T], content: Any, place: str = "", types: dict[str, Any] | None = None) -> T:
    """A dataclass from plain JSON: nested dataclasses are built, lists become tuples, every value is checked.

    Messages begin with the `place` of the content. `types` are those of fields whose kind the dataclass leaves open.

    Raises:
        DataError: the content is of another kind; the message names the setting.
    """
    if not isinstance(content, dict):
        raise DataError(f"{place or 'settings'}: found {content!r:.60}, expected a group of settings.")
    types = get_type_hints(kind) | (types or {})
    values: dict[str, Any] = {}
    for name, value in content.items():
        where = f"{place}.{name}" if place else f"{name}"
        if name not in types:
            raise DataError(f"{where:.80}: there is no such setting in this version of phyb; remove it.")
        if dataclasses.is_dataclass(types[name]):
            values[name] = build(cast(Any, types[name]), value, where)
            continue
        values[name] = tuple(value) if isinstance(value, list) else value
        if not _fits(values[name], types[name]):
            raise DataError(f"{where}: found {value!r:.60}, expected {_describe(types[name])}.")
    try:
        return kind(**values)
    except ValueError as error:  # values that each are fine but not together
        raise DataError(f"{place or 'settings'}: {error}.") from error


@functools.lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _leaves(config: Any, *, groups: bool = False) -> Iterator[tuple[str, Any, Any]]:
    """Name, value and annotated kind of every setting in a tree; of groups too, if those are asked for."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        group = dataclasses.is_dataclass(value)
        if group:
            yield from _leaves(value, groups=groups)
        if groups or not group:
            yield field.name, value, _hints(type(config))[field.name]


def _replace(config: T, changes: Changes) -> T:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cast(Any, config)):
        value = getattr(config, field.name)
        if field.name in changes:
            values[field.name] = changes[field.name]
        elif dataclasses.is_dataclass(value):
            values[field.name] = _replace(value, changes)
    return dataclasses.replace(cast(Any, config), **values)


def _broken_bounds(value: Any, hint: Any) -> Iterator[str]:
    """What the value, or an entry of it, should have been. None stands for a choice made later."""
    if get_origin(hint) is Annotated:
        rules = (rule for rule in hint.__metadata__ if isinstance(rule, Bound))
        yield from (rule.text for rule in rules if isinstance(value, int | float) and not rule.holds(value))
        yield from _broken_bounds(value, hint.__origin__)
    elif isinstance(value, tuple):
        for entry in value:
            yield from _broken_bounds(entry, get_args(hint)[0])
    elif value is not None:
        for option in get_args(hint):
            yield from _broken_bounds(value, option)


def _plain(hint: Any) -> Any:
    """A kind without its metadata, outermost and inside."""
    return get_type_hints(type("Holder", (), {"__annotations__": {"it": hint}}))["it"]


def _fits(value: Any, hint: Any) -> bool:
    options = get_args(hint)
    if hint is Any or dataclasses.is_dataclass(hint):
        return dataclasses.is_dataclass(value) and (hint is Any or isinstance(value, cast(type, hint)))
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in options
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_fits(item, options[0]) for item in value)
    if options:
        return any(_fits(value, option) for option in options)
    if hint is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max  # false for NaN
    return type(value) is hint and (hint is not int or abs(value) < 2**63)


def _describe(hint: Any) -> str:
    options = get_args(hint)
    if get_origin(hint) is Literal:
        return f"one of {', '.join(options)}"
    if get_origin(hint) is tuple:
        return f"a list, each entry {_describe(options[0])}"
    if options:
        return " or ".join(map(_describe, options))
    names = {int: "a whole number", float: "a finite number", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(hint) or f"settings of the kind {getattr(hint, '__name__', hint)}"
