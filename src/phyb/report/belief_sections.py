"""Values and model disagreement over training, belief weights by rank, and the liquidation policy as a map."""

from __future__ import annotations

import numpy as np

from phyb.errors import DataError
from phyb.policy.policy import load_policy
from phyb.report.elements import Section, show_short
from phyb.report.figures import curve_panel, mean_by_rank, rank_panel
from phyb.report.policy_map import map_policy, policy_panel
from phyb.training.records import RunData, series

_CURVES = (
    ("Value targets (Q)", "return", ("q_logged", "logged rows", "true"), ("q_imagined", "imagined rows", "belief")),
    ("Whole episodes under the belief", "return less penalty", ("episode_return", "candidate policies", "belief")),
    ("Uncertainty about the next state", "log std", ("uncertainty", "pessimistic models", "extra")),
    ("Disagreement along imagined episodes", "std of the data", ("disagreement", "two models", "extra")),
)
"""Title and unit of each picture, and metric, label and colour of its curves."""


def values_and_disagreement(run: RunData) -> Section | None:
    """Q-values and the disagreement of the pessimistic subset over training."""
    lines = run.stage("policy")
    panels = [curve_panel(lines, curves, title=title, unit=unit) for title, unit, *curves in _CURVES]
    found = [panel for panel in panels if panel is not None]
    if not found:
        return None
    names = {
        "q_logged": "Q on logged rows",
        "q_imagined": "Q on imagined rows",
        "episode_return": "the return of candidate policies, less the disagreement penalty,",
        "uncertainty": "the log of the uncertainty",
        "disagreement": "the disagreement of two models about a step",
    }
    changes = [
        f"{label} went from {show_short(curve[0])} to {show_short(curve[-1])}"
        for key, label in names.items()
        if len(curve := series(lines, key)[1])
    ]
    explained = (
        "Values should level off. Values that rise while returns fall mean that the models are wrong where the policy "
        "goes. Uncertainty is the disagreement of the pessimistic models about the next state; it is low where the log "
        "has data."
    )
    if not run.has_pool:
        explained = "Values should level off. Values that rise while returns fall are wrong."
    sentences = [explained, f"In this run {'; '.join(changes)}."]
    return Section("values", "Values and uncertainty", sentences, found, short="Values")


def ranks(run: RunData) -> Section | None:
    """How the belief weighs the drawn models."""
    lines = run.stage("policy")
    panel = rank_panel(lines)
    if panel is None:
        return None
    ranked = "candidate policy" if run.is_policy_search else "imagined step"
    sentences = [
        f"For every {ranked} some models of the pool are drawn and ranked by the value they predict. The belief keeps "
        "those with the lowest values. Bars are means over the last quarter of training."
    ]
    weights, chosen = (mean_by_rank(lines, key) for key in ("weight_by_rank", "chosen_by_rank"))
    if len(weights):
        line = f"The model with the lowest value has {100 * weights[0]:.0f} % of the weight"
        line += f" and is followed in {100 * chosen[0]:.0f} % of imagined steps" if len(chosen) else ""
        positive = int(np.sum(weights > 1e-6))
        sentences.append(f"{line}; {positive} of {len(weights)} drawn models have any weight.")
    return Section("ranks", "Belief weights by rank", sentences, [panel], short="Ranks")


def policy_over_prices(run: RunData) -> Section | None:
    """The policy as a picture; for the liquidation task only."""
    if run.task is None or run.task.name != "liquidation":
        return None
    try:
        found = map_policy(load_policy(run.folder))
    except DataError:
        sentence = "There is no readable policy in the folder of this run."
        return Section("policy", "The policy", [sentence], short="Policy")
    if found is None:
        return None
    sentences = [
        "Each cell shows how much of a full holding the policy sells at a time and a price. The best policy sells "
        "everything at or above the blue boundary and nothing below it. Prices outside the dotted lines are rare.",
        f"Weighed by how likely each price is, this policy is on the right side of the boundary in "
        f"{100 * found.agreement:.1f} % of cases.",
    ]
    return Section("policy", "The policy", sentences, [policy_panel(found)], short="Policy")
