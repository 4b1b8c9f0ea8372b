"""How good the models were and how training went: the second half of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from phyb.report.elements import MISSING, Section, settings_block, show, show_short, table
from phyb.report.figures import training_panels
from phyb.report.pool_figures import calibration_panel, disagreement_panel, growth_panel, worst_calibrated
from phyb.training.records import Record, RunData, mapping, number, numbers, records, series, text

MAX_PANELS = 6


def calibration(run: RunData) -> Section | None:
    """Whether predicted errors match observed ones: one picture per output, and a table of all of them."""
    dimensions = records(run.diagnostics.get("dimensions"))
    if not run.has_pool:
        return None
    if not dimensions:
        return Section("pool", "Pool: calibration", ["This run has no diagnostics of its pool."], short="Pool")
    drawn = [d for d in dimensions if records(d.get("bins"))]
    panels = [calibration_panel(d, _name(run, d)) for d in worst_calibrated(drawn, MAX_PANELS)]
    sentences = [
        *_verdict(run),
        "Hold-out rows are grouped by the error the pool predicts for them. Points above the diagonal are "
        "over-confident, the error is larger than predicted; points below are over-cautious.",
        _calibration_summary(run, dimensions),
    ]
    if len(drawn) > MAX_PANELS:
        sentences.append(f"Shown are the {MAX_PANELS} outputs farthest from calibrated, of {len(drawn)}.")
    ends = mapping(run.diagnostics.get("termination"))
    if ends:
        sentences.append(_ends_summary(ends))
    found = [panel for panel in panels if panel is not None]
    html = _one_step_table(run, dimensions)
    return Section("pool", "Pool: calibration", sentences, found, html, short="Pool")


def _verdict(run: RunData) -> list[str]:
    """The verdict on the pool before policy training, as one paragraph."""
    verdict = run.diagnostics.get("verdict")
    words = " ".join(filter(None, map(text, verdict))) if isinstance(verdict, list) else ""
    for name in filter(None, (text(each.get("name")) for each in records(run.diagnostics.get("dimensions")))):
        words = words.replace(name, run.dimension_name(name))
    return [words] if words else []


def disagreement(run: RunData) -> Section | None:
    """Whether the models' disagreement predicts their error."""
    bins = run.diagnostics.get("disagreement_bins", run.diagnostics.get("doubt_bins"))
    panel = disagreement_panel(bins)
    if panel is None:
        return None
    sentences = [
        "Hold-out rows are grouped by how much the models disagree about them; 1 is the error of predicting no change. "
        "Pessimism relies on disagreement, so the error should rise with it. Points lie above the dashed line where "
        "the environment is noisy, or where all models make the same error."
    ]
    errors = [number(group.get("observed_rmse")) for group in records(bins)]
    warns = number(run.diagnostics.get("spread_error_correlation"))
    if len(errors) > 1 and errors[0] and errors[-1] is not None:
        rank = f"; the rank correlation over all rows is {show(warns, 2)}" if warns is not None else ""
        sentences.append(
            f"Where they disagree most the error is {show(errors[-1] / errors[0], 1)} times that where they disagree "
            f"least{rank}."
        )
    return Section("disagreement", "Pool: disagreement against error", sentences, [panel], short="Disagreement")


def _name(run: RunData, dimension: Record) -> str:
    return run.dimension_name(text(dimension.get("name")))


def _percent(value: float | None) -> str:
    return show(None if value is None else 100.0 * value, 1, " %")


def _calibration_summary(run: RunData, dimensions: list[Record]) -> str:
    squares = [(_name(run, d), number(d.get("standardised_squared_error"))) for d in dimensions]
    over = [name for name, square in squares if square is not None and square > 1.5]
    exact = [_name(run, d) for d in dimensions if d.get("exact") is True]
    rows, episodes, warns = (
        number(run.diagnostics.get(key)) for key in ("rows", "episodes", "spread_error_correlation")
    )
    verdict = f"is over-confident about {', '.join(over)}" if over else "is nowhere over-confident"
    words = [f"On {show(rows, 0)} rows of {show(episodes, 0)} hold-out episodes the pool {verdict}"]
    if exact:
        words.append(f"it predicts {', '.join(exact)} exactly")
    if warns is not None:
        words.append(f"the models' disagreement and the true error have a rank correlation of {show(warns, 2)}")
    return "; ".join(words) + "."


def _ends_summary(ends: Record) -> str:
    kind = "a rule on imagined successors" if ends.get("kind") == "rule" else "the learned head"
    parts = {
        "precision": "{} of the foreseen ends happened (precision)",
        "recall": "{} of the ends were foreseen (recall)",
        "false_end_rate": "on rows that went on an end was predicted with {} on average",
        "worst_member_false_end_rate": "and with {} by the model that predicts most ends",
    }
    known = [
        words.format(_percent(value)) for key, words in parts.items() if (value := number(ends.get(key))) is not None
    ]
    return f"Ends of episodes, by {kind}: {', '.join(known)}." if known else "Ends of episodes could not be evaluated."


