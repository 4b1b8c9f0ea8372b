"""One file per algorithm: config, init, update, act. Each class can be had from here: `phyb.algorithms.CQL`."""

from typing import Any


def __getattr__(name: str) -> Any:
    from phyb.algorithms.registry import ALGORITHMS, load

    for word, entry in ALGORITHMS.items():
        if entry.home.rpartition(":")[2] == name:
            return load(word)
    raise AttributeError(f"module 'phyb.algorithms' has no attribute {name!r}")
