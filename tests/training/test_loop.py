import dataclasses
import json
import os
import signal

import jax
import jax.numpy as jnp
import pytest

from phyb.algorithms.settings import TrainingConfig
from phyb.errors import CallbackError, DivergenceError, InterruptedRunError
from phyb.interrupt import StopRequests, stop_requests
from phyb.training.folder import RunFolder
from phyb.training.loop import optimize

CONFIG = TrainingConfig(steps=20, log_every=5, evaluate_every=10, checkpoint_every=10, keep_checkpoints=2)


@dataclasses.dataclass(frozen=True)
class Walk:
    """A stand-in for an algorithm: a random walk, pushed at every evaluation, that may turn into NaN."""

    name = "walk"
    breaks_at: int = 10**6

    def init(self, key, problem):
        return {"key": key, "place": jnp.zeros(3), "step": jnp.zeros((), jnp.int32)}

    def update(self, state, problem):
        key, use = jax.random.split(state["key"])
        place = state["place"] + jax.random.normal(use, (3,))
        place = jnp.where(state["step"] == self.breaks_at, jnp.nan, place)
        return {"key": key, "place": place, "step": state["step"] + 1}, {"place": place, "first": place[0]}

    def before_evaluation(self, state, problem):
        return state | {"place": state["place"] + 1000.0}

    def policy(self, state, problem):
        raise NotImplementedError


def evaluate(state, step):
    return {"belief_return": float(state["place"].sum())}


def run(folder, algorithm=None, config=CONFIG, **kwargs):
    kwargs = {"evaluate": evaluate, **kwargs}
    return optimize(algorithm or Walk(), None, config, 0, folder=folder, **kwargs).state  # pyright: ignore