def _one_step_table(run: RunData, dimensions: list[Record]) -> str:
    errors = {"trivial_rmse": "trivial error", "member_rmse": "one model", "pool_rmse": "pool mean"}
    shares = {"share_explained": "explained", "coverage_50": "in 50 %", "coverage_90": "in 90 %"}
    others = {"standardised_squared_error": "mean z²", "spread_error_correlation": "disagreement ~ error"}

    def row(dimension: Record) -> list[str]:
        found = {key: number(dimension.get(key)) for key in (*errors, *shares, *others)}
        if dimension.get("exact") is True:
            found |= {"member_rmse": 0.0, "pool_rmse": 0.0}
        cells = [show_short(found[key]) for key in errors] + [_percent(found[key]) for key in shares]
        return [_name(run, dimension), *cells, *(show_short(found[key]) for key in others)]

    head = ["one step ahead", *errors.values(), *shares.values(), *others.values()]
    note = (
        '<p class="note">trivial: no change, and the mean reward. explained: share of the trivial squared '
        "error that the pool removes; the rest may be noise of the environment. in 50 %, in 90 %: outcomes inside the "
        "central interval that should hold so many. mean z²: squared error over predicted variance, 1 when calibrated. "
        "disagreement ~ error: rank correlation of the models' disagreement with the absolute error.</p>"
    )
    return table(head, [row(d) for d in dimensions], label="One-step errors and calibration") + note


def error_growth(run: RunData) -> Section | None:
    """Error of imagined rollouts against their length."""
    rollouts = mapping(run.diagnostics.get("rollouts"))
    lengths = numbers(rollouts.get("lengths"))
    if not len(lengths) or not np.all(lengths > 0):
        return None
    overall, dimensions = mapping(rollouts.get("overall")), records(rollouts.get("dimensions"))
    exact = {text(d.get("name")) for d in records(run.diagnostics.get("dimensions")) if d.get("exact") is True}
    shown = [d for d in dimensions[-1:] + dimensions[:-1] if text(d.get("name")) not in exact]
    panels = [growth_panel(lengths, overall, "all observations, standardised", "RMSE / std")]
    panels += [growth_panel(lengths, d, _name(run, d)) for d in shown]
    found = [panel for panel in panels if panel is not None][:MAX_PANELS]
    if not found:
        return None
    sentences = [
        "The models replay the logged actions from hold-out starts, without the logged states. In a noisy environment "
        "no prediction is exact, and a sampled rollout adds noise of its own. Below the dashed line the pool is better "
        "than predicting no change."
    ]
    ends = [numbers(overall.get(kind)) for kind in ("mean", "sampled", "trivial")]
    if all(len(curve) == len(lengths) and np.isfinite(curve[-1]) for curve in ends):
        mean, sampled, trivial = (float(curve[-1]) for curve in ends)
        sentences.append(
            f"After {lengths[-1]:.0f} steps the mean of the models is off by {mean:.2f} standard deviations of "
            f"the data, a sampled rollout by {sampled:.2f}, and the trivial prediction by {trivial:.2f}."
        )
    if exact and dimensions:
        sentences.append(
            f"Outputs predicted exactly are left out: {', '.join(map(run.dimension_name, sorted(exact)))}."
        )
    return Section("rollouts", "Pool: error against rollout length", sentences, found, short="Rollouts")


def training(run: RunData) -> Section | None:
    """Losses, divergence, step size and the state of imagination."""
    agent = mapping(mapping(run.config.get("settings")).get("agent"))
    by_target = agent.get("step_size_rule", "target") == "target"
    lines = run.stage("policy")
    target = number(agent.get("target_divergence")) if by_target else None
    panels = training_panels(lines, run.stage("pool"), target)
    if not panels:
        return None
    sentences = ["Losses should fall and settle."]
    if len(series(lines, "divergence")[1]):
        sentences[0] += (
            " The divergence is the distance of each mirror step from the reference policy, and the step size is its "
            "price. Imagined steps outside the data should stay rare."
        )
    outside, ended = (series(lines, key)[1] for key in ("outside_data", "imagined_end"))
    if len(outside) and len(ended):
        sentences.append(
            f"At the end {100 * outside[-1]:.2f} % of imagined steps leave the range of the data and "
            f"{100 * ended[-1]:.1f} % end an episode."
        )
    return Section("training", "Training diagnostics", sentences, panels, short="Training")


def settings(run: RunData) -> Section:
    """Every setting, grouped, and the versions that ran."""
    config = run.config
    keys = ("task", "algorithm", "preset", "seed", "env_id", "format")
    groups: dict[str, Mapping[str, Any]] = {"run": {key: config[key] for key in keys if key in config}}
    for title in ("resolved", "data"):
        groups |= _flatten(title, mapping(config.get(title)))
    for title, values in mapping(config.get("settings")).items():
        groups |= _flatten(title, values if isinstance(values, dict) else {title: values})
    groups["versions"] = mapping(config.get("versions")) or mapping(run.result.get("versions"))
    html = "".join(settings_block(title, values) for title, values in groups.items() if values)
    count = sum(len(values) for title, values in groups.items() if title not in ("run", "data", "versions"))
    sentences = [f"{count} settings; phyb train --help says what raising and lowering each of them does."]
    if run.damaged_lines:
        sentences.append(f"Lines of metrics.jsonl that could not be read and were left out: {run.damaged_lines}.")
    body = f'<div class="groups">{html or MISSING}</div>'
    return Section("settings", "Settings and versions", sentences, html=body, short="Settings")


def _flatten(title: str, values: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """One group per nested object, named by its way down."""
    groups: dict[str, Mapping[str, Any]] = {title: {k: v for k, v in values.items() if not isinstance(v, dict)}}
    for name, inner in values.items():
        if isinstance(inner, dict):
            groups |= _flatten(f"{title} · {name}", inner)
    return groups
