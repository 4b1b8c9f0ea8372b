"""What is in a log: sizes, ranges, episodes, returns, termination, and anything suspicious."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from phyb.data.log import FIELDS, Log
from phyb.data.validate import Finding, validate

QUANTILES = {"min": 0.0, "10%": 0.1, "25%": 0.25, "median": 0.5, "75%": 0.75, "90%": 0.9, "max": 1.0}
BINS = 12
_BARS = " ▁▂▃▄▅▆▇█"
_AT_BOUND = 1e-3


@dataclasses.dataclass(frozen=True)
class Column:
    """How one number of the log is spread; `histogram` counts rows in equal bins from `low` to `high`."""

    name: str
    low: float
    mean: float
    std: float
    high: float
    histogram: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ActionColumn(Column):
    """An action's spread, its bounds, and the share of rows that sit at one of them."""

    bound_low: float
    bound_high: float
    share_at_bounds: float


@dataclasses.dataclass(frozen=True)
class Description:
    """Everything `phyb data describe` shows; `dataclasses.asdict` of it can be written as JSON."""

    source: str
    env_id: str | None
    rows: int
    episodes: int
    observation_size: int
    action_size: int
    bytes_in_memory: int
    terminated: int
    truncated: int
    unfinished: int
    observations: tuple[Column, ...]
    actions: tuple[ActionColumn, ...]
    rewards: Column
    episode_length: dict[str, float]
    episode_return: dict[str, float]
    share_of_actions_at_bounds: float
    findings: tuple[Finding, ...]


def describe(log: Log, source: str = "log") -> Description:
    """Summarise a log; `source` is its name in the summary and in messages.

    Episodes are counted by how they end: `terminated`, `truncated` (and not terminated), or `unfinished`,
    which only the last one can be. An action is at a bound if it is within a thousandth of the range from it.

    Raises:
        DataError: the log breaks a rule of the validator.
    """
    findings = validate(log, source)
    low, high = log.action_low.astype(np.float64), log.action_high.astype(np.float64)
    near = _AT_BOUND * (high - low)
    at_bounds = (log.actions <= low + near) | (log.actions >= high - near)
    names, share = log.names("actions"), at_bounds.mean(axis=0)
    actions = (
        ActionColumn(*_spread(name, log.actions[:, i]), float(low[i]), float(high[i]), float(share[i]))
        for i, name in enumerate(names)
    )
    lengths = log.episode_lengths()
    return Description(
        source=source,
        env_id=log.env_id,
        rows=len(log),
        episodes=len(lengths),
        observation_size=log.observation_size,
        action_size=log.action_size,
        bytes_in_memory=sum(getattr(log, field).nbytes for field in FIELDS),
        terminated=int(log.terminated.sum()),
        truncated=int((log.truncated & ~log.terminated).sum()),
        unfinished=int(not (log.terminated[-1] or log.truncated[-1])),
        observations=tuple(
            Column(*_spread(*each)) for each in zip(log.names("observations"), log.observations.T, strict=True)
        ),
        actions=tuple(actions),
        rewards=Column(*_spread("reward", log.rewards)),
        episode_length=_quantiles(lengths),
        episode_return=_quantiles(log.episode_returns()),
        share_of_actions_at_bounds=float(at_bounds.mean()),
        findings=tuple(findings),
    )


def render(description: Description, console: Console) -> None:
    """Print a description as tables."""
    d = description
    console.print(Text(d.source, style="bold"))
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    facts.add_column(style="dim")
    facts.add_column()
    facts.add_row("environment", Text(d.env_id or "not given"))
    facts.add_row("size", f"{d.rows:,} rows, {d.bytes_in_memory / 2**20:,.1f} MiB in memory")
    facts.add_row("one row", f"{_count(d.observation_size, 'observation')}, {_count(d.action_size, 'action')}")
    termination = f"{d.terminated:,} terminated, {d.truncated:,} truncated, {d.unfinished:,} unfinished"
    facts.add_row("episodes", f"{d.episodes:,}: {termination}")
    facts.add_row("actions at a bound", f"{d.share_of_actions_at_bounds:.1%}")
    console.print(facts)
    console.print()
    episodes = _table("Episodes", [*d.episode_length])
    episodes.add_row("length", *map(_number, d.episode_length.values()))
    episodes.add_row("return", *map(_number, d.episode_return.values()))
    observations, actions = (
        _table(title, ["min", "mean", "std", "max"]) for title in ("Observations and rewards", "Actions")
    )
    for table in (observations, actions):
        table.add_column("spread", no_wrap=True, min_width=BINS, style="cyan")
    actions.add_column("bounds", justify="right")
    actions.add_column("at them", justify="right", no_wrap=True)
    for column in (*d.observations, d.rewards):
        observations.add_row(*_cells(column))
    for column in d.actions:
        bounds = f"[{_number(column.bound_low)}, {_number(column.bound_high)}]"
        actions.add_row(*_cells(column), Text(bounds), f"{column.share_at_bounds:.1%}")
    for table in (episodes, observations, actions):
        console.print(table)
    for finding in d.findings:
        style = "yellow" if finding.severity == "warning" else "blue"
        place = finding.field if finding.row is None else f"{finding.field}, row {finding.row:,}"
        explained = (f"{place}: {finding.message}. ", (f"{finding.advice}.", "dim"))
        console.print(Text.assemble((f"{finding.severity}: ", style), *explained))
    if not d.findings:
        console.print(Text("Nothing suspicious found.", style="green"))


def _spread(name: str, values: Float[np.ndarray, " rows"]) -> tuple[str, float, float, float, float, tuple[int, ...]]:
    """The fields of a `Column`."""
    values = values.astype(np.float64)
    low, high = float(values.min()), float(values.max())
    # A range too narrow for distinct bin edges, or none at all, is one full bin.
    width = (high - low) / BINS
    if width > 0 and low + width > low and high - width < high:
        histogram = np.histogram(values, BINS, (low, high))[0].tolist()
    else:
        histogram = [len(values), *[0] * (BINS - 1)]
    return name, low, float(values.mean()), float(values.std()), high, tuple(histogram)


def _quantiles(values: np.ndarray) -> dict[str, float]:
    points = np.quantile(values.astype(np.float64), list(QUANTILES.values()))
    return {**dict(zip(QUANTILES, points.tolist(), strict=True)), "mean": float(values.mean())}


def _table(title: str, columns: list[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _cells(column: Column) -> list[str]:
    # The square root keeps rare values visible: an empty bin is blank, a single row is not.
    heights = np.sqrt(np.array(column.histogram) / max(column.histogram))
    bars = "".join(_BARS[int(np.ceil(height * (len(_BARS) - 1)))] for height in heights)
    return [escape(column.name), *map(_number, (column.low, column.mean, column.std, column.high)), bars]


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun} number{'' if number == 1 else 's'}"
