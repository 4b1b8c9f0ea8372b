"""Which column of a table is what: a first guess from names and kinds, and a small TOML file to correct it in."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from phyb.data._limits import problem


@dataclasses.dataclass(frozen=True)
class Columns:
    """The names of the columns that make a log; `Log.from_frame` says what each must hold."""

    SEVERAL: ClassVar = ("observations", "actions", "next_observations")
    """The roles that take any number of columns."""

    observations: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    reward: str | None = None
    episode: str | None = None
    time: str | None = None
    terminated: str | None = None
    truncated: str | None = None
    next_observations: tuple[str, ...] = ()
    amounts: bool = False
    """Whole-numbered actions measure an amount: they are not refused as choices between things."""

    def used(self) -> list[str]:
        """All columns that are named, each once."""
        single = (self.reward, self.episode, self.time, self.terminated, self.truncated)
        names = (*self.observations, *self.actions, *self.next_observations, *single)
        return list(dict.fromkeys(name for name in names if name is not None))


_NUMBERED = r"(?:[_.\[ -]?.*)?"
_NAMES: dict[str, str] = {
    "next_observations": rf"(?:next|new)_?(?:obs|observations?|states?){_NUMBERED}|successors?{_NUMBERED}",
    "observations": rf"(?:obs|observations?|states?)(?:[_.\[ -]|\d|$){_NUMBERED}|[sox][_.\[ -]?\d+\]?",
    "actions": rf"(?:act|actions?)(?:[_.\[ -]|\d|$){_NUMBERED}|[au](?:[_.\[ -].*|\d+|$)",
    "reward": r"rewards?|rew|r",
    "terminated": r"terminated|terminals?|terminations?|is_terminal|dones?",
    "truncated": r"truncated|truncations?|time_?outs?|time_?limit",
    "episode": r"(?:episode|trajectory|traj|ep)(?:_?(?:id|number|no|index|idx))?|id",
    "time": r"(?:time_?)?steps?|t|time|timestamp|datetime",
}
"""By role, the names that a column of it usually has; the first that fits counts."""
_SUITABLE = {"episode": ("number", "flag", "text", "date"), "time": ("number", "date")}
_WHY_NOT = {
    "text": "text; make it numbers to use it",
    "date": "dates; make them numbers to use them",
    "nested": "lists or images; spread them over columns to use them",
    "nothing": "no value at all",
}


@dataclasses.dataclass(frozen=True)
class Guess:
    """A proposal, and what it leaves out."""

    columns: Columns
    unused: Mapping[str, str]
    """Columns without a role, and why."""
    by_name: bool
    """Whether observations were found by their names; if not, they are the numbers that nothing else claims."""

    @property
    def complete(self) -> bool:
        """Whether there are observations, actions and rewards."""
        return bool(self.columns.observations and self.columns.actions and self.columns.reward is not None)


def guess(kinds: Mapping[str, str]) -> Guess:
    """A first guess of what each column is.

    Arguments:
        kinds: by name, what the column holds, see `phyb.data.frames.kind_of`.
    """
    found: dict[str, list[str]] = {role: [] for role in _NAMES}
    unused: dict[str, str] = {}
    for name, kind in kinds.items():
        role = next((role for role, names in _NAMES.items() if re.fullmatch(names, str(name).strip().lower())), None)
        if kind not in _SUITABLE.get(role or "", ("number", "flag")):
            unused[name] = _WHY_NOT[kind]
        elif role is None:
            unused[name] = "its name says nothing"
        elif role not in Columns.SEVERAL and found[role]:
            unused[name] = f"{found[role][0]} is taken as {role}"
        else:
            found[role].append(name)
    by_name = bool(found["observations"])
    if not by_name:
        found["observations"] = [name for name, why in unused.items() if why == "its name says nothing"]
        unused = {name: why for name, why in unused.items() if name not in found["observations"]}
    if len(found["next_observations"]) != len(found["observations"]):
        unused |= dict.fromkeys(found["next_observations"], "not one for each observation")
        found["next_observations"] = []
    chosen: dict[str, Any] = {
        role: tuple(names) if role in Columns.SEVERAL else next(iter(names), None) for role, names in found.items()
    }
    return Guess(Columns(**chosen), unused, by_name)


_COMMENTS = {
    "observations": "what is known when an action is chosen; numbers only",
    "actions": "what was done; numbers only",
    "reward": "what the step earned",
    "episode": "which episode a row belongs to",
    "time": "the order inside an episode; without `episode`, one begins where it does not grow",
    "terminated": "the task ended here: nothing more could be earned",
    "truncated": "the recording stopped here, though the task could have gone on",
    "next_observations": "the state that followed; without it, that of the following row",
    "amounts": "true: whole-numbered actions measure an amount and are no choices between things",
}


def to_toml(columns: Columns, unused: Mapping[str, str] | None = None) -> str:
    """The text of a map, with a word on each role and on each column that is left out."""
    lines = []
    for role, comment in _COMMENTS.items():
        value = getattr(columns, role)
        lines.append(f"# {comment}")
        lines.append(f'# {role} = "COLUMN"' if value is None else f"{role} = {_toml(value)}")
    lines += [f"# not used: {_toml(str(name))}, {why}" for name, why in (unused or {}).items()]
    return "\n".join(lines) + "\n"


def read_map(path: Path) -> Columns:
    """The columns that a map names.

    Raises:
        DataError: it cannot be read, or says something that a map cannot say.
    """
    source = str(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        advice = "Let phyb data import write one: leave out --columns"
        raise problem(source, None, f"cannot be read as a map of columns ({error})", advice) from error
    roles = {field.name: field for field in dataclasses.fields(Columns)}
    for role, value in content.items():
        if role not in roles:
            raise problem(source, role, "there is no such role", f"Known are {', '.join(roles)}")
        several, wanted = role in Columns.SEVERAL, "true or false" if role == "amounts" else "the name of a column"
        is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
        if not (is_list if several else isinstance(value, bool if role == "amounts" else str)):
            expected = "a list of names of columns" if several else wanted
            raise problem(source, role, f"is {value!r:.60}", f"Give {expected}")
    found: dict[str, Any] = {
        role: tuple(value) if isinstance(value, list) else value for role, value in content.items()
    }
    return Columns(**found)


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
