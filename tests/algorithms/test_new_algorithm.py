"""The example in docs/new-algorithm.md is a whole algorithm, and works as the page says."""

import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from phyb.algorithms.problem import make_problem
from phyb.algorithms.registry import find
from phyb.cli import parse
from phyb.data.log import Log

PAGE = Path(__file__).parents[2] / "docs" / "new-algorithm.md"


@pytest.fixture
def example(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    (tmp_path / "my_algorithm.py").write_text(blocks[0], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield find("my_algorithm:Weighted")
    sys.modules.pop("my_algorithm", None)


def two_actions():
    """One step, half of the rows do -1 and earn nothing, half do +1 and earn 1."""
    rows = 64
    actions = np.where(np.arange(rows) % 2, 1.0, -1.0).astype(np.float32)[:, None]
    states, ends, bound = np.zeros((rows, 1), np.float32), np.ones(rows, bool), np.ones(1, np.float32)
    return Log(states, actions, (actions[:, 0] > 0).astype(np.float32), states, ends, ~ends, -bound, bound)


def test_the_example_of_the_page_learns_what_it_says(example):
    problem = make_problem(two_actions(), None, discount=0.9, horizon=1)
    algorithm = example(example.config_class(policy_hidden=(8,), actor_learning_rate=0.03), steps=100)
    state, update = algorithm.init(jax.random.key(0), problem), jax.jit(algorithm.update)
    for _ in range(100):
        state, told = update(state, problem)
    assert set(told) == {"actor_loss"}
    # Cloning would do 0, the mean of both; this does what paid.
    assert algorithm.policy(state, problem).act(np.zeros(1)) > 0.8


def test_the_example_has_its_options_on_the_command_line(example):
    command = parse(["train", "liquidation", "--algorithm", "my_algorithm:Weighted", "--temperature", "0.2"])
    assert command.agent == example.config_class(temperature=0.2)
