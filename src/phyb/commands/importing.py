"""The command that makes a log of a table whose columns have names of their own."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional, arg

from phyb.data.columns import Columns, Guess
from phyb.data.log import Log
from phyb.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Import:
    """Make a log of a CSV or Parquet file, by a map that says which column is what.

    Without --columns a first guess of the map is made from names and kinds of the columns, shown, and written next to
    --out, as TOML. Confirm it, or correct it and come back with --columns. What was assumed and which rows were dropped
    is shown and kept in the log.

    Try:  phyb data import ward.csv --out ward.hdf5
    then: phyb data import ward.csv --columns ward.toml --out ward.hdf5
    """

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """Table to read, .csv or .parquet (phyb[frames])."""
    out: Path
    """Log to write, .hdf5 or .npz; an existing file is never overwritten."""
    columns: Path | None = None
    """Map of the columns, a TOML file."""
    yes: bool = False
    """Take the first guess without asking."""
    env_id: str | None = None
    """Gymnasium id of the environment to record in the log; it decides task and default settings."""
    action_bounds: tuple[float, float] | None = None
    """Lowest and highest action, for all columns; by default the lowest and highest of each column."""

    def run(self, console: Console) -> None:
        """Read, map, check, write."""
        from phyb.data._assemble import assemble
        from phyb.data.files import save_log
        from phyb.data.frames import content_of_frame

        if self.out.exists():
            raise UsageError(f"{self.out}: already exists. Choose another name with --out, or delete it first.")
        table, source = self._table(), str(self.file)
        columns = self._confirmed(table, console)
        content = content_of_frame(table, columns, action_bounds=self.action_bounds, env_id=self.env_id, source=source)
        log = assemble(content, source, None)
        log = dataclasses.replace(log, provenance={**log.provenance, "path": source})
        save_log(log, self.out)
        for line in _summary(log, self.out):
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _table(self) -> dict[str, Any]:
        from phyb.data import _tables as tables
        from phyb.data.files import reading
        from phyb.data.frames import table_of

        source = str(self.file)
        with reading(source) as (stored, file):
            if isinstance(stored, tables.Table):
                return table_of(stored.table(file, source), source)
            raise UsageError(f"{source}: {stored.title} is a log already; look at it with: phyb data describe {source}")

    def _confirmed(self, table: dict[str, Any], console: Console) -> Columns:
        """The map that is given, or a guess that the user has confirmed.

        Raises:
            UsageError: the guess was written and waits for its correction.
        """
        from phyb.data._tables import guess_of
        from phyb.data.columns import read_map, to_toml
        from phyb.storage.files import write_bytes

        if self.columns is not None:
            return read_map(self.columns)
        place = self.out.with_suffix(".toml")
        again = f"phyb data import {self.file} --columns {place} --out {self.out}"
        if place.exists():
            raise UsageError(f"{place}: is there already. Use it with: {again}\nOr delete it for another guess.")
        found = guess_of(table)
        header = f"# Which column of {self.file.name} is what: a first guess. Correct it, then run:\n#   {again}\n\n"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(place, (header + to_toml(found.columns, found.unused)).encode())
        console.print(_guess_table(table, found))
        console.print(f"Written to {place}.", highlight=False, markup=False, soft_wrap=True)
        if not found.complete:
            missing = [role for role in ("observations", "actions", "reward") if not getattr(found.columns, role)]
            raise UsageError(
                f"{place}: no column looks like {' or '.join(missing)}. Name them there, then run: {again}"
            )
        if not self.yes and not _agrees(console):
            raise UsageError(f"Nothing was imported. Correct {place}, then run: {again}\nOr accept it with --yes.")
        return found.columns


def _agrees(console: Console) -> bool:
    if not sys.stdin.isatty():
        return False
    try:
        return console.input("Import with this map? [y/N] ", markup=False).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _guess_table(table: dict[str, Any], found: Guess) -> Table:
    from phyb.data.frames import kind_of

    roles = {}
    for field in dataclasses.fields(Columns):
        value = getattr(found.columns, field.name)
        names = value if isinstance(value, tuple) else (value,)
        roles |= {name: field.name for name in names if isinstance(name, str)}
    shown = Table("column", "holds", "taken as", title="A first guess", title_justify="left")
    for name, column in table.items():
        role = roles.get(name)
        shown.add_row(escape(str(name)), kind_of(column), role or f"[dim]not used: {found.unused[name]}[/]")
    if not found.by_name:
        shown.caption = "No name looks like an observation: all numbers without another role are taken."
    return shown


def _summary(log: Log, out: Path) -> list[str]:
    """What came out, what was dropped and what was assumed."""
    lines = [f"{out}: {len(log):,} transitions, {int(log.episode_ends.sum()):,} episodes"]
    dropped = sum(log.provenance.get("dropped_rows", {}).values())
    if dropped:
        rows = log.provenance["dropped_row_numbers"]
        named = ", ".join(map(str, rows)) + (", ..." if len(rows) < dropped else "")
        lines.append(f"dropped: {dropped:,} rows, the last of episodes that do not terminate ({named}): no next state")
    lines += [f"assumed: {name}: {text}" for name, text in log.provenance.get("assumed", {}).items()]
    return [*lines, f"See it all with: phyb data describe {out}"]
