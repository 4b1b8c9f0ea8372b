"""Outcomes and runs that nobody trained."""

import dataclasses
import sys
from pathlib import Path

from phyb.algorithms.settings import preset
from phyb.reproduce.plan import Planned
from phyb.reproduce.table import Comparison, Outcome, compare
from phyb.reproduce.table2 import TABLE2

SCORES = {"phyb": (101.0, 102.0, 100.0, 101.0), "cql": (90.0, 88.0, 101.0, 89.0), "bc": (0.0, 0.0, 0.0, 0.0)}


def outcome(algorithm: str, seed: int, score: float, pool_seconds: float = 0.0) -> Outcome:
    return Outcome(
        algorithm=algorithm,
        seed=seed,
        command=f"phyb train liquidation --algorithm {algorithm} --seed {seed}",
        score=score,
        mean_return=1.35 * score,
        std_error=0.4,
        cvar_10=30.0 + seed,
        behaviour_return=98.9,
        episodes=20_000,
        steps=100,
        seconds={"policy": 120.0, "pool": pool_seconds},
        versions={"phyb": "0"},
    )


def comparison(rough: bool = False, seeds: int = 4, **scores: tuple[float, ...]) -> Comparison:
    chosen = scores or SCORES
    runs = [
        outcome(name, seed, score, 60.0 if name == "phyb" else 0.0)
        for name, found in chosen.items()
        for seed, score in enumerate(found)
    ]
    return compare(TABLE2, runs, list(chosen), seeds=seeds, jobs=2, rough=rough)


@dataclasses.dataclass(frozen=True)
class Script(Planned):
    """A planned run whose process is a few lines of Python, given its folder; done once the file `done` is there."""

    script: str = ""
    pool_name: str | None = None

    @property
    def process_command(self) -> list[str]:
        return [sys.executable, "-c", self.script, str(self.folder)]

    @property
    def pool(self) -> str | None:
        return self.pool_name

    @property
    def finished(self) -> bool:
        return (self.folder / "done").exists()


def script(folder: Path, text: str, pool: str | None = None) -> Script:
    folder.mkdir(parents=True)
    return Script("liquidation", "bc", 0, folder, preset("cpu", "bc"), script=text, pool_name=pool)
