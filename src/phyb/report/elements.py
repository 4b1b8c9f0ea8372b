"""Pieces of HTML. Whatever comes from a run is escaped here, and nowhere else."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from phyb.report.style import Key, Panel

MISSING = "–"


@dataclasses.dataclass(frozen=True)
class Section:
    """One part of the page: a title, a few sentences, pictures, and tables already written as HTML."""

    id: str
    title: str
    sentences: Sequence[str]
    panels: Sequence[Panel] = ()
    html: str = ""
    short: str = ""
    """Name in the list of contents, if the title is too long for it."""


def show(value: float | None, digits: int = 1, suffix: str = "") -> str:
    """A number with thousands separators, or a dash."""
    return MISSING if value is None else f"{value:,.{digits}f}{suffix}".replace("-", "\u2212")


def show_short(value: float | None) -> str:
    """Three significant digits, or a dash."""
    return MISSING if value is None else f"{value:.3g}".replace("-", "\u2212")


def duration(seconds: float | None) -> str:
    """Seconds as 12.3 s, 4 min 5 s or 2 h 10 min."""
    if seconds is None:
        return MISSING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, strong: int | None = None, label: str) -> str:
    """A table that scrolls on its own on a narrow screen; the first column names the row."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = ""
    for number, (first, *rest) in enumerate(rows):
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        kind = ' class="strong"' if number == strong else ""
        body += f'<tr{kind}><th scope="row">{escape(first)}</th>{cells}</tr>'
    return (
        f'<div class="scroll" role="region" aria-label="{escape(label)}" tabindex="0">'
        f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def settings_block(title: str, values: Mapping[str, Any]) -> str:
    """A titled list of names and values."""
    rows = "".join(
        f"<div><dt>{escape(str(name))}</dt><dd>{escape(plain(value))}</dd></div>" for name, value in values.items()
    )
    return f'<section class="group"><h3>{escape(title)}</h3><dl>{rows}</dl></section>'


def plain(value: Any) -> str:
    """A setting as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(plain(item) for item in value) or "none"
    return "none" if value is None else str(value)


def cards(items: Sequence[tuple[str, str, str]]) -> str:
    """Large numbers: (label, value, remark)."""
    return (
        '<div class="cards">'
        + "".join(
            f'<div class="card"><p class="label">{escape(label)}</p><p class="value">{escape(value)}</p>'
            f'<p class="remark">{escape(remark)}</p></div>'
            for label, value, remark in items
        )
        + "</div>"
    )


def legend(keys: Sequence[Key]) -> str:
    """What the lines and bars of a picture stand for."""
    items = "".join(
        f'<li><span class="key {key.style}" style="--key: var(--{key.color})"></span>{escape(key.label)}</li>'
        for key in keys
    )
    return f'<ul class="legend">{items}</ul>' if items else ""


def figure(panel: Panel, *, with_legend: bool = True) -> str:
    """A picture with its title and legend."""
    keys = legend(panel.legend) if with_legend else ""
    svg = panel.svg.replace("<svg ", f'<svg role="img" aria-label="{escape(panel.alt)}" ', 1)
    if panel.curves:
        title, curves = escape(f"Values of {panel.title}, by arrow keys"), escape(panel.curves)
        svg = (
            f'<div class="plot" tabindex="0" role="group" aria-label="{title}" data-curves="{curves}">{svg}'
            '<output aria-live="polite" hidden></output></div>'
        )
    return f"<figure><figcaption>{escape(panel.title)}{keys}</figcaption>{svg}</figure>"


def section(part: Section) -> str:
    """A whole section; one picture stands beside its text on a wide screen, a shared legend above all."""
    prose = "".join(f"<p>{escape(sentence)}</p>" for sentence in part.sentences)
    legends = {tuple(panel.legend) for panel in part.panels}
    shared = len(part.panels) > 1 and len(legends) == 1
    pictures = "".join(figure(panel, with_legend=not shared) for panel in part.panels)
    if len(part.panels) == 1:
        body = f'<div class="beside"><div>{prose}</div>{pictures}</div>{part.html}'
    else:
        body = prose + (legend(part.panels[0].legend) if shared else "")
        body += (f'<div class="panels">{pictures}</div>' if pictures else "") + part.html
    return f'<section id="{escape(part.id)}"><h2>{escape(part.title)}</h2>{body}</section>'
