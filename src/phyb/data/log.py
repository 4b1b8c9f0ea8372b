"""The one transition schema of the library: a log of experience and what is known about its origin."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

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

    @classmethod
    def from_arrays(
        cls,
        observations: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        *,
        next_observations: ArrayLike | None = None,
        terminated: ArrayLike | None = None,
        truncated: ArrayLike | None = None,
        episode: ArrayLike | None = None,
        time: ArrayLike | None = None,
        action_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        env_id: str | None = None,
        names: Mapping[str, Sequence[str]] | None = None,
    ) -> Log:
        """A log from arrays with one row per step, checked and completed; docs/data.md tells how.

        Something must say where episodes end: `episode`, `time`, or the flags. What is assumed is in
        `provenance["assumed"]`.

        Arguments:
            observations: (rows, obs) the state in which each action was taken.
            actions: (rows, act) what was done: amounts, no choices between things.
            rewards: (rows,) what each step earned.
            next_observations: (rows, obs) the state that followed. None takes it from the following row; the last row
                of an episode that does not terminate is then dropped.
            terminated: (rows,) the task ended here; None: it never did.
            truncated: (rows,) the recording stopped here. None: wherever an episode ends without being terminated.
            episode: (rows,) a number or name of the episode that each row belongs to.
            time: (rows,) numbers or dates. With `episode`, rows are put in this order inside each; alone, an episode
                begins where it does not grow.
            action_bounds: lowest and highest action, numbers or one per column; None takes those in the log.
            env_id: Gymnasium id of the environment, if there is one.
            names: names of the columns, `{"observations": [...], "actions": [...]}`, kept in the provenance.

        Raises:
            DataError: an array cannot be used; the message names field and row.
        """
        from phyb.data._assemble import assemble
        from phyb.data.arrays import content_of_arrays

        given = {
            "observations": observations,
            "actions": actions,
            "rewards": rewards,
            "next_observations": next_observations,
            "terminated": terminated,
            "truncated": truncated,
        }
        about = {"episode": episode, "time": time, "action_bounds": action_bounds, "env_id": env_id, "names": names}
        return assemble(content_of_arrays(given, **about), "the arrays", None)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        observations: Sequence[str] | str,
        actions: Sequence[str] | str,
        reward: str,
        next_observations: Sequence[str] | str = (),
        terminated: str | None = None,
        truncated: str | None = None,
        episode: str | None = None,
        time: str | None = None,
        action_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        env_id: str | None = None,
    ) -> Log:
        """A log from the columns of a pandas or Polars frame, an Arrow table, or a dict of columns.

        The arguments name columns and mean what they mean to `from_arrays`. Columns hold plain numbers without gaps;
        `episode` may be text and `time` a date. The names of observations and actions are kept in the provenance.

        Raises:
            DataError: a column is missing or cannot be used; the message names column, row, and what was found.
            MissingExtraError: the frame can only be read with PyArrow, which is not installed.
        """
        from phyb.data._assemble import assemble
        from phyb.data.columns import Columns
        from phyb.data.frames import content_of_frame

        several: dict[str, Any] = {
            "observations": observations,
            "actions": actions,
            "next_observations": next_observations,
        }
        several = {role: (names,) if isinstance(names, str) else tuple(names) for role, names in several.items()}
        columns = Columns(
            **several, reward=reward, terminated=terminated, truncated=truncated, episode=episode, time=time
        )
        content = content_of_frame(frame, columns, action_bounds=action_bounds, env_id=env_id)
        return assemble(content, "the frame", None)

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

    def names(self, field: str) -> tuple[str, ...]:
        """The names of the columns of "observations" or "actions"; those that the log does not record are made up."""
        kept, size = self.provenance.get("names"), getattr(self, field).shape[1]
        found = kept.get(field) if isinstance(kept, Mapping) else None
        if isinstance(found, list) and len(found) == size and all(isinstance(name, str) for name in found):
            return tuple(found)
        short = {"observations": "obs", "actions": "action"}[field]
        return tuple(f"{short} {place}" for place in range(size))

    def steps_before(self, rows: Int[np.ndarray, " some"] | None = None) -> Int[np.ndarray, " some"]:
        """How many rows lie before each row in its episode without a gap, counting only those of a rising selection."""
        rows = np.arange(len(self)) if rows is None else rows
        place = np.arange(len(rows))
        begins = np.concatenate([[True], (np.diff(rows) != 1) | self.episode_ends[rows[:-1]]])
        return (place - np.maximum.accumulate(np.where(begins, place, 0))).astype(np.int32)

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
