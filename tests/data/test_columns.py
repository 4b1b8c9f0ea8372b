"""Which column is what: the guess, and the map that corrects it."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyb.data.columns import Columns, guess, read_map, to_toml
from phyb.errors import DataError

NAMES = st.text(st.characters(codec="utf-8"), max_size=8)
SEVERAL = st.lists(NAMES, max_size=3).map(tuple)
MAPS = st.builds(
    Columns, SEVERAL, SEVERAL, *[st.none() | NAMES] * 5, next_observations=SEVERAL, amounts=st.booleans()
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(columns=MAPS)
def test_a_map_says_what_was_written(tmp_path_factory, columns):
    path = tmp_path_factory.getbasetemp() / "map.toml"
    path.write_text(to_toml(columns, {"left\n out": "its name says nothing"}), encoding="utf-8", newline="\n")
    assert read_map(path) == columns


def numbers(*names):
    return dict.fromkeys(names, "number")


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (
            numbers("obs_0", "obs_1", "action_0", "reward", "episode", "step") | {"done": "flag", "timeout": "flag"},
            Columns(("obs_0", "obs_1"), ("action_0",), "reward", "episode", "step", "done", "timeout"),
        ),
        (
            numbers("State.x", "State.y", "a", "R", "traj_id", "t", "TimeOuts"),
            Columns(("State.x", "State.y"), ("a",), "R", "traj_id", "t", None, "TimeOuts"),
        ),
        (
            numbers("observation", "next_observation", "actions[0]", "actions[1]", "rewards") | {"id": "text"},
            Columns(("observation",), ("actions[0]", "actions[1]"), "rewards", "id",
                    next_observations=("next_observation",)),
        ),
        (
            {"id": "text", "timestamp": "date", "x_0": "number", "u": "number", "r": "number", "obs_note": "text"},
            Columns(("x_0",), ("u",), "r", "id", "timestamp"),
        ),
        (
            numbers("pulse", "pressure", "a_dose", "reward", "id") | {"terminated": "flag", "name": "text"},
            Columns(("pulse", "pressure"), ("a_dose",), "reward", "id", None, "terminated"),
        ),
        (numbers("observable", "actor", "ratio", "rewarded"), Columns(("observable", "actor", "ratio", "rewarded"))),
    ],
)  # fmt: skip
def test_the_guess_goes_by_names_and_kinds(kinds, expected):
    found = guess(kinds)
    assert found.columns == expected
    assert set(found.unused) == set(kinds) - set(expected.used())
    assert found.complete is (expected.reward is not None)
    assert found.by_name is ("pulse" not in kinds and "observable" not in kinds)


def test_what_is_left_out_is_explained():
    kinds = numbers("obs_0", "obs_1", "next_obs_0", "r", "reward", "a", "width") | {"obs_image": "nested"}
    kinds |= {"action_name": "text", "state_empty": "nothing", "obs_date": "date"}
    assert guess(kinds).unused == {
        "next_obs_0": "not one for each observation",
        "reward": "r is taken as reward",
        "width": "its name says nothing",
        "obs_image": "lists or images; spread them over columns to use them",
        "action_name": "text; make it numbers to use it",
        "state_empty": "no value at all",
        "obs_date": "dates; make them numbers to use them",
    }
    assert '# not used: "width", its name says nothing' in to_toml(guess(kinds).columns, guess(kinds).unused)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('observation = ["x"]', "observation: there is no such role. Known are observations, actions"),
        ('observations = "x"', "observations: is 'x'. Give a list of names of columns"),
        ("actions = [1]", "actions: is [1]. Give a list of names of columns"),
        ("reward = 3", "reward: is 3. Give the name of a column"),
        ("amounts = 1", "amounts: is 1. Give true or false"),
        ("reward = ", "cannot be read as a map of columns (Invalid value"),
        ("\0", "cannot be read as a map of columns"),
    ],
)
def test_a_map_that_says_something_else_is_refused(tmp_path, text, words):
    path = tmp_path / "map.toml"
    path.write_text(text)
    with pytest.raises(DataError, match=re.escape(f"{path}: {words}")):
        read_map(path)


def test_a_map_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no\.toml: cannot be read as a map of columns .*leave out --columns"):
        read_map(tmp_path / "no.toml")
