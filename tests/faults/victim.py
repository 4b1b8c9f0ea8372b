"""A small run that dies: victim.py RUN CACHE [--algorithm NAME] [--call N --how before|torn|after] [--seconds S].

It goes on with the run in the folder, as `phyb train --resume` does. The process kills itself with SIGKILL at the
N-th call that changes the disk (before it, in the middle of a write, or after it), or some seconds after training
began; no clean-up can run. Where it died is written to RUN.death, and the number of calls, if it lived, to RUN.calls.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import signal
import threading
from pathlib import Path

from rich.console import Console

from phyb.algorithms.phyb import PhyBConfig
from phyb.algorithms.phyb_search import PhyBSearchConfig
from phyb.algorithms.settings import Settings, TrainingConfig
from phyb.belief.backup import BeliefConfig
from phyb.dynamics.fit import PoolConfig
from phyb.pipeline import train
from phyb.training.progress import Stages

SETTINGS = Settings(
    pool=PoolConfig(
        pool_size=4, model_hidden=(8, 8), model_steps=60, model_check_every=20, model_batch_size=32, members_at_once=2
    ),
    agent=PhyBConfig(
        belief=BeliefConfig(ensemble_size=4, subset_size=2),
        policy_hidden=(8, 8),
        real_batch_size=8,
        rollouts=8,
        clone_steps=10,
        evaluation_steps=10,
    ),
    training=TrainingConfig(
        steps=80,
        log_every=10,
        evaluate_every=20,
        checkpoint_every=20,
        evaluation_episodes=20,
        final_episodes=50,
        transitions=1000,
        pool_checkpoint_seconds=0.0,
        fit_steps=20,
        accept_poor_pool=True,
    ),
)
SEARCH = dataclasses.replace(
    SETTINGS,
    agent=PhyBSearchConfig(
        belief=BeliefConfig(ensemble_size=4, subset_size=2, noise_samples=1),
        policy_candidates=4,
        policy_directions=3,
        episode_starts=2,
        episode_steps=10,
        policy_hidden=(8, 8),
        clone_steps=10,
    ),
)
ALGORITHMS = {"phyb": SETTINGS, "phyb-search": SEARCH}
CALLS = ("write", "fsync", "replace", "unlink", "ftruncate", "mkdir")


class Death:
    """Counts calls and kills the process at its time."""

    def __init__(self, note: Path, call: int | None, how: str) -> None:
        self.count, self.stage = 0, "start"
        self._call, self._how = call, how
        self._note = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._write = os.write
        for name in CALLS:
            setattr(os, name, self._counted(name, getattr(os, name)))

    def die(self, where: str) -> None:
        self._write(self._note, f"{self.stage}: {where}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)

    def _counted(self, name, real):
        def call(*arguments, **keywords):
            self.count += 1
            now = self.count == self._call
            if now and self._how == "before":
                self.die(f"before {name}")
            if now and self._how == "torn" and name == "write":
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                self.die("in the middle of write")
            try:
                return real(*arguments, **keywords)
            finally:  # also after a call that failed, such as mkdir of a folder that is there
                if now:
                    self.die(f"after {name}")

        return call


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="phyb")
    parser.add_argument("--call", type=int)
    parser.add_argument("--how", default="before")
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    death = Death(given.run.with_suffix(".death"), given.call, given.how)
    stage = Stages.stage

    def noted_stage(self, name, *rest):
        death.stage = name
        return stage(self, name, *rest)

    Stages.stage = noted_stage  # pyright: ignore[reportAttributeAccessIssue]
    if given.seconds is not None:
        timer = threading.Timer(given.seconds, death.die, [f"{given.seconds:.2f} s after the start"])
        timer.daemon = True
        timer.start()
    train(
        "liquidation",
        algorithm=given.algorithm,
        settings=ALGORITHMS[given.algorithm],
        out=given.run,
        resume=True,
        cache=given.cache,
        console=Console(file=io.StringIO()),
    )
    given.run.with_suffix(".calls").write_text(str(death.count))


if __name__ == "__main__":
    main()
