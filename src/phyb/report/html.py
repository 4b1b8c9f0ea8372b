"""The frame of a self-contained HTML page: nothing loaded from elsewhere, light and dark colours."""

from __future__ import annotations

from phyb.report.reading import POLICY, SCRIPT
from phyb.report.style import COLORS

DARK = {
    "ink": "#e8ecf2",
    "muted": "#a7b1c0",
    "grid": "#343d4a",
    "true": "#4d9dff",
    "belief": "#ee9444",
    "optimum": "#2ee3a6",
    "behaviour": "#747981",
    "extra": "#e6b8ef",
}

_CSS = """
:root { color-scheme: light dark; --page: #f6f7f9; --paper: #ffffff; %(light)s }
@media (prefers-color-scheme: dark) { :root { --page: #12161c; --paper: #1b212a; %(dark)s } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%%; }
@media (prefers-reduced-motion: no-preference) { html { scroll-behavior: smooth; } }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main, header { max-width: 72rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 2rem; }
h1 { font-size: clamp(1.5rem, 5vw, 2.1rem); line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .6rem; }
h3 { font-size: .95rem; margin: 0 0 .4rem; }
p { margin: 0 0 .8rem; max-width: 44rem; }
header p { color: var(--muted); margin: .4rem 0 1rem; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: .25rem .9rem; margin-bottom: 1.2rem; }
nav a { color: var(--true); text-decoration: none; padding: .2rem 0; }
nav a:hover { text-decoration: underline; }
main > section { background: var(--paper); border: 1px solid var(--grid); border-radius: .7rem;
  padding: 1.2rem; margin-bottom: 1.2rem; scroll-margin-top: .6rem; }
.verdict { font-size: 1.2rem; line-height: 1.4; font-weight: 600; max-width: none; margin-bottom: 1rem;
  padding-left: .8rem; border-left: .3rem solid var(--kind); }
.verdict::before { color: var(--kind); margin-right: .5rem; }
.good { --kind: var(--optimum); } .good::before { content: "✓"; }
.caution { --kind: var(--belief); } .caution::before { content: "!"; }
.bad { --kind: var(--belief); } .bad::before { content: "✗"; }
.open { --kind: var(--behaviour); } .open::before { content: "…"; }
.after { margin-top: 1rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%%, 11rem), 1fr)); gap: .8rem; }
.card { border: 1px solid var(--grid); border-radius: .6rem; padding: .7rem .9rem; }
.card p { margin: 0; }
.card .label, .card .remark { color: var(--muted); font-size: .875rem; }
.card .value { font-size: 1.9rem; line-height: 1.3; font-weight: 650; font-variant-numeric: tabular-nums; }
.beside { display: grid; grid-template-columns: minmax(0, 1fr); gap: .4rem 2rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%%, 19rem), 1fr));
  gap: 1.4rem 1.6rem; margin: .4rem 0 1rem; }
@media (min-width: 52rem) {
  .beside { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); align-items: start; }
  .panels:has(> figure:nth-child(2):last-child) { grid-template-columns: 1fr 1fr; }
}
figure { margin: 0; min-width: 0; display: flex; flex-direction: column; justify-content: space-between; }
figure svg { display: block; width: 100%%; height: auto; max-width: 28rem; }
figure svg text { font-family: inherit !important; }
.plot { position: relative; max-width: 28rem; touch-action: pan-y; border-radius: .3rem; }
.plot:focus-visible { outline: 2px solid var(--true); outline-offset: 2px; }
.plot output { position: absolute; top: .2rem; display: grid; gap: .1rem; padding: .35rem .6rem; pointer-events: none;
  max-width: 60%%; font-size: .8rem; line-height: 1.35; color: var(--muted); background: var(--paper);
  border: 1px solid var(--grid); border-radius: .4rem; box-shadow: 0 .1rem .5rem rgb(0 0 0 / .15); }
.plot output[hidden] { display: none; }
.plot output span { display: flex; justify-content: space-between; gap: .8rem; border-left: .2rem solid var(--key);
  padding-left: .4rem; }
.plot output b { color: var(--ink); font-variant-numeric: tabular-nums; white-space: nowrap; }
.marks line { stroke: var(--muted); stroke-width: .6; }
.marks circle { stroke: var(--paper); stroke-width: 1.2; }
figcaption { font-weight: 600; font-size: .95rem; margin-bottom: .3rem; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem .9rem; margin: .15rem 0 0; padding: 0;
  font-weight: 400; font-size: .85rem; color: var(--muted); }
.legend li { display: flex; align-items: center; gap: .4rem; }
.key { width: 1.3rem; border-top: .16rem solid var(--key); flex: none; }
.key.dashed { border-top-style: dashed; }
.key.dotted { border-top-style: dotted; }
.key.bar { width: .7rem; height: .7rem; border: 0; background: var(--key); border-radius: .1rem; }
.tables { display: flex; flex-wrap: wrap; gap: 0 4rem; align-items: flex-start; }
.scroll { max-width: 100%%; overflow-x: auto; margin: .4rem 0 1rem; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid); }
th:first-child { text-align: left; padding-left: 0; position: sticky; left: 0; background: var(--paper); }
thead th { color: var(--muted); font-weight: 500; }
tbody th { font-weight: 400; }
.strong th, .strong td { font-weight: 650; }
.groups { columns: 17rem; column-gap: 2rem; }
.group { break-inside: avoid-column; margin-bottom: 1.2rem; font-size: .875rem; }
dl { margin: 0; }
.note { font-size: .85rem; color: var(--muted); max-width: none; }
dl div { display: flex; justify-content: space-between; gap: 1rem; border-bottom: 1px solid var(--grid);
  padding: .15rem 0; break-inside: avoid; }
dt { color: var(--muted); flex: 0 0 auto; max-width: 65%%; overflow-wrap: anywhere; }
dd { margin: 0; text-align: right; overflow-wrap: anywhere; min-width: 0; }
@media (max-width: 34rem) {
  main, header { padding-left: .6rem; padding-right: .6rem; }
  main > section { padding: 1rem .9rem; }
  .cards { grid-template-columns: 1fr 1fr; }
  .card { padding: .5rem .7rem; }
  .card:first-child:nth-last-child(odd) { grid-column: 1 / -1; }
  .card .value { font-size: 1.6rem; }
  table { font-size: .85rem; }
  th, td { padding: .3rem .45rem; }
}
@media print { main > section { break-inside: avoid; } nav { display: none; } }
"""


def document(title: str, header: str, body: str, css: str = "") -> str:
    """A whole page from pieces of escaped HTML; `css` adds rules of its own."""
    style = _CSS % {"light": _variables(COLORS), "dark": _variables(DARK)} + css
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<header>{header}</header>\n<main>{body}</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _variables(colors: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colors.items())
