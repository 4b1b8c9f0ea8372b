import sys
from typing import Literal

import jax.numpy as jnp
import numpy as np
import pytest

from phyb.algorithms.problem import make_problem
from phyb.data._assemble import rebuild_successors
from phyb.envs.tasks import TERMINATION_RULES, Task, find_task
from phyb.envs.termination import Disagreement, Termination, check_word, compare, resolve
from phyb.errors import UsageError
from phyb.training.rows import choose_termination

MODULE = """
import jax.numpy as jnp
import numpy as np

def low(observations, actions, next_observations):
    return (next_observations[:, 0] < 0.5) & (observations[:, 0] > -9.0) & (actions[:, 0] > -9.0)

def counts(observations, actions, next_observations):
    return jnp.sum(next_observations < 0.5, axis=1)

def column(observations, actions, next_observations):
    return next_observations[:, :1] < 0.5

def single(observations, actions, next_observations):
    return True

def branches(observations, actions, next_observations):
    return next_observations[:, 0] < 0.5 if next_observations[0, 0] > 0 else next_observations[:, 0] > 2

def numpy_only(observations, actions, next_observations):
    return np.asarray(next_observations)[:, 0] < 0.5

def wide(observations, actions, next_observations):
    return (next_observations @ jnp.ones(99)) < 0.5

number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "endings_of_mine.py").write_text(MODULE)
    (tmp_path / "breaks_on_import.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    yield "endings_of_mine"
    sys.modules.pop("endings_of_mine", None)


def rows(count=300):
    generator = np.random.default_rng(0)
    observations, successors = generator.normal(1.0, 1.0, (2, count, 2)).astype(np.float32)
    return observations, np.zeros((count, 1), np.float32), successors, successors[:, 0] < 0.5


@pytest.mark.parametrize(
    ("env_id", "name"),
    [
        ("Hopper-v5", "hopper"),
        ("Hopper-v4", "hopper"),
        ("HalfCheetah-v5", "halfcheetah"),
        ("Walker2d-v4", "walker2d"),
        ("Ant-v5", "ant"),
        ("Pendulum-v1", "pendulum"),
        ("phyb/Liquidation-v0", "liquidation"),
    ],
)
def test_auto_takes_the_rule_of_the_task_by_its_name(env_id, name):
    assert resolve("auto", find_task(env_id)) == Termination(name, TERMINATION_RULES[name])


@pytest.mark.parametrize("task", [None, Task("Mine-v0", "mine", 10)])
def test_auto_learns_where_no_rule_is_known(task):
    assert resolve("auto", task) == Termination("learned", "learned")


def test_a_log_without_ends_teaches_none(linear_log, linear_pool):
    log, pool = linear_log(episodes=2, steps=5), linear_pool(np.zeros((2, 3, 3)), np.zeros((2, 3)))
    cases: list[tuple[bool, Literal["none", "learned"]]] = [(False, "none"), (True, "learned")]
    for ends, word in cases:
        log.terminated[:], log.truncated[-1] = False, not ends
        log.terminated[-1] = ends
        assert choose_termination(log, "auto", None) == Termination(word, word)
        assert make_problem(log, pool, discount=0.9, horizon=5).learned_world().termination == word


@pytest.mark.parametrize("word", ["learned", "none", *TERMINATION_RULES])
def test_a_word_wins_over_the_task(word):
    found = resolve(word, find_task("Hopper-v5"))
    assert found.name == word
    assert found.rule == TERMINATION_RULES.get(word, word)


def test_a_function_of_rows_serves_every_shape_that_imagination_asks_for(module):
    ending = resolve(f"{module}:low", None)
    assert ending.name == "endings_of_mine:low"
    assert callable(ending.rule)
    observations, actions, successors, expected = rows(24)
    assert compare(ending, observations, actions, successors, expected) == Disagreement(0, 0)
    many = jnp.asarray(successors).reshape(3, 2, 4, 2)  # members, samples, rows; observations have rows only
    found = ending.rule(jnp.asarray(observations[:4]), jnp.asarray(actions[:4]), many)
    np.testing.assert_array_equal(found, expected.reshape(3, 2, 4))


@pytest.mark.parametrize("word", ["hoper", "os:", "a-b:c"])
def test_other_words_are_refused(word):
    with pytest.raises(ValueError, match=f"found '{word}', expected one of auto, learned, none, hopper"):
        check_word(word)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("no_such_module_anywhere:f", "cannot import no_such_module_anywhere"),
        ("breaks_on_import:f", "ZeroDivisionError"),
        ("endings_of_mine:missing", "endings_of_mine has no missing"),
        ("endings_of_mine:number", "is int, not a function"),
    ],
)
def test_what_cannot_be_found_is_refused(module, word, message):
    with pytest.raises(UsageError, match=message):
        resolve(word, None)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("counts", r"gave int32 of shape \(300,\), expected one boolean per row"),
        ("column", r"gave bool of shape \(300, 1\)"),
        ("single", r"gave bool of shape \(\)"),
        ("branches", "without if"),
        ("numpy_only", "jax.numpy"),
        ("wide", "fails on logged rows of 2 observations and 1 actions"),
    ],
)
def test_a_function_that_gives_anything_but_booleans_per_row_is_refused(module, function, message):
    with pytest.raises(UsageError, match=message) as error:
        compare(resolve(f"{module}:{function}", None), *rows())
    assert f"endings_of_mine:{function}" in str(error.value)
    assert "\n" not in str(error.value)


def test_disagreement_is_counted_by_its_kind(monkeypatch):
    monkeypatch.setattr("phyb.envs.functions._ROWS_AT_ONCE", 64)  # several blocks, the last one short
    observations, actions, successors, flags = rows()
    ending = Termination("low", lambda here, action, there: there[..., 0] < 0.5)
    assert not compare(ending, observations, actions, successors, flags)
    changed = flags.copy()
    changed[np.flatnonzero(flags)[:3]] = False
    changed[np.flatnonzero(~flags)[-5:]] = True
    assert compare(ending, observations, actions, successors, changed) == Disagreement(rule_only=3, log_only=5)


@pytest.mark.parametrize("word", ["learned", "none"])
def test_what_is_no_rule_has_nothing_to_disagree_about(word):
    assert not compare(Termination(word, word), *rows())


def test_successors_borrowed_from_the_next_episode_are_found_out_and_ours_are_not_borrowed():
    """D4RL's loader takes observations[i + 1] as successor on terminal rows too: each fall would lead to a start."""
    episode = np.zeros((5, 11), np.float32)
    episode[:, 0] = [1.25, 1.1, 0.9, 0.75, 0.71]  # the state after the fall is nowhere in such a file
    states, terminals = np.tile(episode, (4, 1)), np.tile([False] * 4 + [True], 4)
    actions = np.zeros((20, 3), np.float32)
    hopper = resolve("hopper", None)
    borrowed = np.roll(states, -1, axis=0)
    assert compare(hopper, states, actions, borrowed, terminals) == Disagreement(rule_only=0, log_only=4)
    arrays = {"observations": states, "actions": actions, "rewards": np.ones(20), "terminated": terminals}
    rebuilt, _ = rebuild_successors(arrays | {"truncated": np.zeros(20, bool)}, "log")
    kept = [rebuilt[name] for name in ("observations", "actions", "next_observations", "terminated")]
    assert len(kept[0]) == 16
    assert not compare(hopper, *kept)
    assert np.all(kept[2][:, 0] < kept[0][:, 0])  # always falling, never back at a start
