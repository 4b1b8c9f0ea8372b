"""The paper's table 2 for this repository: make it with `phyb reproduce`, then put it into the README and the docs.

Run with: make table2 (hours on two cores; it can be stopped and goes on). The data go to results/table2.json, the
picture to docs/img/results/table2.svg, the table into the README and docs/table2.md. `--table table2-others` does the
same for the systems of the paper's other tables, on docs/table2.md alone. A table with missing runs is not published.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from pages import put_between_marks

from phyb.errors import PhybError
from phyb.reproduce.command import reproduce
from phyb.reproduce.registry import TABLES
from phyb.reproduce.tables import markdown

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--jobs", type=int, help="runs at a time")
    parser.add_argument("--out", type=Path, help="folder of the runs; by default runs/TABLE")
    parser.add_argument("--gather", action="store_true", help="train nothing")
    parser.add_argument("--table", choices=("table2", "table2-others"), default="table2")
    arguments = parser.parse_args()
    name = vars(arguments).pop("table")
    arguments.out = arguments.out or Path("runs") / name
    try:
        found = reproduce(TABLES.load(name), **vars(arguments))
    except PhybError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    if found.missing:
        sys.exit(f"Not published: runs are missing of {', '.join(found.missing)}.")
    shutil.copyfile(arguments.out / f"{name}.json", ROOT / "results" / f"{name}.json")
    shutil.copyfile(arguments.out / f"{name}.svg", ROOT / "docs" / "img" / "results" / f"{name}.svg")
    pages = [ROOT / "docs" / "table2.md", *([ROOT / "README.md"] if name == "table2" else [])]
    for page in pages:
        put_between_marks(page, {name: markdown(found)})
    print(f"Published in results/{name}.json and {', '.join(page.name for page in pages)}.")


if __name__ == "__main__":
    main()
