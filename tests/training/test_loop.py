import dataclasses
import json
import os
import signal

import jax
import jax.numpy as jnp
import pytest

from phyb.errors import DivergenceError, InterruptedRunError
from phyb.training.folder import RunFolder
from phyb.training.loop import optimize, stop_requests
from phyb.training.settings import TrainingConfig

CONFIG = TrainingConfig(steps=20, log_every=5, evaluate_every=10, checkpoint_every=10, keep_checkpoints=2)


@dataclasses.dataclass(frozen=True)
class Walk:
    """A stand-in for an algorithm: a random walk that may turn into NaN at a given step."""

    name = "walk"
    breaks_at: int = 10**6

    def init(self, key, problem):
        return {"key": key, "place": jnp.zeros(3), "step": jnp.zeros((), jnp.int32)}

    def update(self, state, problem):
        key, use = jax.random.split(state["key"])
        place = state["place"] + jax.random.normal(use, (3,))
        place = jnp.where(state["step"] == self.breaks_at, jnp.nan, place)
        return {"key": key, "place": place, "step": state["step"] + 1}, {"place": place, "first": place[0]}

    def policy(self, state, problem):
        raise NotImplementedError


def evaluate(state, step):
    return {"belief_return": float(state["place"].sum())}


def run(folder, algorithm=None, config=CONFIG, **kwargs):
    return optimize(algorithm or Walk(), None, config, 0, folder=folder, evaluate=evaluate, **kwargs)  # pyright: ignore


def test_an_interrupted_run_ends_with_the_numbers_of_an_uninterrupted_one(tmp_path):
    whole, broken = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "broken")
    expected = run(whole)

    def interrupt(step, known):
        if step == 10:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(InterruptedRunError, match="--resume"):
        run(broken, progress=interrupt)
    assert broken.checkpoint_files()
    with broken.metrics.open("a") as file:
        file.write("a line that was being written when the machine died")
    state = run(broken)
    assert jnp.array_equal(state["place"], expected["place"])
    assert broken.metrics.read_bytes() == whole.metrics.read_bytes()
    assert broken.checkpoint_files()[-1].read_bytes() == whole.checkpoint_files()[-1].read_bytes()


def test_a_second_signal_stops_at_once():
    with stop_requests() as asked:
        os.kill(os.getpid(), signal.SIGINT)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_divergence_keeps_the_last_good_checkpoint(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(DivergenceError, match=r"step-000000010\.safetensors"):
        run(folder, Walk(breaks_at=12))
    (kept,) = folder.checkpoint_files()
    assert kept.name == "step-000000010.safetensors"


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path):
    folder = RunFolder(tmp_path)
    expected = run(folder)
    newest = folder.checkpoint_files()[-1]
    newest.write_bytes(newest.read_bytes()[:40])
    assert jnp.array_equal(run(folder)["place"], expected["place"])


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    folder = RunFolder(tmp_path)
    run(folder, config=dataclasses.replace(CONFIG, checkpoint_every=5, keep_checkpoints=2))
    assert [path.name[5:14] for path in folder.checkpoint_files()] == ["000000015", "000000020"]


def test_intervals_that_do_not_divide_each_other_are_still_met(tmp_path):
    folder = RunFolder(tmp_path)
    run(folder, config=TrainingConfig(steps=13, log_every=5, evaluate_every=7, checkpoint_every=1000))
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert [line["step"] for line in lines if line["stage"] == "policy"] == [5, 10, 13]
    assert [line["step"] for line in lines if line["stage"] == "evaluation"] == [0, 10, 13]
