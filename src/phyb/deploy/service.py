"""What a served policy answers: actions, and how sure its models are about them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np
from jaxtyping import Float

from phyb.deploy.ground import Ground, disagreement
from phyb.errors import PhybError
from phyb.policy.policy import Policy
from phyb.storage.files import parse_json
from phyb.training.run import Run

MOST_ROWS = 1000
"""Observations in one request."""
LARGEST_NUMBER = 1e30
"""Of an observation; float32 holds little more."""


class RequestError(Exception):
    """A request that cannot be answered: an HTTP status and a sentence for whoever sent it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Service:
    """Answers of one policy; it is asked by several threads.

    Args:
        policy: what acts.
        ground: where its data lies, and its models; None answers with actions alone.
        about: a few words per name that the page shows.
        names: what the numbers of an observation are called.
    """

    def __init__(
        self, policy: Policy, ground: Ground | None, about: dict[str, str], names: Sequence[str] | None = None
    ) -> None:
        self.policy, self.ground, self.about = policy, ground, about
        self.observation_size = len(policy.standardizer.mean)
        self.names = list(names or (f"obs {column}" for column in range(self.observation_size)))
        size = len(policy.action_low)
        self.action_names = [f"action {i}" for i in range(size)] if ground is None else ground.log.names("actions")
        self._usual = None if ground is None or ground.pool is None else ground.holdout_disagreement()
        self._busy = threading.Lock()
        self.answer({"observations": [np.asarray(policy.standardizer.mean).tolist()]})  # compiles for one row

    @classmethod
    def of_run(cls, run: Run) -> tuple[Service, str | None]:
        """That of a finished run; and why there is nothing but actions, if its log cannot be found."""
        about = {"run": run.name, "algorithm": str(run.config["algorithm"]), "task": str(run.config.get("task"))}
        try:
            ground = Ground.of_run(run)
        except PhybError as error:
            return cls(run.policy, None, about), str(error)
        return cls(run.policy, ground, about, ground.log.names("observations")), None

    def reply(self, body: bytes) -> dict[str, Any]:
        """The answer to a request's body.

        Raises:
            RequestError: it is not JSON, or not observations of this policy.
        """
        try:
            content = parse_json(body)
        except ValueError as error:
            raise RequestError(400, f"The body is not JSON: {error}.") from error
        return self.answer(content)

    def answer(self, content: Any) -> dict[str, Any]:
        """Actions for `{"observations": [[...], ...]}`.

        With the log also whether each row is `outside_data`, and `share_outside`; with models the
        `disagreement_percentile` of each row: the share of hold-out rows of the log on which they disagree less.

        Raises:
            RequestError: the content is anything else.
        """
        rows = self._rows(content)
        with self._busy, np.errstate(all="ignore"):
            padded = np.resize(rows, (1 << (len(rows) - 1).bit_length(), rows.shape[1]))  # few shapes to compile
            actions = self.policy.act(padded)[: len(rows)]
            if not np.isfinite(actions).all():
                raise RequestError(422, "The policy has no action for numbers as large as these.")
            found: dict[str, Any] = {"actions": actions.tolist()}
            if self.ground is not None:
                outside = self.ground.outside(rows)
                found |= {"outside_data": outside.tolist(), "share_outside": float(outside.mean())}
                if self.ground.pool is not None and self._usual is not None:
                    spread = np.nan_to_num(disagreement(self.ground.pool, rows, actions), nan=np.inf)
                    below = np.searchsorted(self._usual, spread) / len(self._usual)
                    found["disagreement_percentile"] = (100.0 * below).tolist()
        return found

    def page(self) -> bytes:
        """One page that explains the service and lets one try it."""
        text = (resources.files("phyb.deploy") / "page.html").read_text("utf-8")
        policy = self.policy
        known = {
            "about": self.about,
            "names": self.names,
            "example": [float(f"{x:.4g}") for x in np.asarray(policy.standardizer.mean)],
            "actions": self.action_names,
            "low": np.asarray(policy.action_low).tolist(),
            "high": np.asarray(policy.action_high).tolist(),
            "models": self._usual is not None,
            "ranges": None if self.ground is None else [self.ground.low.tolist(), self.ground.high.tolist()],
            "mostRows": MOST_ROWS,
        }
        # The only way out of a script element is a "<".
        return text.replace('"KNOWN"', json.dumps(known).replace("<", "\\u003c")).encode()

    def _rows(self, content: Any) -> Float[np.ndarray, "rows obs"]:
        size = self.observation_size
        if not isinstance(content, dict) or set(content) != {"observations"}:
            raise RequestError(422, 'Expected an object with the one name "observations".')
        rows = content["observations"]
        if not isinstance(rows, list) or not 1 <= len(rows) <= MOST_ROWS:
            found = f"{len(rows)} rows" if isinstance(rows, list) else type(rows).__name__
            raise RequestError(422, f"observations: found {found}, expected a list of 1 to {MOST_ROWS} rows.")
        for place, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != size:
                found = f"{len(row)} numbers" if isinstance(row, list) else type(row).__name__
                raise RequestError(422, f"observations, row {place}: found {found}, expected a list of {size} numbers.")
            for column, x in enumerate(row):
                if type(x) not in (int, float) or not -LARGEST_NUMBER <= x <= LARGEST_NUMBER:
                    raise RequestError(
                        422,
                        f"observations, row {place}, number {column}: found {str(x)[:40]}, expected a finite number of "
                        f"at most {LARGEST_NUMBER:g}.",
                    )
        return np.array(rows, np.float32)