def contents(folder):
    names = [*folder.checkpoint_files(), folder.metrics]
    return {path.name: path.read_bytes() for path in names}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What an unbroken run leaves behind."""
    folder = RunFolder(tmp_path_factory.mktemp("whole"))
    state = run(folder, preface=[("pool", 7, {"loss": 1.0})])
    return state, contents(folder)


class StopAfter(StopRequests):
    """Asks to stop when it is asked for the n-th time."""

    def __init__(self, questions):
        self.left = questions

    def check(self):
        self.left -= 1
        self.requested = self.left < 0
        super().check()


@pytest.mark.parametrize("questions", range(10))
def test_a_run_that_was_stopped_anywhere_ends_with_the_bytes_of_an_unbroken_one(tmp_path, whole, questions):
    expected, files = whole
    stop = StopAfter(questions)

    def ask_too(state, step):
        stop.check()
        return evaluate(state, step)

    preface = [("pool", 7, {"loss": 1.0})]
    with pytest.raises(InterruptedRunError, match="--resume"):
        run(RunFolder(tmp_path), stop=stop, evaluate=ask_too, preface=preface)
    assert RunFolder(tmp_path).checkpoint_files()
    with RunFolder(tmp_path).metrics.open("a") as file:
        file.write("a line that was being written when the machine died")
    state = run(RunFolder(tmp_path), preface=preface)
    assert jnp.array_equal(state["place"], expected["place"])
    assert contents(RunFolder(tmp_path)) == files


def test_an_evaluation_sees_what_the_algorithm_goes_on_with(tmp_path):
    seen = []
    state = run(RunFolder(tmp_path), evaluate=lambda state, step: seen.append(state["place"].mean()) or {})
    assert [round(float(place), -3) for place in seen] == [1000.0, 2000.0, 3000.0]  # after 0, 10 and 20 updates
    assert float(state["place"].mean()) == float(seen[-1])


def test_a_signal_stops_with_a_checkpoint(tmp_path, whole):
    def interrupt(step, known):
        if step == 10:
            os.kill(os.getpid(), signal.SIGTERM)

    with stop_requests() as stop, pytest.raises(InterruptedRunError, match="--resume"):
        run(RunFolder(tmp_path), progress=interrupt, stop=stop)
    assert RunFolder(tmp_path).newest_checkpoint()[1]["step"] == 10  # pyright: ignore[reportOptionalSubscript]


@pytest.mark.parametrize("harm", ["deleted", "emptied", "foreign"])
def test_a_metrics_file_that_was_lost_comes_back_from_the_checkpoint(tmp_path, whole, harm):
    with pytest.raises(InterruptedRunError):
        run(RunFolder(tmp_path), stop=StopAfter(3), preface=[("pool", 7, {"loss": 1.0})])
    metrics = RunFolder(tmp_path).metrics
    metrics.unlink()
    if harm != "deleted":
        metrics.write_text("" if harm == "emptied" else "something else\n" * 1000)
    run(RunFolder(tmp_path))
    assert contents(RunFolder(tmp_path)) == whole[1]


def test_a_stop_after_divergence_keeps_no_broken_state(tmp_path):
    folder = RunFolder(tmp_path)
    config = dataclasses.replace(CONFIG, log_every=100, steps=100)
    with pytest.raises(DivergenceError):
        run(folder, Walk(breaks_at=2), config, stop=StopAfter(3))
    assert not folder.checkpoint_files()


def test_divergence_keeps_the_last_good_checkpoint(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(DivergenceError, match=r"step-000000010\.safetensors"):
        run(folder, Walk(breaks_at=12))
    (kept,) = folder.checkpoint_files()
    assert kept.name == "step-000000010.safetensors"


@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
@pytest.mark.parametrize("which", [[-1], [-2, -1]])
def test_damaged_checkpoints_are_passed_over_and_the_end_is_the_same(tmp_path, whole, damage, which):
    said = []
    preface = [("pool", 7, {"loss": 1.0})]
    run(RunFolder(tmp_path), preface=preface)
    for path in [RunFolder(tmp_path).checkpoint_files()[number] for number in which]:
        content = path.read_bytes()
        flipped = content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]
        path.unlink()
        if damage != "gone":
            path.write_bytes(content[:40] if damage == "cut" else flipped)
    run(RunFolder(tmp_path), preface=preface, on_message=said.append)
    assert contents(RunFolder(tmp_path)) == whole[1]
    assert len(said) == len(which)
    assert "damaged" in said[0]


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    folder = RunFolder(tmp_path)
    run(folder, config=dataclasses.replace(CONFIG, checkpoint_every=5, keep_checkpoints=2, keep_best=0))
    assert [path.name[5:14] for path in folder.checkpoint_files()] == ["000000015", "000000020"]


def test_the_best_checkpoint_is_kept_beside_the_newest(tmp_path):
    def peak_at_5(state, step):
        return {"belief_return": -abs(step - 5.0)}

    folder = RunFolder(tmp_path)
    config = dataclasses.replace(CONFIG, evaluate_every=5, checkpoint_every=5, keep_checkpoints=1, keep_best=1)
    run(folder, config=config, evaluate=peak_at_5)
    assert [path.name[5:14] for path in folder.checkpoint_files()] == ["000000005", "000000020"]


def test_intervals_that_do_not_divide_each_other_are_still_met(tmp_path):
    folder = RunFolder(tmp_path)
    run(folder, config=TrainingConfig(steps=13, log_every=5, evaluate_every=7, checkpoint_every=1000))
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert [line["step"] for line in lines if line["stage"] == "policy"] == [5, 10, 13]
    assert [line["step"] for line in lines if line["stage"] == "evaluation"] == [0, 10, 13]


def outcome(folder, callbacks, **kwargs):
    kwargs = {"evaluate": evaluate, **kwargs}
    return optimize(Walk(), None, CONFIG, 0, folder=folder, callbacks=callbacks, **kwargs)  # pyright: ignore


def test_callbacks_hear_every_line_about_the_policy(tmp_path):
    heard = []
    ended = outcome(RunFolder(tmp_path), [lambda step, metrics: heard.append({"step": step, **metrics})])
    lines = [json.loads(line) for line in RunFolder(tmp_path).metrics.read_text().splitlines()]
    assert heard == lines
    assert [line["step"] for line in lines if line["stage"] == "evaluation"] == [0, 10, 20]
    assert ended.stopped_at is None


@pytest.mark.parametrize("stage", ["policy", "evaluation"])
def test_a_callback_that_returns_true_ends_the_run_with_an_evaluation_and_a_checkpoint(tmp_path, whole, stage):
    def enough(step, metrics):
        return step >= 10 and metrics["stage"] == stage

    ended = outcome(RunFolder(tmp_path), [enough, lambda step, metrics: None], preface=[("pool", 7, {"loss": 1.0})])
    assert ended.stopped_at == 10
    assert RunFolder(tmp_path).newest_checkpoint()[1]["step"] == 10  # pyright: ignore[reportOptionalSubscript]
    text = RunFolder(tmp_path).metrics.read_bytes()
    assert json.loads(text.splitlines()[-1])["stage"] == "evaluation"
    assert whole[1]["metrics.jsonl"].startswith(text)
    # Killed before the result was written, it is still at its end when it is gone on with, without any callback.
    again = outcome(RunFolder(tmp_path), [])
    assert again.stopped_at == 10
    assert jnp.array_equal(again.state["place"], ended.state["place"])


def test_a_run_stopped_between_evaluations_is_evaluated_where_it_ends(tmp_path):
    ended = outcome(RunFolder(tmp_path), [lambda step, metrics: step == 15])
    assert ended.stopped_at == 15
    last = json.loads(RunFolder(tmp_path).metrics.read_text().splitlines()[-1])
    assert (last["stage"], last["step"]) == ("evaluation", 15)


@pytest.mark.parametrize("answer", [1, "stop", None, False])
def test_only_true_stops_a_run(tmp_path, answer):
    assert outcome(RunFolder(tmp_path), [lambda step, metrics: answer]).stopped_at is None


@pytest.mark.parametrize("stage", ["policy", "evaluation"])
def test_a_callback_that_fails_is_named_and_loses_nothing(tmp_path, whole, stage):
    def broken_callback(step, metrics):
        if step == 10 and metrics["stage"] == stage:
            raise RuntimeError("no network")

    preface = [("pool", 7, {"loss": 1.0})]
    with pytest.raises(CallbackError, match=r"broken_callback failed at update 10 \(RuntimeError: no network\)"):
        outcome(RunFolder(tmp_path), [broken_callback], preface=preface)
    run(RunFolder(tmp_path), preface=preface)
    assert contents(RunFolder(tmp_path)) == whole[1]
