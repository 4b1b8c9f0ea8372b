"""Every table by its name. A new one is one file with a `Table`, and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyb.registry import Registry

if TYPE_CHECKING:
    from phyb.reproduce.table import Table

TABLES: Registry[Table] = Registry(
    "table",
    {"table2": "phyb.reproduce.table2:TABLE2", "table2-others": "phyb.reproduce.table2:OTHERS"},
    base="phyb.reproduce.table:Table",
)
"""What `phyb reproduce` makes."""
