import importlib.util
import os
import sys
import types
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from PIL import Image

from phyb.envs.liquidation import ENV_ID
from phyb.errors import MissingExtraError, UsageError
from phyb.evaluation.film import WIDEST, film_episode


class Bar(gymnasium.Env):
    """A white bar that grows by what is done, one row per unit, and ends after seven steps; drawn at 50 a second."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(0.0, 2.0, (1,), np.float32)
    open_now = 0

    def __init__(self, render_mode=None, size=(40, 60), steps=7):
        self.render_mode, self._size, self._steps = render_mode, size, steps
        Bar.open_now += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._height, self._time = 0.0, 0
        return np.array([0.0], np.float32), {}

    def step(self, action):
        assert action in self.action_space
        self._height, self._time = self._height + float(action[0]), self._time + 1
        return np.array([self._height], np.float32), 1.5, self._time == self._steps, False, {}

    def render(self):
        picture = np.zeros((*self._size, 3), np.uint8)
        picture[: int(self._height)] = 255
        return picture

    def close(self):
        Bar.open_now -= 1


class Blind(Bar):
    metadata = {"render_modes": [], "render_fps": 50}  # noqa: RUF012

    def render(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


class Broken(Bar):
    def render(self):
        raise RuntimeError("no OpenGL here.")


class Discrete(Bar):
    action_space = gymnasium.spaces.Discrete(2)  # pyright: ignore[reportAssignmentType]


@pytest.fixture(autouse=True)
def _registered():
    kinds = {"Bar": Bar, "Blind": Blind, "Broken": Broken, "Discrete": Discrete}
    for name, kind in kinds.items():
        gymnasium.register(f"test/{name}-v0", entry_point=kind, disable_env_checker=True)
    gymnasium.register("test/Wide-v0", entry_point=lambda **k: Bar(size=(90, 2 * WIDEST), **k))
    gymnasium.register("test/Long-v0", entry_point=lambda **k: Bar(steps=10_000, **k))
    yield
    for name in (*kinds, "Wide", "Long"):
        del gymnasium.registry[f"test/{name}-v0"]
    assert Bar.open_now == 0, "an environment was left open"


def grow(observations):
    assert observations.shape == (1, 1)
    return np.full((1, 1), 5.0)  # the action space clips it to 2


def heights(path):
    """Rows of the bar in each picture, and the time each picture is shown."""
    with Image.open(path) as film:
        found = []
        for number in range(film.n_frames):  # pyright: ignore[reportAttributeAccessIssue]
            film.seek(number)
            white = np.asarray(film.convert("L")) > 128
            found.append((int(white.any(axis=1).sum()), film.info["duration"]))
        return found


def test_the_film_shows_every_second_step_and_the_last_in_the_speed_of_the_world(tmp_path):
    film = film_episode(grow, "test/Bar-v0", tmp_path / "bar.gif", seed=0)
    assert (film.steps, film.pictures, film.episode_return, film.whole) == (7, 5, 10.5, True)
    assert heights(film.path) == [(0, 40), (4, 40), (8, 40), (12, 40), (14, 40)]


def test_a_long_episode_is_cut_and_said_to_be(tmp_path):
    film = film_episode(grow, "test/Long-v0", tmp_path / "bar.gif", seed=0, seconds=0.2)
    assert (film.steps, film.whole) == (10, False)


def test_large_pictures_are_scaled_down_in_proportion(tmp_path):
    film = film_episode(grow, "test/Wide-v0", tmp_path / "wide.gif", seed=0)
    with Image.open(film.path) as picture:
        assert picture.size == (WIDEST, 45)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("test/Blind-v0", "draws no pictures"),
        ("test/Broken-v0", r"no OpenGL here\. MuJoCo draws with OpenGL: without a display set .*MUJOCO_GL=egl"),
        ("test/Discrete-v0", "must be continuous"),
        (ENV_ID, "draws no pictures"),
        ("test/Nowhere-v0", "registered with Gymnasium"),
        ("no_such_module_anywhere:X-v0", "no_such_module_anywhere"),
    ],
)
def test_what_cannot_be_filmed_is_refused_and_leaves_no_file(tmp_path, env_id, message):
    with pytest.raises(UsageError, match=message):
        film_episode(grow, env_id, tmp_path / "film.gif", seed=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["film.avi", "film", "nowhere/film.gif"])
def test_a_film_that_could_not_be_written_is_refused_before_anything_is_run(tmp_path, name):
    with pytest.raises(UsageError, match="film"):
        film_episode(lambda _: pytest.fail("a step was taken"), "test/Bar-v0", tmp_path / name, seed=0)


def test_without_its_package_an_mp4_is_refused_by_the_name_of_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"film\.mp4: an MP4 needs .* pip install 'phyb\[mp4\]'"):
        film_episode(lambda _: pytest.fail("a step was taken"), "test/Bar-v0", tmp_path / "film.mp4", seed=0)


@pytest.fixture
def encoder(monkeypatch):
    """In place of the package: writes what it gets to the file."""

    def write_frames(path, size, *, fps, macro_block_size, output_params):
        frames = []
        try:
            while True:
                frames.append((yield))
        except GeneratorExit:
            if module.broken:
                raise OSError("log\nno such codec") from None
            text = f"{size} {fps:g} {[len(frame) for frame in frames]} {output_params}"
            Path(path).write_text(text, encoding="utf-8")

    module = types.ModuleType("imageio_ffmpeg")
    module.__dict__.update(write_frames=write_frames, broken=False)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", module)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: module)
    return module


def test_an_mp4_gets_the_same_pictures_with_even_sides(tmp_path, encoder):
    film = film_episode(grow, "test/Bar-v0", tmp_path / "film.mp4", seed=0)
    size, rate = film.path.read_text().split(")")[0], film.path.read_text().split(")")[1].split()[0]
    width, height = (int(side) for side in size.strip("(").split(","))
    assert (film.pictures, width % 2, height % 2, rate) == (5, 0, 0, "25")
    assert str([3 * width * height] * 5) in film.path.read_text()
    assert "['-f', 'mp4']" in film.path.read_text()


def test_a_film_that_cannot_be_encoded_leaves_no_file(tmp_path, encoder):
    encoder.broken = True
    with pytest.raises(UsageError, match=r"cannot be encoded \(no such codec\)\. Give a name ending in \.gif"):
        film_episode(grow, "test/Bar-v0", tmp_path / "film.mp4", seed=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("display", "chosen"), [("", "egl"), (":0", None)])
def test_without_a_display_mujoco_is_made_to_draw_offscreen_for_the_time_of_the_film(
    tmp_path, monkeypatch, display, chosen
):
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("MUJOCO_GL", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", display)
    seen = []
    film_episode(lambda x: seen.append(os.environ.get("MUJOCO_GL")) or grow(x), "test/Bar-v0", tmp_path / "f.gif", 0)
    assert set(seen) == {chosen}
    assert "MUJOCO_GL" not in os.environ


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Gymnasium's clean-up without OpenGL
def test_a_hopper_is_filmed_where_there_is_opengl(tmp_path):
    pytest.importorskip("mujoco")
    try:
        film = film_episode(lambda _: np.ones((1, 3)), "Hopper-v5", tmp_path / "hopper.gif", seed=0)
    except UsageError as error:
        if "MUJOCO_GL" not in str(error):
            raise
        pytest.skip("no OpenGL here")
    assert film.whole
    with Image.open(film.path) as picture:
        assert picture.n_frames == film.pictures > 2  # pyright: ignore[reportAttributeAccessIssue]
        assert len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)) > 20
