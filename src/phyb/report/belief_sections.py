"""What the algorithm believed and learned to do: values and doubt, ranks of models, and the policy as a map."""

from __future__ import annotations

import numpy as np

from phyb.errors import DataError
from phyb.policy.policy import load_policy
from phyb.report.elements import Section, show_short
from phyb.report.figures import curve_panel, mean_by_rank, rank_panel
from phyb.report.policy_map import map_policy, policy_panel
from phyb.report.source import RunData, series


def values_and_doubt(run: RunData) -> Section | None:
    """Q-values and the disagreement of the pessimistic subset over training."""
    lines = run.stage("policy")
    values = [("q_logged", "logged rows", "true"), ("q_imagined", "imagined rows", "belief")]
    doubt = [("uncertainty", "pessimistic models", "extra")]
    tried, apart = [("episode_return", "candidate policies", "belief")], [("disagreement", "two models", "extra")]
    panels = [
        curve_panel(lines, values, title="Value targets (Q)", unit="return"),
        curve_panel(lines, tried, title="Whole episodes under the belief", unit="return less penalty"),
        curve_panel(lines, doubt, title="Uncertainty about the next state", unit="log std"),
        curve_panel(lines, apart, title="Disagreement along imagined episodes", unit="std of the data"),
    ]
    found = [panel for panel in panels if panel is not None]
    if not found:
        return None
    names = {
        "q_logged": "Q on logged rows",
        "q_imagined": "Q on imagined rows",
        "episode_return": "what candidate policies earn, less the disagreement penalty,",
        "uncertainty": "the log of the uncertainty",
        "disagreement": "the disagreement of two models about a step",
    }
    changes = [
        f"{label} went from {show_short(curve[0])} to {show_short(curve[-1])}"
        for key, label in names.items()
        if len(curve := series(lines, key)[1])
    ]
    explained = [
        "Values should level off; values that keep rising while returns fall mean that the imagined world is "
        "wrong where the policy goes. Uncertainty is the disagreement of the pessimistic models about the next "
        "state: it falls when the policy stays where the log knows the answer."
    ]
    if not run.has_pool:
        explained = ["Values should level off; values that keep rising while returns fall are not to be believed."]
    sentences = [
        *explained,
        f"In this run {'; '.join(changes)}.",
    ]
    return Section("values", "Values and uncertainty", sentences, found, short="Values")


def ranks(run: RunData) -> Section | None:
    """Which of the drawn models the belief listens to."""
    lines = run.stage("policy")
    panel = rank_panel(lines)
    if panel is None:
        return None
    asked = "policy tried" if run.judged_by_episodes else "imagined step"
    sentences = [
        f"For every {asked} some models of the pool are drawn and ranked by what they promise; the belief keeps those "
        "that promise least. Bars are means over the last quarter of training."
    ]
    weights, chosen = (mean_by_rank(lines, key) for key in ("weight_by_rank", "chosen_by_rank"))
    if len(weights):
        line = f"Here the model that promises least carries {100 * weights[0]:.0f} % of the weight"
        line += f" and is followed in {100 * chosen[0]:.0f} % of imagined steps" if len(chosen) else ""
        heard = int(np.sum(weights > 1e-6))
        sentences.append(f"{line}; {heard} of {len(weights)} drawn models have any weight.")
    return Section("ranks", "Whom the belief listens to", sentences, [panel], short="Ranks")


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
        "Each cell shows how much of a full holding the policy sells at a time and a price. The best policy "
        "sells everything at or above the blue boundary and nothing below it; outside the dotted lines prices "
        "are rare, and what is painted there hardly matters.",
        f"Weighed by how likely each price is, this policy is on the right side of the boundary in "
        f"{100 * found.agreement:.1f} % of cases.",
    ]
    return Section("policy", "The policy", sentences, [policy_panel(found)], short="Policy")
