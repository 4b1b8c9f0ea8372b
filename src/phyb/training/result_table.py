"""The closing table of a run, for the terminal and for notebooks."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from phyb.algorithms.registry import title_of
from phyb.envs.published import comparison
from phyb.envs.tasks import find_task, normalized_score


def result_table(result: dict[str, Any]) -> Table:
    """The closing table of a run, from the content of result.json."""
    table = Table(title=f"{result['task']}: {result['algorithm']}, seed {result['seed']}", title_justify="left")
    table.add_column("")
    table.add_column("return", justify="right")
    table.add_column("score", justify="right")
    rules = sorted(result["rules"].items(), key=lambda item: -item[1]["mean_return"])
    if result["optimal_return"] is not None:
        task = find_task(result["task"])
        score = normalized_score(task, result["optimal_return"]) if task else None
        table.add_row("exact optimum", number(result["optimal_return"]), number(score))
    if result["mean_return"] is not None:
        error = f" ± {result['std_error']:.2f}" if result["std_error"] is not None else ""
        label = f"this policy ({result['episodes']:,} episodes, ± standard error)"
        mean = f"[bold]{number(result['mean_return'])}[/]{error}"
        table.add_row(label, mean, f"[bold]{number(result['normalized_score'])}[/]")
        if result["regret"] is not None:
            table.add_row("  regret against the optimum", number(result["regret"]), "")
        table.add_row("  mean of its worst 10 % (CVaR)", number(result["cvar_10"]), "")
    verdict = {True: "a lower bound: yes", False: "a lower bound: NO", None: "no simulator to compare with"}
    if result["belief_return"] is not None:
        found = verdict[result["belief_is_lower_bound"]]
        table.add_row("  return under the belief", number(result["belief_return"]), found)
    table.add_row("behaviour in the log", number(result["behaviour_return"]), "", end_section=not rules)
    for name, rule in rules:
        if name != "behaviour":
            table.add_row(f"rule: {name}", number(rule["mean_return"]), number(rule["normalized_score"]))
    seconds = result["wall_seconds"]
    theirs = title_of(result["algorithm"])
    published = comparison(result["task"], theirs) if result["normalized_score"] is not None else None
    if published is not None:
        table.add_section()
        table.add_row(f"the paper's {theirs}", "", published[0])
    table.caption = f"{sum(seconds.values()):.0f} s: " + ", ".join(f"{name} {s:.0f} s" for name, s in seconds.items())
    table.caption += f"\nThe paper's {theirs}: {published[1]}." if published is not None else ""
    table.caption_justify = "left"
    return table


def number(value: float | None) -> str:
    """A number of a table; a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:,.2f}" if abs(value) < 1e9 else f"{value:.2e}"
