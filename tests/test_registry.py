"""Things chosen by name."""

import subprocess
import sys

import pytest

from phyb.errors import DataError, UsageError
from phyb.registry import Registry


@pytest.fixture
def shapes():
    return Registry("shape", {"path": "posixpath:join", "five": 5})


def test_a_home_is_imported_and_an_object_is_given_back(shapes):
    import posixpath

    assert shapes.load("path") is posixpath.join
    assert shapes.load("five") == 5
    assert shapes.names() == ("path", "five")


def test_a_home_is_imported_only_when_it_is_asked_for():
    program = (
        "import sys\n"
        "from phyb.registry import Registry\n"
        "shapes = Registry('shape', {'a': 'colorsys:hls_to_rgb'})\n"
        "assert 'colorsys' not in sys.modules and 'jax' not in sys.modules\n"
        "shapes.load('a')\n"
        "assert 'colorsys' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_is_registered_can_be_loaded(shapes):
    shapes.register("tau", 6.28)
    shapes.register("base", "posixpath:basename")
    shapes.register("base", "posixpath:basename")
    assert shapes.load("tau") == 6.28
    assert shapes.load("base")("a/b") == "b"
    assert shapes.names() == ("path", "five", "tau", "base")


def test_a_name_is_not_taken_away(shapes):
    with pytest.raises(UsageError, match=r"shape five: the name is taken\. Known are path, five"):
        shapes.register("five", 6)
    assert shapes.load("five") == 5


@pytest.mark.parametrize("home", ["", "posixpath", "posixpath:", ":join", "a b:c", "os.path:join()"])
def test_a_home_that_cannot_be_one_is_refused(shapes, home):
    with pytest.raises(UsageError, match=r"package\.module:attribute"):
        shapes.register("x", home)


@pytest.mark.parametrize("name", ["square", "posixpath:split", "", None, ["five"]])
def test_load_imports_nothing_that_is_not_registered(shapes, name):
    with pytest.raises(DataError, match=r"shape: found .*, expected one of path, five\."):
        shapes.load(name)


def test_find_also_takes_the_home_of_something_else(shapes):
    import posixpath

    assert shapes.find("five") == 5
    assert shapes.find("posixpath:split") is posixpath.split


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("square", r"shape square: there is no such shape\. Known are path, five, or name your own"),
        ("no_such_module_here:x", r"shape no_such_module_here:x: cannot import .*PYTHONPATH"),
        ("posixpath:no_such_thing", r"shape posixpath:no_such_thing: posixpath has no no_such_thing"),
    ],
)
def test_find_says_what_is_wrong(shapes, word, message):
    with pytest.raises(UsageError, match=message):
        shapes.find(word)
