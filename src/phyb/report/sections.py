"""The returns of a run: table of results, learning curve, and belief against truth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from phyb.algorithms.registry import title_of
from phyb.envs.published import comparison
from phyb.envs.tasks import normalized_score
from phyb.report.elements import MISSING, Section, duration, show, table
from phyb.report.figures import curve_panel
from phyb.training.records import RunData, mapping, number, series

CRITICS_MAY_BE_OFF = 0.15
"""Share of the discounted return under the belief by which the learned value may differ before the report says so."""


def _score(run: RunData, value: float | None) -> float | None:
    return None if value is None or run.task is None else normalized_score(run.task, value)


def results(run: RunData) -> Section | None:
    """The table of results and the time each stage took."""
    if not run.result:
        return None
    get = {key: number(value) for key, value in run.result.items()}.get
    optimum = get("optimal_return")

    def row(name: str, value: float | None, error: float | None = None, tail: float | None = None) -> list[str]:
        regret = None if optimum is None or value is None else optimum - value
        return [name, *(show(each, 2) for each in (_score(run, value), value, error, tail, regret))]

    rows = [row("this policy", get("mean_return"), get("std_error"), get("cvar_10"))]
    if run.has_pool:
        rows.append(row("under its belief", get("belief_return"), get("belief_std_error")))
        if get("mean_return") is None:
            rows = [["this policy under its belief", *rows[1][1:]]]
    rows += [row("optimum", optimum)] if optimum is not None else []
    rules = mapping(run.result.get("rules"))
    others = [("behaviour, in the log", get("behaviour_return"))]
    others += [(f"rule: {name}", number(mapping(rule).get("mean_return"))) for name, rule in rules.items()]
    known = sorted(((-value, name) for name, value in others if value is not None))
    rows += [row(name, -value) for value, name in known]
    theirs = title_of(run.algorithm)
    scored = get("mean_return") is not None and run.task is not None
    published = comparison(run.name, theirs) if scored else None
    if published is not None:
        rows.append([f"the paper's {theirs}", published[0], *[MISSING] * 4])
    head = ["", "score", "mean return", "std. error", "CVaR 10 %", "regret"]
    kept = [0] + [i for i in range(1, len(head)) if any(each[i] != MISSING for each in rows)]
    if len(kept) == 1:
        return None
    html = table([head[i] for i in kept], [[each[i] for i in kept] for each in rows], strong=0, label="Results")
    notes = {
        1: "scores of 0 and 100 are the reference returns of the task",
        4: "CVaR 10 % is the mean of the worst tenth of episodes",
        5: "regret is the return lost against the optimum",
    }
    note = "; ".join(words for column, words in notes.items() if column in kept)
    tables = f'<div class="tables">{html}{_times(run)}</div>'
    sentences = [f"How to read it: {note}."] if note else []
    sentences += [f"The paper's {theirs}: {published[1]}."] if published is not None else []
    return Section("results", "Results", sentences, html=tables)


def _times(run: RunData) -> str:
    seconds = {name: number(value) for name, value in mapping(run.result.get("wall_seconds")).items()}
    known = {name: value for name, value in seconds.items() if value is not None}
    total = sum(known.values())
    if total <= 0:
        return ""
    lines = [[name, duration(value), f"{100 * value / total:.0f} %"] for name, value in known.items()]
    return table(["stage", "wall time", "share"], [*lines, ["total", duration(total), ""]], label="Wall time")


def learning_curve(run: RunData) -> Section | None:
    """Score over training beside the optimum and the behaviour policy."""
    lines = run.stage("evaluation")
    scored = run.task is not None and len(series(lines, "normalized_score")[0]) > 0
    metric, unit = ("normalized_score", "score") if scored else ("true_return", "return")
    steps, values = series(lines, metric)
    if not len(values):
        return None
    in_unit = (lambda value: _score(run, value)) if scored else (lambda value: value)
    optimum, behaviour = (in_unit(number(run.result.get(key))) for key in ("optimal_return", "behaviour_return"))
    marks = [("optimum", optimum, "optimum"), ("behaviour", behaviour, "behaviour")]
    draw = partial(
        curve_panel,
        curves=[(metric, "this policy", "true")],
        unit=unit,
        spread={metric: "true_std_error"},
        spread_scale=(in_unit(1.0) or 0.0) - (in_unit(0.0) or 0.0),
    )
    panels = [draw(lines, title=f"True {unit} during training", levels=marks)]
    late = values[steps >= 0.5 * steps[-1]]
    if len(late) >= 4 and np.ptp(late) < 0.25 * np.ptp(values):
        end = [line for line in lines if float(line["step"]) >= 0.5 * steps[-1]]
        panels.append(draw(end, title="The second half, enlarged", levels=marks[:1]))
    best = int(np.argmax(values))
    seen = (
        "it is also the best one seen."
        if best == len(values) - 1
        else f"the best seen on the way was {show(values[best])} after {steps[best]:,.0f} updates."
    )
    sentences = [
        "Each point is the policy at that moment, run in the simulator; the band is two standard errors.",
        f"This run went from {show(values[0])} to {show(values[-1])} in {steps[-1]:,.0f} updates. The last policy "
        f"is the one that counts; {seen}",
    ]
    return Section("learning", "Learning curve", sentences, [panel for panel in panels if panel], short="Learning")


def belief_against_truth(run: RunData) -> Section | None:
    """Return under the belief beside the true return over training."""
    lines = run.stage("evaluation")
    if not run.has_pool:
        return None
    simulated = len(series(lines, "true_return")[0]) > 0
    curves = [("true_return", "true return", "true"), ("belief_return", "return under the belief", "belief")]
    if not run.is_policy_search:  # which learns no value
        curves.append(("start_value", "learned value of start states", "extra"))
    panel = curve_panel(
        lines,
        curves,
        title="Return under the belief" + (" and true return" if simulated else ""),
        unit="return",
        levels=[("optimum", number(run.result.get("optimal_return")), "optimum")],
        spread={"true_return": "true_std_error", "belief_return": "belief_std_error"},
    )
    if panel is None:
        return None
    pairs = []
    for line in lines:
        belief, true = number(line.get("belief_return")), number(line.get("true_return"))
        errors = (number(line.get(key)) or 0.0 for key in ("true_std_error", "belief_std_error"))
        if belief is not None and true is not None:
            pairs.append((belief, true, 2.0 * math.hypot(*errors)))
    sentences = ["If the belief is conservative, the return under the belief is at most the true return."]
    if pairs:
        held = sum(belief <= true + margin for belief, true, margin in pairs)
        sentences.append(
            f"This held in {held} of {len(pairs)} evaluations, within two standard errors; in the last one the return "
            f"under the belief was {show(pairs[-1][0])} and the true return {show(pairs[-1][1])}."
        )
        belief, true, margin = pairs[-1]
        meaning = "pessimism" if true >= belief else "overestimation"
        largest = max((abs(true - belief) for belief, true, _ in pairs))
        sentences.append(
            f"The gap at the end, {show(abs(true - belief), 2)} ± {show(0.5 * margin, 2)}, is {meaning}; the largest "
            f"gap on the way was {show(largest, 2)}."
        )
    estimates = series(lines, "belief_return")[1]
    if len(estimates) and not pairs:
        sentences.append(f"It went from {show(estimates[0])} to {show(estimates[-1])}; the true return is not known.")
    sentences += _critics_against_belief(run, lines)
    return Section(
        "belief", "Belief against truth" if simulated else "Return under the belief", sentences, [panel], short="Belief"
    )


def _critics_against_belief(run: RunData, lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether the learned value of start states agrees with the discounted return of episodes under the belief."""
    if run.is_policy_search:
        return ["This algorithm evaluates policies by whole episodes and learns no critics."]
    value, earned = (number(lines[-1].get(key)) for key in ("start_value", "belief_discounted"))
    if value is None or earned is None:
        return []
    text = f"The learned value of start states is {show(value)}; the discounted return under the belief {show(earned)}"
    gap = (value - earned) / max(abs(earned), 1e-9)
    if abs(gap) <= CRITICS_MAY_BE_OFF:
        return [f"{text}: they agree."]
    sentences = [f"{text}: the critics are {abs(gap):.0%} too {'high' if gap > 0 else 'low'}."]
    if "critic_vote" in mapping(mapping(run.config.get("settings")).get("agent")):
        sentences.append(
            "Raise --target-rate, or evaluate longer before improving (--evaluation-steps); if the critics stay too "
            "low, try --critic-vote mean."
        )
    return sentences
