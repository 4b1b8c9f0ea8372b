"""Scores the paper reports, as data: table 1 on D4RL's data sets, table 2 on liquidation; mean ± standard deviation."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple


class Score(NamedTuple):
    """A normalised score as published, over the paper's seeds."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.std:.1f}"


_ALGORITHMS = ["EPQ", "CQL", "FQL", "TD3+BC", "DMG", "MOReL", "RAMBO", "PMDB", "ADM", "PhyB"]
_D4RL = {
    "halfcheetah": """
    random        33.0±2.4  31.3±3.5  14.2±0.5  10.2±1.3  28.8±1.3  38.9±1.8  39.5±3.5  37.8±0.2  45.4±2.8   34.7±1.7
    medium        67.3±0.5  46.9±0.4  59.9±0.5  42.8±0.3  54.9±0.2  60.7±4.4  77.9±4.0  75.6±1.3  72.2±0.6   74.5±1.8
    expert        107.2±0.2 97.3±1.1  4.4±1.2   105.7±1.9 95.9±0.3  8.4±11.8  79.3±15.1 105.7±1.0 89.4±26.4  113.7±1.0
    medium-expert 95.7±0.3  95.0±1.4  97.5±9.4  97.9±4.4  91.1±4.2  80.4±11.7 95.4±5.4  108.5±0.5 103.7±0.2  109.4±1.5
    medium-replay 62.0±1.6  45.3±0.3  52.2±0.5  43.3±0.5  51.4±0.3  44.5±5.6  68.7±5.3  71.7±1.1  67.6±3.4   74.7±1.5
    full-replay   85.3±0.7  76.9±0.9  80.9±0.5  71.9±2.7  79.9±1.2  70.1±5.1  87.0±3.2  90.0±0.8  86.3±1.7   98.1±3.5
    """,
    "hopper": """
    random        32.1±0.3  5.3±0.6   9.6±0.2   11.0±0.1  20.4±10.4 38.1±10.1 25.4±7.5  32.7±0.1  32.7±0.2   33.9±1.1
    medium        101.3±0.2 61.9±6.4  44.3±3.1  99.5±1.0  100.6±1.9 84.0±17.0 87.0±15.4 106.8±0.2 107.4±0.6  109.4±2.0
    expert        112.4±0.5 106.5±9.1 40.5±6.8  112.2±0.2 111.5±2.2 80.4±34.9 50.0±8.1  111.7±0.3 102.3±11.9 118.9±2.3
    medium-expert 108.8±5.2 96.9±15.1 43.8±5.6  112.2±0.2 110.4±3.4 105.6±8.2 88.2±20.5 111.8±0.6 112.7±0.3  116.5±2.1
    medium-replay 97.8±1.0  86.3±7.3  40.6±3.6  31.4±3.0  101.9±1.4 81.8±17.0 99.5±4.8  106.2±0.6 104.4±0.4  110.7±1.3
    full-replay   108.5±0.6 101.9±0.6 89.6±3.6  85.9±16.4 106.4±1.1 94.4±20.5 105.2±2.1 109.1±0.2 108.5±0.7  111.0±1.0
    """,
    "walker2d": """
    random        23.0±0.7  5.4±1.7   4.1±0.1   1.4±1.6   4.8±2.2   16.0±7.7  0.0±0.3   21.8±0.1  22.2±0.2   23.5±1.5
    medium        87.8±2.1  79.5±3.2  9.5±1.8   79.7±1.8  92.4±2.7  72.8±11.9 84.9±2.6  94.2±1.1  93.2±1.1   95.5±8.5
    expert        109.8±1.0 109.3±0.1 12.7±2.7  105.7±2.7 114.7±0.4 62.6±29.9 1.6±2.3   115.9±1.9 5.5±1.3    116.3±1.1
    medium-expert 112.0±0.6 109.1±0.2 7.3±1.2   101.1±9.3 114.4±0.7 107.5±5.6 56.7±39.0 111.9±0.2 114.9±0.3  112.4±1.1
    medium-replay 85.3±1.0  76.8±10.0 11.4±3.5  25.2±5.1  89.7±5.0  40.8±20.4 89.2±6.7  79.9±0.2  95.6±2.1   85.4±3.9
    full-replay   107.4±0.6 94.2±1.9  42.2±13.1 92.0±3.6  97.5±4.6  84.8±13.1 88.3±4.9  95.4±0.7  99.9±3.6   99.7±0.9
    """,
}
"""Table 1 (D4RL v2): for each body, a row per kind of data and a column per algorithm."""
_LIQUIDATION = """
    PhyB 101.6±3.7  PMDB 85.5±2.3  1R2R 78.8±1.6  ORAAC 0.0±0.0  RAMBO 99.6±0.6  CQL 89.4±1.3  IQL 0.0±0.0
    TD3+BC 100.4±3.6  MOPO 64.7±21.8  COMBO 55.0±29.0
"""
"""Table 2."""


@functools.cache
def _tables() -> dict[str, dict[str, Score]]:
    words = _LIQUIDATION.split()
    tables = {"liquidation": {name: _score(cell) for name, cell in zip(words[::2], words[1::2], strict=True)}}
    for body, rows in _D4RL.items():
        for row in rows.strip().splitlines():
            kind, *cells = row.split()
            tables[f"{body}-{kind}"] = dict(zip(_ALGORITHMS, map(_score, cells), strict=True))
    return tables


def _score(cell: str) -> Score:
    mean, std = cell.split("±")
    return Score(float(mean), float(std))


def datasets() -> list[str]:
    """Names of the data sets with published scores, such as hopper-medium-replay."""
    return list(_tables())


def find_dataset(name: str) -> str | None:
    """The data set a log is named after, or None: hopper_medium_replay-v2 is hopper-medium-replay.

    Versions other than D4RL's v2 are other data and are not found.
    """
    plain = re.sub(r"-v2$", "", name.lower().replace("_", "-"))
    return plain if plain in _tables() else None


def published_score(dataset: str, algorithm: str = "PhyB") -> Score | None:
    """The paper's score of an algorithm on a data set, named as in `datasets`; None where it reports none."""
    return _tables().get(dataset, {}).get(algorithm)


def comparison(log_name: str, algorithm: str = "PhyB") -> tuple[str, str] | None:
    """What the paper reports of an algorithm on the data set a log is named after, and a word of caution.

    None for other logs, and for algorithms that the paper does not report there.
    """
    dataset = find_dataset(log_name)
    score = published_score(dataset, algorithm) if dataset is not None else None
    if score is None:
        return None
    if dataset == "liquidation":
        return str(score), "the paper's log, seeds and simulator of liquidation are not these: compare with care"
    return str(score), f"on D4RL's {dataset}-v2; a log of that name is another data set: compare with care"
