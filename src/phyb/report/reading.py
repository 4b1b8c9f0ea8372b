"""Curves that can be read: their values travel with the picture, and a few lines of script show the one pointed at."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

Curve = tuple[str, str, np.ndarray, np.ndarray]
"""Label, colour, and the coordinates of the points."""


def reading(axes: Axes, x_label: str, curves: Sequence[Curve]) -> str:
    """The points of drawn curves as JSON, with the map from values to the coordinates of the SVG.

    The coordinate of a value v is `at + per * v`, on a logarithmic axis `at + per * log(v)`. To be called after the
    picture was written: only then its layout is final.
    """
    rows = [
        (label, color, _short(x[seen]), _short(y[seen])) for label, color, x, y in curves if np.any(seen := _seen(x, y))
    ]
    return json.dumps(
        {"label": x_label, "x": _scale(axes, 0), "y": _scale(axes, 1), "curves": rows}, separators=(",", ":")
    )


def _seen(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.isfinite(x) & np.isfinite(y)


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def _scale(axes: Axes, which: int) -> dict[str, float | bool]:
    """How one axis maps values to points of the SVG, whose vertical axis points down."""
    low, high = (axes.get_xlim, axes.get_ylim)[which]()
    log = (axes.get_xscale, axes.get_yscale)[which]() == "log"
    figure = axes.get_figure(root=True)
    assert figure is not None
    corners = axes.transData.transform([(axes.get_xlim()[i], axes.get_ylim()[i]) for i in (0, 1)]) * 72.0 / figure.dpi
    first, last = corners[:, which] if which == 0 else 72.0 * figure.get_figheight() - corners[:, which]
    start, end = (np.log(low), np.log(high)) if log else (low, high)
    per = (last - first) / (end - start)
    numbers = {"at": first - per * start, "per": per, "first": first, "last": last}
    return {"log": log} | {name: float(f"{value:.7g}") for name, value in numbers.items()}


SCRIPT = """
for (const plot of document.querySelectorAll(".plot")) {
  const data = JSON.parse(plot.dataset.curves), svg = plot.querySelector("svg");
  const place = (axis, value) => axis.at + axis.per * (axis.log ? Math.log(value) : value);
  const words = value => value.toLocaleString("en-GB", { maximumSignificantDigits: 5 }).replace("-", "\\u2212");
  const curves = data.curves.map(([label, color, xs, ys]) =>
    ({ label, color, points: xs.map((x, i) => ({ x, y: ys[i], left: place(data.x, x), top: place(data.y, ys[i]) })) }));
  const stops = [...new Map(curves.flatMap(each => each.points).map(point => [point.x, point.left]))]
    .sort((one, other) => one[1] - other[1]);
  if (!stops.length) continue;
  const add = (parent, name, attributes = {}) => {
    const made = document.createElementNS(svg.namespaceURI, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    return parent.appendChild(made);
  };
  const marks = add(svg, "g", { class: "marks" }), box = plot.querySelector("output");
  const width = svg.viewBox.baseVal.width;
  let current = -1;
  const hide = () => { current = -1; marks.replaceChildren(); box.hidden = true; };
  const show = wanted => {
    if (wanted === current) return;
    current = wanted;
    const [x, left] = stops[current];
    marks.replaceChildren();
    box.replaceChildren(`${data.label} ${words(x)}`);
    add(marks, "line", { x1: left, x2: left, y1: data.y.first, y2: data.y.last });
    for (const { label, color, points } of curves) {
      const near = points.reduce((best, each) => Math.abs(each.left - left) < Math.abs(best.left - left) ? each : best);
      if (Math.abs(near.left - left) > 0.02 * width) continue;
      add(marks, "circle", { cx: near.left, cy: near.top, r: 3.5, style: `fill: var(--${color})` });
      const row = document.createElement("span"), value = document.createElement("b");
      row.style.setProperty("--key", `var(--${color})`);
      value.textContent = words(near.y);
      row.append(label, value);
      box.append(row);
    }
    box.hidden = false;
    const share = 100 * left / width;
    box.style.left = share < 50 ? `calc(${share}% + .6rem)` : "auto";
    box.style.right = share < 50 ? "auto" : `calc(${100 - share}% + .6rem)`;
  };
  const follow = event => {
    const frame = svg.getBoundingClientRect(), left = (event.clientX - frame.left) / frame.width * width;
    const far = index => Math.abs(stops[index][1] - left);
    show(stops.reduce((best, _, index) => far(index) < far(best) ? index : best, 0));
  };
  plot.addEventListener("pointermove", follow);
  plot.addEventListener("pointerdown", follow);
  plot.addEventListener("pointerleave", event => event.pointerType === "mouse" && hide());
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", event => {
    const last = stops.length - 1, from = current < 0 ? last : current;
    const next = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") hide();
    if (next === undefined) return;
    event.preventDefault();
    show(Math.min(last, Math.max(0, next)));
  });
}
"""
"""Pointer, finger or arrow keys show the values at one place of the horizontal axis."""

POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src 'unsafe-inline'; script-src "
    f"'sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}'"
)
"""What the browser lets the page do: run this script and no other, and load nothing."""
