"""How far to trust a ranking of policies, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SPOKEN = {
    "belief_return": "the return under the belief",
    "model_average": "the average of the models",
    "fitted_q": "fitted Q",
}
FEW = 5
"""Candidates below which a rank correlation means little."""


def advice(found: dict[str, Any]) -> list[str]:
    """Sentences on what `phyb.select_policies` found: who leads, by how much, and what the numbers cannot say."""
    rows = found["candidates"]
    said = [*_who_leads(rows), *_pool(found), *_limits(found), *_against_reality(found)]
    return said if len(rows) > 1 else ["There is one candidate, so that nothing is ranked.", *said]


def _who_leads(rows: Sequence[dict[str, Any]]) -> list[str]:
    if len(rows) < 2:
        return []
    first = {
        name: [row["name"] for row in rows if row["estimates"][name]["rank"] == 1] for name in rows[0]["estimates"]
    }
    if all(len(names) == len(rows) for names in first.values()):
        return ["All candidates are equal in every estimate: they are the same policy, or the estimates are blind."]
    everywhere = [row["name"] for row in rows if all(row["name"] in names for names in first.values())]
    if everywhere:
        said = [f"All estimates put {_list(everywhere)} first."]
    else:
        views = "; ".join(f"{SPOKEN[name]}: {_list(names)}" for name, names in first.items())
        said = [f"The estimates disagree on the best ({views}). The belief is the cautious one of them."]
    for name, names in first.items():
        rivals = [row["name"] for row in rows if row["name"] not in names and _within_error(row["estimates"][name])]
        if rivals:
            said.append(
                f"By {SPOKEN[name]}, {_list(names)} cannot be told from {_list(rivals)}: the difference is within two "
                "standard errors."
            )
        elif len(names) < len(rows):
            said.append(f"By {SPOKEN[name]}, {_list(names)} leads by more than two standard errors.")
    said.append(f"The best of {len(rows)} estimates flatters its owner: expect less than the number says.")
    return said


def _within_error(estimate: dict[str, Any]) -> bool:
    error = estimate["behind_best_std_error"]
    return error is None or estimate["behind_best"] <= 2.0 * error


def _pool(found: dict[str, Any]) -> list[str]:
    own, runs = found["yardstick"]["trained_on_pool"], {row["run"] for row in found["candidates"]}
    if not own:
        return []
    who = "All candidates were" if len(own) == len(runs) else f"{_list(own)} {'was' if len(own) == 1 else 'were'}"
    return [
        f"{who} trained against the pool that judges here, and may have learned its mistakes. A pool that none of them "
        "has seen is fairer: train a run with another seed on the same log, and name it with --pool-of."
    ]


def _limits(found: dict[str, Any]) -> list[str]:
    discount = found["yardstick"]["discount"]
    unit = "not discounted here (gamma = 1)" if discount == 1 else f"discounted (gamma = {discount:g}), so not a return"
    said = [
        "The return under the belief is a lower bound only if the pool holds models as bad for the policy as the "
        "truth: see the pool's calibration in the report of its run.",
        f"Fitted Q is {unit}. It is no bound: it extrapolates wherever the policy leaves the log.",
        "Standard errors hold the luck of episodes, start states and fits. They do not hold what the log cannot show.",
    ]
    moving = [row["name"] for row in found["candidates"] if _moving(row["estimates"]["fitted_q"])]
    if moving:
        said.append(f"Fitted Q had not settled for {_list(moving)}: raise --fit-steps.")
    return said


def _moving(estimate: dict[str, Any]) -> bool:
    return estimate["std_error"] is not None and abs(estimate["drift"]) > 2.0 * estimate["std_error"]


def _against_reality(found: dict[str, Any]) -> list[str]:
    known = [row for row in found["candidates"] if row["real_return"] is not None]
    if not known:
        return ["No real return is known: nothing here was checked against a simulator."]
    said = []
    if len({row["env_id"] for row in known}) > 1:
        said.append("The real returns come from different simulators: do not compare them.")
    above = [row["name"] for row in known if _promises_too_much(row)]
    if above:
        said.append(f"The return under the belief lies above the real return of {_list(above)}: it is no bound here.")
    if 1 < len(known) < FEW:
        said.append(f"A rank correlation over {len(known)} candidates means little: a random order often does as well.")
    return said


def _promises_too_much(row: dict[str, Any]) -> bool:
    belief = row["estimates"]["belief_return"]
    errors = belief["std_error"], row["real_std_error"]
    if None in errors:
        return False
    return belief["mean"] > row["real_return"] + 2.0 * (errors[0] ** 2 + errors[1] ** 2) ** 0.5


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
