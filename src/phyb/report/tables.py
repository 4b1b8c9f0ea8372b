"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from phyb.algorithms.registry import ALGORITHMS, load
from phyb.envs.oracle import rule_return, solve, stopping_return
from phyb.envs.rules import RULES
from phyb.envs.tasks import find_task, normalized_score
from phyb.training.result_table import number

SHOWN_LENGTHS = (1, 5, 20, 100)
"""Rollout lengths shown before the policy is trained; the report has all of them."""


def algorithm_table() -> Table:
    """What `phyb algorithms` shows."""
    table = Table("--algorithm", "what it does", "family", "learns models", "paper", title_justify="left")
    for name, entry in ALGORITHMS.items():
        pool, own = load(name).needs_pool, entry.family == "model-based"
        models = "yes, a pool" if pool else "yes, its own" if own else "no"
        family = "model-based" if pool else entry.family
        table.add_row(name, f"{entry.title}: {entry.line}", family, models, entry.reference)
    return table


def pool_table(found: Mapping[str, Any]) -> Table:
    """The accuracy of a pool, shown before a policy is trained on it, from the content of diagnostics.json."""
    title = f"pool: {found['members']} models on {found['rows']:,} rows of {found['episodes']:,} hold-out episodes"
    table = Table("", title=title, title_justify="left")
    for name in ("pool", "to compare with"):
        table.add_column(name, justify="right")
    share = found["share_explained"]
    table.add_row("one step: error / trivial error", number(None if share is None else (1.0 - share) ** 0.5), "1.00")
    table.add_row("one step: explained", _percent(share), "0.0 %", end_section=True)
    for wanted in (50, 90):
        covered = [each[f"coverage_{wanted}"] for each in found["dimensions"] if each[f"coverage_{wanted}"] is not None]
        mean, low, high = (sum(covered) / len(covered), min(covered), max(covered)) if covered else (None, None, None)
        cell = f"{_percent(mean)} ({_percent(low)} to {_percent(high)})" if covered else _percent(None)
        table.add_row(f"inside its {wanted} % interval (range)", cell, f"{wanted} %", end_section=wanted == 90)
    rollouts, ends = found["rollouts"], found["termination"] or {}
    shown = [n for n in rollouts["lengths"] if n in SHOWN_LENGTHS or n == rollouts["lengths"][-1]]
    for length in shown:
        place, steps = rollouts["lengths"].index(length), "1 step" if length == 1 else f"{length} steps"
        mean, trivial = (number(rollouts["overall"][kind][place]) for kind in ("mean", "trivial"))
        table.add_row(f"error after {steps} (data std)", mean, f"trivial {trivial}", end_section=length == shown[-1])
    for name in ("precision", "recall"):
        if name in ends:
            table.add_row(f"ends of episodes: {name}", _percent(ends[name]), "100 %")
    table.caption, table.caption_justify = " ".join(found["verdict"]), "left"
    return table


def evaluation_table(found: dict[str, Any]) -> Table:
    """What `phyb evaluate` shows."""
    table = Table("", title=f"{found['env_id']}, {found['episodes']:,} episodes", title_justify="left")
    table.add_column("", justify="right")
    for label, key in (
        ("normalised score", "normalized_score"),
        ("  95 % interval", "normalized_interval_95"),
        ("mean return", "mean_return"),
        ("  95 % interval", "interval_95"),
        ("  standard error", "std_error"),
        ("CVaR at 10 %", "cvar_10"),
        ("regret against the optimum", "regret"),
        ("lowest", "min"),
        ("highest", "max"),
    ):
        value = found[key]
        table.add_row(label, " to ".join(map(number, value)) if isinstance(value, tuple) else number(value))
    table.caption, table.caption_justify = "intervals over episodes of this one policy", "left"
    return table


def selection_table(found: dict[str, Any]) -> Table:
    """What `phyb select` shows: every candidate's estimates and ranks, and how the ranks agree with real returns."""
    table = Table("candidate", title="policies, best under the belief first", title_justify="left")
    discounted = "fitted Q" if found["protocol"]["discount"] == 1 else "fitted Q (discounted)"
    titles = {"belief_return": "under the belief", "model_average": "average of models", "fitted_q": discounted}
    real = found["real_returns_known"] > 0
    for title in (*titles.values(), *(("real return",) if real else ())):
        table.add_column(title, justify="right")
        table.add_column("rank", justify="right", style="dim")
    for row in found["candidates"]:
        cells = []
        for name in titles:
            estimate = row["estimates"][name]
            cells += [_with_error(estimate["mean"], estimate["std_error"]), str(estimate["rank"])]
        if real:
            cells += [_with_error(row["real_return"], row["real_std_error"]), str(row["real_rank"] or "–")]
        table.add_row(escape(row["name"]), *cells)
    if real:
        table.add_section()
        cells = [cell for name in titles for cell in (number(found["rank_correlation"][name]), "")]
        table.add_row("rank correlation with real returns", *cells, "", "")
    table.caption, table.caption_justify = "± one standard error", "left"
    return table


def oracle_tables(discount: float) -> list[Table]:
    """The exact optimum of liquidation: thresholds by time, and the value of simple rules."""
    oracle, task = solve(discount), find_task("liquidation")
    assert task is not None
    boundary = Table("time", title="sell everything once the price reaches", title_justify="left")
    boundary.add_column("price", justify="right")
    for time, threshold in enumerate(oracle.thresholds):
        boundary.add_row(str(time), f"{threshold:.3f}")
    values = Table("policy", title=f"liquidation, optimum for discount {discount:g}", title_justify="left")
    values.add_column("return", justify="right")
    values.add_column("score", justify="right")
    returns = {"optimal stopping": stopping_return(oracle.thresholds)}
    returns |= {name: rule_return(rule) for name, rule in RULES.items()}
    for name, value in sorted(returns.items(), key=lambda item: -item[1]):
        values.add_row(name, f"{value:.2f}", number(normalized_score(task, value)))
    return [boundary, values]


def _with_error(value: float | None, error: float | None) -> str:
    return number(value) if value is None or error is None else f"{number(value)} ± {number(error)}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}".replace("%", " %")
