"""A disk that fails: at every single call that changes it, in turn, with every kind of failure."""

import contextlib
import errno
import io
import itertools
import os

import jax
import pytest
from rich.console import Console
from victim import SETTINGS

from phyb.data.collect import collect_liquidation
from phyb.dynamics.cache import cached_pool
from phyb.dynamics.fit import Keeping, PoolConfig
from phyb.errors import StorageError
from phyb.pipeline import train
from phyb.storage.store import Store
from phyb.training.folder import RunFolder
from phyb.training.loop import optimize

CALLS = ("write", "fsync", "replace", "open", "mkdir")
KINDS = (errno.ENOSPC, errno.EIO, "short")


@contextlib.contextmanager
def failing_disk(monkeypatch, call, kind: int | str = errno.ENOSPC):
    """Lets the calls before number `call` pass and fails that one and all later, as a full disk does; counts them.

    "short" writes half of the bytes first. `call` None only counts.
    """
    count = [0]

    def wrap(name, real):
        def wrapped(*arguments, **keywords):
            if name == "open" and not (len(arguments) > 1 and arguments[1] & (os.O_WRONLY | os.O_RDWR)):
                return real(*arguments, **keywords)
            count[0] += 1
            if call is not None and count[0] >= call:
                if kind == "short" and name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                number = errno.ENOSPC if isinstance(kind, str) else kind
                raise OSError(number, os.strerror(number))
            return real(*arguments, **keywords)

        return wrapped

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, wrap(name, getattr(os, name)))
        yield count


def files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "tensorboard" not in path.parts
    }


def fail_everywhere(monkeypatch, tmp_path, work):
    """Do `work(folder)` once unbroken; then, for each call, fail there, check the error, go on, and compare."""
    (tmp_path / "whole").mkdir()
    with failing_disk(monkeypatch, None) as count:
        work(tmp_path / "whole")
    expected, kinds = files(tmp_path / "whole"), itertools.cycle(KINDS)
    assert count[0] > 5
    for call in range(1, count[0] + 1):
        kind, folder = next(kinds), tmp_path / f"fails-at-{call}"
        folder.mkdir()
        with failing_disk(monkeypatch, call, kind), contextlib.suppress(StorageError):
            # The sync of a folder and the event file may fail without harm; anything else must be our own error.
            work(folder)
        work(folder)
        assert files(folder) == expected, f"failing with {kind} at call {call}"


class RandomWalk:
    """A stand-in for an algorithm, of which many runs take no time."""

    name = "random-walk"

    def init(self, key, problem):
        return {"key": key, "place": jax.numpy.zeros(3)}

    def update(self, state, problem):
        key, use = jax.random.split(state["key"])
        place = state["place"] + jax.random.normal(use, (3,))
        return {"key": key, "place": place}, {"place": place}

    def before_evaluation(self, state, problem):
        return state | {"place": state["place"] + 1.0}


RANDOM_WALK = RandomWalk()


def test_optimisation_survives_a_failure_at_every_call(monkeypatch, tmp_path):
    config = SETTINGS.training

    def work(path):
        folder = RunFolder(path)
        folder.open()
        optimize(RANDOM_WALK, None, config, 0, folder=folder, evaluate=lambda state, step: {"belief_return": step})  # pyright: ignore

    fail_everywhere(monkeypatch, tmp_path, work)


def test_pool_training_survives_a_failure_at_every_call(monkeypatch, tmp_path):
    log = collect_liquidation(300, 0)
    config = PoolConfig(pool_size=2, members_at_once=1, model_hidden=(8,), model_steps=4, model_check_every=2)

    def work(path):
        keeping = Keeping(Store(path), seconds=0.0)
        found = cached_pool(log, config, 0, learn_termination=False, folder=path / "cache", keeping=keeping)
        if found.not_kept is not None:
            raise found.not_kept

    fail_everywhere(monkeypatch, tmp_path, work)


def test_a_whole_run_on_a_full_disk_says_so_and_goes_on_when_there_is_room(monkeypatch, tmp_path):
    def work():
        train(
            "liquidation",
            settings=SETTINGS,
            out=tmp_path / "run",
            cache=tmp_path / "cache",
            console=Console(file=io.StringIO()),
            resume=True,
        )

    with failing_disk(monkeypatch, 150, errno.ENOSPC), pytest.raises(StorageError, match="disk is full"):
        work()
    work()
    assert RunFolder(tmp_path / "run").finished
