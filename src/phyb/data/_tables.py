"""Logs in CSV and Parquet files, read with PyArrow (phyb[frames])."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from phyb.data._limits import check_memory, problem
from phyb.data.columns import Guess, guess
from phyb.data.formats import FileContent, LogFormat
from phyb.data.frames import arrow, content_of_frame, kind_of, table_of

_SEPARATORS = (",", ";", "\t")
_BLOCK = 2**20
_LARGEST_BLOCK = 2**30


class Table(LogFormat):
    """A table whose columns have telling names; `phyb data import` is for any other."""

    def table(self, path: Path, source: str) -> Any:
        """Everything in the file, as an Arrow table."""
        raise NotImplementedError

    def read(self, path: Path, source: str, rows_in: Path | None = None) -> FileContent:
        """Read the columns whose names say what they are; everything comes into memory."""
        table = table_of(self.table(path, source), source)
        found = guess_of(table)
        if not (found.complete and found.by_name):
            missing = [role for role in ("observations", "actions", "reward") if not getattr(found.columns, role)]
            what = "observations" if not found.by_name else " and ".join(missing)
            raise problem(
                source,
                None,
                f"no column is named like {what}; the columns are {', '.join(map(str, list(table)[:20]))}",
                f"Say which columns they are with: phyb data import {source} --out LOG.hdf5",
            )
        return content_of_frame(table, found.columns, source=source)


class CSV(Table):
    """Separated by commas, semicolons or tabs; the first line names the columns."""

    title = "a CSV file"

    def table(self, path: Path, source: str) -> Any:
        arrow("reading CSV files")
        from pyarrow import csv

        with open(path, "rb") as file:
            first = file.readline(_BLOCK).decode("utf-8", "replace")
        # The kind of a column is found in the first block alone: one block for all keeps a late cell from failing.
        # Without threads, messages about broken lines say which.
        block = min(max(path.stat().st_size + 1, _BLOCK), _LARGEST_BLOCK)
        return csv.read_csv(
            path,
            read_options=csv.ReadOptions(use_threads=False, block_size=block),
            parse_options=csv.ParseOptions(delimiter=max(_SEPARATORS, key=first.count), newlines_in_values=True),
            convert_options=csv.ConvertOptions(strings_can_be_null=True),
        )


class Parquet(Table):
    """One row group or many."""

    title = "a Parquet file"

    def table(self, path: Path, source: str) -> Any:
        arrow("reading Parquet files")
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:
            about = file.metadata
            check_memory(source, sum(about.row_group(place).total_byte_size for place in range(about.num_row_groups)))
            return file.read()


def guess_of(table: dict[str, Any]) -> Guess:
    """What each column of a table may be."""
    return guess({name: kind_of(column) for name, column in table.items()})
