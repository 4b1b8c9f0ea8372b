import sys

import numpy as np
import pytest

from phyb.envs.rewards import check_word, on_logged_rows, resolve
from phyb.errors import UsageError

MODULE = """
import jax.numpy as jnp

def forward(observations, actions, next_observations):
    return next_observations[:, 0] - observations[:, 0] - 0.1 * jnp.sum(actions**2, axis=1)

def flags(observations, actions, next_observations):
    return next_observations[:, 0] > 0

def total(observations, actions, next_observations):
    return jnp.sum(next_observations)

def logarithm(observations, actions, next_observations):
    return jnp.log(next_observations[:, 1])
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "rewards_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "rewards_of_mine"
    sys.modules.pop("rewards_of_mine", None)


def rows(count=50):
    generator = np.random.default_rng(0)
    observations, successors = generator.uniform(0.5, 1.0, (2, count, 2)).astype(np.float32)
    return observations, generator.uniform(-1, 1, (count, 3)).astype(np.float32), successors


def test_learned_rewards_need_no_function():
    assert resolve("learned") is None


def test_a_function_gives_the_reward_of_each_row_in_any_shape(module):
    reward = resolve(f"{module}:forward")
    assert reward is not None
    here, actions, there = rows()
    expected = there[:, 0] - here[:, 0] - 0.1 * (actions**2).sum(axis=1)
    np.testing.assert_allclose(on_logged_rows(reward, "forward", here, actions, there), expected, atol=1e-6)
    many = np.stack([there, there + 1.0])[:, None]  # members, samples, rows
    found = reward(here, actions, many)
    assert found.shape == (2, 1, 50)
    np.testing.assert_allclose(found[:, 0], np.stack([expected, expected + 1.0]), atol=1e-5)


@pytest.mark.parametrize("word", ["none", "auto", "hopper", "learned:", ""])
def test_other_words_are_refused(word):
    with pytest.raises(ValueError, match="expected learned, or package"):
        check_word(word)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("flags", r"gave bool of shape \(50,\), expected one number per row: float of shape \(50,\)"),
        ("total", r"gave float32 of shape \(\)"),
        ("logarithm", r"gave nan for row 7 of the log \(2 rows in all\), expected finite numbers"),
    ],
)
def test_what_is_no_reward_is_refused_before_training(module, function, message):
    here, actions, there = rows()
    there[[7, 9], 1] = -1.0
    reward = resolve(f"{module}:{function}")
    assert reward is not None
    with pytest.raises(UsageError, match=message):
        on_logged_rows(reward, f"{module}:{function}", here, actions, there)
