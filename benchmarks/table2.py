"""The paper's table 2 for this repository: make it with `phyb reproduce`, then put it into the README and the docs.

Run with: make table2 (hours on two cores; it can be stopped and goes on). The data go to results/table2.json, the
picture to docs/img/results/table2.svg, the table into the README and docs/table2.md. A table with missing runs is not
published.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from pages import put_between_marks

from phyb.errors import PhybError
from phyb.reproduce.command import reproduce
from phyb.reproduce.table2 import TABLE2
from phyb.reproduce.tables import markdown

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=TABLE2.seeds)
    parser.add_argument("--jobs", type=int, help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("runs/table2"), help="folder of the runs")
    parser.add_argument("--gather", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    try:
        found = reproduce(TABLE2, **vars(arguments))
    except PhybError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    if found.missing:
        sys.exit(f"Not published: runs are missing of {', '.join(found.missing)}.")
    picture = ROOT / "docs" / "img" / "results" / "table2.svg"
    shutil.copyfile(arguments.out / "table2.json", ROOT / "results" / "table2.json")
    shutil.copyfile(arguments.out / "table2.svg", picture)
    for page in (ROOT / "README.md", ROOT / "docs" / "table2.md"):
        put_between_marks(page, {"table2": markdown(found)})
    print("Published in results/table2.json, README.md and docs/table2.md.")


if __name__ == "__main__":
    main()
