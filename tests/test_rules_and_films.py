"""What a user asks on the command line: a rule and a reward of their own for imagination, and a film of the policy."""

import json
import sys

import gymnasium
import numpy as np
import pytest
from PIL import Image

from phyb.cli import main

TINY = (
    "--pool-size 2 --model-hidden 8 --model-steps 20 --model-check-every 10 --ensemble-size 3 --subset-size 2 "
    "--policy-hidden 8 --real-batch-size 8 --rollouts 8 --clone-steps 5 --steps 20 --log-every 10 --evaluate-every 10 "
    "--checkpoint-every 10 --transitions 500 --evaluation-episodes 50 --final-episodes 60 --fit-steps 20 "
    "--accept-poor-pool"
).split()
RULES = """
def never(observations, actions, next_observations):
    return next_observations[:, 1] < 0.0

def units(observations, actions, next_observations):
    return observations[:, 1] - next_observations[:, 1]

def words(observations, actions, next_observations):
    return next_observations
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "rules_of_mine.py").write_text(RULES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")  # one line per message
    yield "rules_of_mine"
    sys.modules.pop("rules_of_mine", None)


def train(capsys, folder, *arguments):
    code = 0
    try:
        main(["train", "liquidation", "--out", str(folder), *arguments, *TINY])
    except SystemExit as stop:
        code = int(stop.code or 0)
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def recorded(folder):
    return json.loads((folder / "config.json").read_text())["resolved"]


def test_a_users_rule_and_reward_are_tried_on_the_log_used_and_recorded(capsys, tmp_path, module):
    folder = tmp_path / "run"
    code, said = train(capsys, folder, "--termination", f"{module}:words")
    assert code == 2
    assert "expected one boolean per row" in said
    # A mistaken name leaves nothing behind that stands in the way of the right one.
    code, said = train(capsys, folder, "--termination", f"{module}:never", "--reward", f"{module}:units")
    assert code == 0
    assert recorded(folder)["termination"] == "rules_of_mine:never"
    assert recorded(folder)["reward"] == "rules_of_mine:units"
    assert json.loads((folder / "diagnostics.json").read_text())["termination"]["kind"] == "rule"
    assert "the termination rule rules_of_mine:never disagrees with the log on" in said
    assert "it ends 0 rows that went on, and lets 26 of 26 terminated rows go on" in said
    assert "the reward rules_of_mine:units differs from the log's on" in said
    # An episode sells at most the 100 units it begins with, whatever their price.
    assert 50.0 < json.loads((folder / "result.json").read_text())["behaviour_return"] <= 100.001


class Bar(gymnasium.Env):
    """Observes like liquidation, ends after four steps, pays 1 for each, and draws a bar of the time."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0.0, 100.0, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode, self._time = render_mode, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self._time += 1
        return np.full(3, self._time, np.float32), 1.0, self._time == 4, False, {}

    def render(self):
        picture = np.zeros((20, 20, 3), np.uint8)
        picture[: 4 * self._time] = 255
        return picture


def test_the_tasks_own_rule_is_recorded_by_name_and_the_policy_is_filmed_in_another_simulator(capsys, tmp_path):
    code, said = train(capsys, tmp_path / "run")
    assert code == 0
    assert (recorded(tmp_path / "run")["termination"], recorded(tmp_path / "run")["reward"]) == (
        "liquidation",
        "learned",
    )
    assert "disagrees" not in said
    gymnasium.register("test/FilmedBar-v0", entry_point=lambda **arguments: Bar(**arguments))
    try:
        asked = "--env test/FilmedBar-v0 --episodes 6 --render".split()
        main(["evaluate", str(tmp_path / "run"), *asked, str(tmp_path / "bar.gif")])
    finally:
        del gymnasium.registry["test/FilmedBar-v0"]
    said = capsys.readouterr().out
    assert "4.00 to 4.00" in said
    assert "bar.gif" in said
    with Image.open(tmp_path / "bar.gif") as film:
        assert film.n_frames == 5  # pyright: ignore[reportAttributeAccessIssue]
