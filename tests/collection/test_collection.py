import contextlib
import dataclasses
import io
import json
import shutil

import numpy as np
import pytest
from rich.console import Console

import phyb.collection.collect as collecting
from phyb.algorithms.sac import SACConfig
from phyb.cli import main
from phyb.collection.collect import choose_medium, collect
from phyb.collection.logs import KINDS
from phyb.collection.settings import CollectConfig
from phyb.collection.trainer import Record
from phyb.data import load_log
from phyb.errors import BusyError, DataError, DivergenceError, InterruptedRunError, UsageError
from phyb.interrupt import StopRequests
from phyb.storage.lock import locked

CONFIG = CollectConfig(
    steps=1200, rows=800, copies=2, round_steps=200, random_steps=100, turn_steps=20, evaluation_episodes=1
)
SAC = SACConfig(hidden=(16,), batch_size=16, learning_rate=3e-3)
WORDS = (
    "--steps 1200 --rows 800 --copies 2 --round-steps 200 --random-steps 100 --turn-steps 20 --evaluation-episodes 1 "
    "--hidden 16 --batch-size 16 --learning-rate 3e-3"
).split()


def quietly(folder, **given):
    return collect(
        "Pendulum-v1", folder, **{"config": CONFIG, "sac": SAC, "console": Console(file=io.StringIO()), **given}
    )


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the command makes, unbroken."""
    out = tmp_path_factory.mktemp("collect") / "pendulum"
    main(["collect", "Pendulum-v1", "--out", str(out), *WORDS])
    return out


@pytest.fixture(scope="module")
def logs(folder):
    return {kind: load_log(folder / f"pendulum-{kind}.hdf5") for kind in KINDS}


def test_the_six_files_have_their_sizes(logs):
    sizes = {kind: len(log) for kind, log in logs.items()}
    medium = logs["medium"].provenance["training_steps"]
    assert medium in (400, 800, 1200)
    assert sizes == {
        "random": 800,
        "medium": 800,
        "expert": 800,
        "medium-expert": 1600,
        "medium-replay": medium,
        "full-replay": 1200,
    }


def test_flags_are_honest(logs):
    """Pendulum never terminates; its limit of 200 steps truncates, and nothing else does here."""
    for log in logs.values():
        assert not log.terminated.any()
        np.testing.assert_array_equal(np.flatnonzero(log.truncated) % 200, 199)
        assert log.truncated.sum() == len(log) // 200
        inside = ~log.truncated[:-1]
        np.testing.assert_array_equal(log.next_observations[:-1][inside], log.observations[1:][inside])
        assert np.abs(log.next_observations[:-1][~inside] - log.observations[1:][~inside]).max(axis=1).min() > 1e-4


def test_random_actions_are_uniform_over_the_bounds(logs):
    actions = logs["random"].actions[:, 0]
    counts, _ = np.histogram(actions, 8, (-2.0, 2.0))
    assert counts.sum() == 800
    assert ((counts - 100) ** 2 / 100).sum() < 24.3  # chi-square with 7 degrees of freedom, one in a thousand


def test_medium_expert_is_half_and_half(logs):
    both = logs["medium-expert"]
    for field in ("observations", "actions", "rewards", "next_observations", "truncated"):
        halves = [getattr(logs[kind], field) for kind in ("medium", "expert")]
        np.testing.assert_array_equal(getattr(both, field), np.concatenate(halves))


def test_medium_replay_is_the_start_of_full_replay(logs):
    part, full = logs["medium-replay"], logs["full-replay"]
    np.testing.assert_array_equal(part.observations, full.observations[: len(part)])
    np.testing.assert_array_equal(part.actions, full.actions[: len(part)])


def test_the_replay_begins_with_uniform_actions_and_goes_on_with_the_policy(logs):
    """The same observation gets another law of actions once the policy acts: the first 50 steps of both copies."""
    actions = logs["full-replay"].actions[:, 0]
    first = np.concatenate([actions[:50], actions[200:250]])
    assert np.histogram(first, 4, (-2.0, 2.0))[0].min() > 10
    assert len(np.unique(actions)) > 1000


def test_every_log_says_what_it_is(logs):
    for kind, log in logs.items():
        about = log.provenance
        assert log.env_id == about["env_id"] == "Pendulum-v1"
        assert about["kind"] == kind
        assert about["seed"] == 0
        assert about["episodes"] == len(log) // 200
        assert about["cut_episodes"] == 0
        returns = log.episode_returns()
        assert about["returns"]["mean"] == pytest.approx(returns.mean())
        assert about["returns"]["min"] == pytest.approx(returns.min())
        assert {"phyb", "gymnasium", "numpy"} <= about["versions"].keys()
        assert about["collect"]["steps"] == 1200
    assert logs["random"].provenance["behaviour"] == "uniform random actions"
    assert "SAC" in logs["expert"].provenance["behaviour"]
    assert [logs[kind].provenance["training_steps"] for kind in ("random", "full-replay")] == [0, 1200]


class StopAfter(StopRequests):
    """Asks to stop when it is asked for the n-th time."""

    def __init__(self, questions):
        self.left = questions

    def check(self):
        self.left -= 1
        self.requested = self.left < 0
        super().check()


@pytest.mark.parametrize("questions", [[3], [405, 450], [640, 30], [1100, 100], [1500], [500, 220, 300]])
def test_a_broken_collection_ends_with_the_bytes_of_an_unbroken_one(tmp_path, folder, monkeypatch, questions):
    """Stops in the random log, in the first round, in an evaluation, in later rounds and among the rollouts."""
    out = tmp_path / "broken"
    for count in questions:
        with monkeypatch.context() as patch:
            patch.setattr(collecting, "stop_requests", lambda tell, n=count: contextlib.nullcontext(StopAfter(n)))
            with pytest.raises(InterruptedRunError):
                quietly(out, resume=True)
    quietly(out, resume=True)
    assert contents(out) == contents(folder)


def test_a_damaged_checkpoint_is_passed_over_and_its_round_done_again(tmp_path, folder, monkeypatch):
    out = tmp_path / "damaged"
    with monkeypatch.context() as patch:
        patch.setattr(collecting, "stop_requests", lambda tell: contextlib.nullcontext(StopAfter(1300)))
        with pytest.raises(InterruptedRunError):
            quietly(out)
    newest = sorted((out / "learner").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    quietly(out, resume=True)
    assert contents(out) == contents(folder)


def test_a_lost_log_is_made_again_and_a_damaged_replay_is_reported(tmp_path, folder):
    out = tmp_path / "copy"
    shutil.copytree(folder, out)
    (out / "pendulum-medium-expert.hdf5").unlink()
    quietly(out, resume=True)
    assert contents(out) == contents(folder)
    (out / "pendulum-full-replay.hdf5").unlink()
    (out / "replay" / "round-00002.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="round-00002"):
        quietly(out, resume=True)


def test_an_existing_folder_needs_resume_and_the_same_settings(folder):
    with pytest.raises(UsageError, match="--resume"):
        quietly(folder)
    with pytest.raises(UsageError, match=r"settings\.collect\.rows: 10 here, 800 in the run"):
        quietly(folder, resume=True, config=CollectConfig(**{**vars(CONFIG), "rows": 10}))
    with pytest.raises(UsageError, match="seed: 1 here"):
        quietly(folder, resume=True, seed=1)
    with locked(folder), pytest.raises(BusyError):
        quietly(folder, resume=True)
    before = contents(folder)
    quietly(folder, resume=True)
    assert contents(folder) == before


def test_numbers_that_are_not_finite_stop_the_collection(tmp_path):
    with pytest.raises(DivergenceError, match="critic_loss"):
        quietly(tmp_path / "far", sac=dataclasses.replace(SAC, learning_rate=1e30))
    assert not (tmp_path / "far" / "pendulum-expert.hdf5").exists()


def test_a_folder_of_another_kind_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text(
        json.dumps({"format": 2, "written_by": "phyb", "files": {"x": {"size": 0, "sha256": "", "grows": False}}})
    )
    with pytest.raises(DataError, match="not a folder of phyb collect"):
        quietly(tmp_path, resume=True)


def test_the_command_explains_what_cannot_be_collected(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["collect", "CartPole-v1", "--out", str(tmp_path / "x")])
    assert ended.value.code == 2
    assert "actions" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def records(*values):
    return [Record(number + 1, 100 * (number + 1), value) for number, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "random_return", "steps"),
    [
        ((10.0, 39.0, 40.0, 100.0), 10.0, 300),  # a third of the way from 10 to 100 is 40
        ((-50.0, 20.0), 10.0, 200),
        ((5.0, 8.0), 10.0, 200),  # nothing improved on random actions
        ((90.0, 100.0), 10.0, 100),
    ],
)
def test_medium_is_the_first_policy_past_a_third_of_the_way(values, random_return, steps):
    assert choose_medium(records(*values), random_return, 1 / 3).steps == steps


@pytest.mark.slow
def test_sac_solves_pendulum(tmp_path):
    """Random actions earn about -1200, the best policies about -150."""
    config = CollectConfig(
        steps=16_000, rows=8_000, copies=4, round_steps=200, random_steps=1000, evaluation_episodes=20
    )
    sac = SACConfig(hidden=(64, 64), batch_size=128, learning_rate=1e-3)
    paths = quietly(tmp_path / "pendulum", config=config, sac=sac)
    returns = {kind: load_log(path).provenance["returns"]["mean"] for kind, path in paths.items()}
    assert returns["expert"] > -250.0
    assert returns["random"] < returns["medium"] < returns["expert"] + 50.0
