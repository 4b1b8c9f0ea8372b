"""How far to trust a ranking of policies: sentences for the table of `phyb select`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LABELS = {
    "belief_return": "the return under the belief",
    "model_average": "the average of the models",
    "fitted_q": "fitted Q",
}
FEW = 5
"""Candidates below which a rank correlation means little."""


def advice(found: dict[str, Any]) -> list[str]:
    """Sentences on the result of `phyb.select_policies`: who leads, by how much, and the limits of the estimates."""
    rows = found["candidates"]
    lines = [*_who_leads(rows), *_pool(found), *_limits(found), *_against_reality(found)]
    return lines if len(rows) > 1 else ["There is one candidate, so nothing is ranked.", *lines]


def _who_leads(rows: Sequence[dict[str, Any]]) -> list[str]:
    if len(rows) < 2:
        return []
    first = {
        name: [row["name"] for row in rows if row["estimates"][name]["rank"] == 1] for name in rows[0]["estimates"]
    }
    if all(len(names) == len(rows) for names in first.values()):
        return ["All candidates are equal in every estimate: they are the same policy, or cannot be told apart."]
    everywhere = [row["name"] for row in rows if all(row["name"] in names for names in first.values())]
    if everywhere:
        lines = [f"All estimates put {_list(everywhere)} first."]
    else:
        views = "; ".join(f"{LABELS[name]}: {_list(names)}" for name, names in first.items())
        lines = [f"The estimates disagree on the best ({views}). The return under the belief is the conservative one."]
    for name, names in first.items():
        rivals = [row["name"] for row in rows if row["name"] not in names and _within_error(row["estimates"][name])]
        if rivals:
            lines.append(
                f"By {LABELS[name]}, {_list(names)} cannot be distinguished from {_list(rivals)}: the difference is "
                "within two standard errors."
            )
        elif len(names) < len(rows):
            lines.append(f"By {LABELS[name]}, {_list(names)} leads by more than two standard errors.")
    lines.append(f"The best of {len(rows)} noisy estimates is biased upwards: expect less.")
    return lines


def _within_error(estimate: dict[str, Any]) -> bool:
    error = estimate["behind_best_std_error"]
    return error is None or estimate["behind_best"] <= 2.0 * error


def _pool(found: dict[str, Any]) -> list[str]:
    own, runs = found["protocol"]["trained_on_pool"], {row["run"] for row in found["candidates"]}
    if not own:
        return []
    who = "All candidates were" if len(own) == len(runs) else f"{_list(own)} {'was' if len(own) == 1 else 'were'}"
    return [
        f"{who} trained on the pool used for this evaluation, and may exploit its errors. A pool that none of them "
        "has seen is fairer: train a run with another seed on the same log, and name it with --pool-of."
    ]


def _limits(found: dict[str, Any]) -> list[str]:
    discount = found["protocol"]["discount"]
    unit = "not discounted here (gamma = 1)" if discount == 1 else f"discounted (gamma = {discount:g}), so not a return"
    lines = [
        "The return under the belief is a lower bound only if the pool contains models that are as bad for the policy "
        "as the environment: see the pool's calibration in the report of its run.",
        f"Fitted Q is {unit}. It is not a bound: it extrapolates where the policy leaves the log.",
        "Standard errors cover the noise of episodes, start states and fits. They do not cover errors of the models or "
        "of extrapolation.",
    ]
    fits = [(row["name"], row["estimates"]["fitted_q"]) for row in found["candidates"]]
    moving = [name for name, fit in fits if fit["std_error"] is not None and abs(fit["drift"]) > 2 * fit["std_error"]]
    if moving:
        lines.append(f"Fitted Q had not settled for {_list(moving)}: raise --fit-steps.")
    return lines


def _against_reality(found: dict[str, Any]) -> list[str]:
    known = [row for row in found["candidates"] if row["real_return"] is not None]
    if not known:
        return ["No real return is known: nothing here was checked against a simulator."]
    lines = []
    if len({row["env_id"] for row in known}) > 1:
        lines.append("The real returns come from different simulators: do not compare them.")
    above = [row["name"] for row in known if _overestimates(row)]
    if above:
        lines.append(
            f"The return under the belief lies above the real return of {_list(above)}: it is not a bound here."
        )
    if 1 < len(known) < FEW:
        lines.append(f"A rank correlation over {len(known)} candidates means little.")
    return lines


def _overestimates(row: dict[str, Any]) -> bool:
    belief = row["estimates"]["belief_return"]
    errors = belief["std_error"], row["real_std_error"]
    if None in errors:
        return False
    return belief["mean"] > row["real_return"] + 2.0 * (errors[0] ** 2 + errors[1] ** 2) ** 0.5


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
