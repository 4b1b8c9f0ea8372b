"""Data sets of Minari: one group per episode, whose observations are one row longer than its actions.

They are read from the local cache without the package: only its layout is used.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from phyb.data._checks import bytes_of, problem
from phyb.errors import DataError

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
_STORED = ("observations", "actions", "rewards", "terminations", "truncations")


class Joined:
    """One field of all episodes, read and joined on `[...]`, as a data set is."""

    def __init__(self, episodes: int, read: Callable[[int], np.ndarray]) -> None:
        self._episodes = episodes
        self._read = read

    def __getitem__(self, _: Any) -> np.ndarray:
        return np.concatenate([self._read(number) for number in range(self._episodes)])


def episodes_in(names: Sequence[str]) -> list[str]:
    """The episodes of a Minari file in their order; empty for any other file."""
    found = [(int(match[1]), name) for name in names if (match := _EPISODE.fullmatch(name))]
    return [name for _, name in sorted(found)]


def judge_episodes(
    file: h5py.File,
    episodes: Sequence[str],
    source: str,
    judge: Callable[[h5py.File, str, str, str], tuple[h5py.Dataset, int]],
) -> tuple[dict[str, Joined], int]:
    """Judge the headers of all episodes; gives the fields, still unread, and the bytes they will take.

    `judge(file, name, field, source)` opens one data set after looking at its links, and gives it with its bytes.
    """
    parts: dict[str, list[h5py.Dataset]] = {key: [] for key in _STORED}
    declared = 0
    for episode in episodes:
        lengths = {}
        for key in _STORED:
            name = f"{episode}/{key}"
            field = {"terminations": "terminated", "truncations": "truncated"}.get(key, key)
            found, size = judge(file, name, field, source)
            declared += size
            lengths[key] = found.shape[0] - (key == "observations")
            parts[key].append(found)
        if len(set(lengths.values())) > 1:
            rows = ", ".join(f"{key} {length}" for key, length in lengths.items())
            advice = "Observations need one row more than the rest; write the data set again"
            raise problem(source, episode, f"has parts of different length (steps: {rows})", advice)

    def cut(number: int) -> np.ndarray:
        """The last row of an episode ends it, also where the recording was just stopped."""
        flags = parts["truncations"][number][...].astype(bool)
        flags[-1:] |= ~parts["terminations"][number][-1:].astype(bool)
        return flags

    readers: dict[str, Callable[[int], np.ndarray]] = {
        "observations": lambda number: parts["observations"][number][:-1],
        "next_observations": lambda number: parts["observations"][number][1:],
        "actions": lambda number: parts["actions"][number][...],
        "rewards": lambda number: parts["rewards"][number][...],
        "terminated": lambda number: parts["terminations"][number][...],
        "truncated": cut,
    }
    fields = {field: Joined(len(episodes), reader) for field, reader in readers.items()}
    return fields, declared + sum(bytes_of(part.shape, part.dtype) for part in parts["observations"])


def find_data_set(name: str) -> Path:
    """The file of `minari:ID` in the local cache: $MINARI_DATASETS_PATH, else ~/.minari/datasets.

    Raises:
        DataError: it is not there; the message says how to get it.
    """
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
    from phyb.storage.files import read_json  # the process that reads HDF5 gets by without it

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
