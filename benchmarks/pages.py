"""Tables in the documentation, between marks that benchmarks find again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from phyb.storage.files import write_bytes


def put_between_marks(page: Path, texts: Mapping[str, str]) -> None:
    """Replace what stands between `<!-- NAME -->` and the next `<!-- end -->`, for every name, or change nothing."""
    content = page.read_text(encoding="utf-8")
    for name, text in texts.items():
        place = rf"(?s)(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)"
        content, count = re.subn(place, lambda found, text=text: f"{found[1]}{text.strip()}\n{found[2]}", content)
        if count != 1:
            raise SystemExit(
                f"{page}: found {count} places for {name}, expected 1 between <!-- {name} --> and <!-- end -->"
            )
    write_bytes(page, content.encode())
