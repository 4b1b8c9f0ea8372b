"""Scores the paper reports, read from published.csv: tables 1 and 9 on D4RL v2's data sets, table 2 on liquidation."""

from __future__ import annotations

import csv
import dataclasses
import functools
import importlib.resources
import re


@dataclasses.dataclass(frozen=True)
class Score:
    """A normalised score as published, over the paper's seeds."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.std:.1f}"


@functools.cache
def _tables() -> dict[str, dict[str, Score]]:
    """Scores by data set and algorithm, in the order of published.csv."""
    tables: dict[str, dict[str, Score]] = {}
    content = importlib.resources.files("phyb.envs").joinpath("published.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(content.splitlines()):
        tables.setdefault(row["dataset"], {})[row["algorithm"]] = Score(float(row["mean"]), float(row["std"]))
    return tables


def published_score(dataset: str, algorithm: str = "PhyB") -> Score | None:
    """The paper's score of an algorithm on a data set such as hopper-medium-replay; None where it reports none."""
    return _tables().get(dataset, {}).get(algorithm)


def comparison(log_name: str, algorithm: str = "PhyB") -> tuple[str, str] | None:
    """What the paper reports of an algorithm on the data set a log is named after, and a word of caution.

    hopper_medium_replay-v2 is hopper-medium-replay; versions other than D4RL's v2 are other data. None for other logs,
    and for algorithms that the paper does not report there.
    """
    dataset = re.sub(r"-v2$", "", log_name.lower().replace("_", "-"))
    score = published_score(dataset, algorithm)
    if score is None:
        return None
    if dataset == "liquidation":
        return str(score), "the paper's log, seeds and simulator of liquidation are not these: compare with care"
    return str(score), f"on D4RL's {dataset}-v2; a log of that name is another data set: compare with care"
