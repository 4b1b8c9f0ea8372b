"""The one transition schema of the library: a log of experience and what is known about its origin."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from phyb.storage.mapped import blocks

FIELDS = ("observations", "actions", "rewards", "next_observations", "terminated", "truncated")


@dataclasses.dataclass(frozen=True, eq=False)
class Log:
    """A fixed log of transitions, one row per step, episodes one after the other.

    `terminated` marks a row after which nothing more can be earned (its value is zero); `truncated` marks a
    row after which the recording stopped although the episode could have gone on (its successor has a value).
    Either ends an episode. `next_observations` is the true successor of each row, also on the last row of an
    episode.
    """

    observations: Float[np.ndarray, "rows obs"]
    actions: Float[np.ndarray, "rows act"]
    rewards: Float[np.ndarray, " rows"]
    next_observations: Float[np.ndarray, "rows obs"]
    terminated: Bool[np.ndarray, " rows"]
    truncated: Bool[np.ndarray, " rows"]
    action_low: Float[np.ndarray, " act"]
    action_high: Float[np.ndarray, " act"]
    env_id: str | None = None
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def on_disk(self) -> bool:
        """Whether the numbers lie in files that are mapped into memory, see `phyb.data.disk`."""
        return isinstance(self.observations, np.memmap)

    @property
    def observation_size(self) -> int:
        """Numbers in one observation."""
        return self.observations.shape[1]

    @property
    def action_size(self) -> int:
        """Numbers in one action."""
        return self.actions.shape[1]

    @property
    def episode_ends(self) -> Bool[np.ndarray, " rows"]:
        """True on the last row of each episode; the last row of the log always ends one."""
        ends = self.terminated | self.truncated
        ends[-1] = True
        return ends

    @property
    def episode_of_row(self) -> np.ndarray:
        """The number of the episode each row belongs to, counted from 0."""
        return np.concatenate([[0], np.cumsum(self.episode_ends[:-1])])

    def episode_lengths(self) -> Int[np.ndarray, " episodes"]:
        """The number of rows of each episode, unfinished ones included."""
        return np.bincount(self.episode_of_row)

    def episode_returns(self) -> Float[np.ndarray, " episodes"]:
        """The undiscounted return of each episode, unfinished ones included."""
        return np.bincount(self.episode_of_row, weights=self.rewards)

    def fingerprint(self) -> str:
        """SHA-256 over shapes and contents: two logs share it only if every number in them is the same."""
        return self._fingerprint_on_disk if self.on_disk else self._fingerprint()

    @functools.cached_property
    def _fingerprint_on_disk(self) -> str:
        return self._fingerprint()  # files cannot be changed through the log, and take long to read

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for name in (*FIELDS, "action_low", "action_high"):
            array = getattr(self, name)
            digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
            for block in blocks(array):
                digest.update(np.ascontiguousarray(array[block]).tobytes())
        return digest.hexdigest()
