"""Data sets of Minari: one group per episode, whose observations are one row longer than its actions.

They are read from the local cache without the package: only its layout is used.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from phyb.errors import DataError
from phyb.storage.files import read_json

PREFIX = "minari:"
KEYS = {
    "observations": "observations",
    "actions": "actions",
    "rewards": "rewards",
    "next_observations": "observations",
    "terminated": "terminations",
    "truncated": "truncations",
}
"""Each field of the schema and the data set of an episode it is taken from."""
_EPISODE = re.compile(r"episode_(\d+)")
STORED = {key: field for field, key in KEYS.items() if field != "next_observations"}
"""The data sets of an episode, and the field that each is checked as."""


def episodes_in(names: list[str]) -> list[str]:
    """The episodes of a Minari file in their order; empty for any other file."""
    found = [(int(match[1]), name) for name in names if (match := _EPISODE.fullmatch(name))]
    return [name for _, name in sorted(found)]


def find_data_set(name: str) -> Path:
    """The file of `minari:ID` in $MINARI_DATASETS_PATH, else ~/.minari/datasets; a `DataError` says how to get it."""
    identifier = name.removeprefix(PREFIX)
    root = Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")
    if not identifier or ".." in Path(identifier).parts or Path(identifier).is_absolute() or "\0" in identifier:
        raise DataError(f"{name!r:.80}: is not the name of a data set, such as minari:mujoco/hopper/medium-v0.")
    path = root / identifier / "data" / "main_data.hdf5"
    if not path.is_file():
        raise DataError(
            f"{name}: is not in the local cache ({root}). Get it with: pip install 'minari[hdf5,hf,gcs]' && "
            f"minari download {identifier}"
        )
    return path


def describe_data_set(path: Path) -> dict[str, Any]:
    """What metadata.json beside the file says, as metadata of a log: environment, action bounds, where it is from."""
    about = path.with_name("metadata.json")
    if not about.is_file():
        return {}
    content = read_json(about)
    if not isinstance(content, dict):
        raise DataError(f"{about}: is not the description of a data set.")
    found: dict[str, Any] = {}
    space, spec = _inner(content.get("action_space")), _inner(content.get("env_spec"))
    if space.get("type") == "Box":
        for name, key in (("action_low", "low"), ("action_high", "high")):
            try:
                found[name] = np.asarray(space.get(key), np.float64)
            except (TypeError, ValueError) as error:
                raise DataError(f"{about}: the bounds of the action space cannot be read ({error}).") from error
    if isinstance(spec.get("id"), str):
        found["env_id"] = spec["id"]
    kept = ("dataset_id", "algorithm_name", "author", "minari_version", "description")
    found["provenance"] = json.dumps({"minari": {key: content[key] for key in kept if key in content}})
    return found


def _inner(text: Any) -> dict[str, Any]:
    """A JSON object that is stored as text inside JSON; empty if it is none."""
    try:
        content = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
