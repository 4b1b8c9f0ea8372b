"""A film of one episode of a policy: an animated GIF, or an MP4 where the package for it is installed."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from PIL import Image

from phyb.envs.making import env_errors, registered_id
from phyb.errors import MissingExtraError, UsageError
from phyb.storage.files import atomic_path, write_bytes

PICTURES_PER_SECOND = 25
"""At most this many: viewers slow down GIFs whose pictures change faster."""
WIDEST = 320
"""Larger pictures are scaled down to this many pixels in their longer side: a GIF keeps every picture whole."""
WIDEST_MP4 = 640
"""The same for an MP4, which keeps what changes."""
_USUAL_RATE = 30
"""Steps per second of an environment that does not state them."""


@dataclasses.dataclass(frozen=True)
class Film:
    """What was filmed."""

    path: Path
    pictures: int
    steps: int
    episode_return: float
    """What the policy earned in the steps filmed."""
    whole: bool
    """Whether the film shows the end of its episode."""


def film_episode(
    act: Callable[[np.ndarray], np.ndarray],
    env_id: str,
    path: str | os.PathLike[str],
    seed: int,
    *,
    seconds: float = 10.0,
) -> Film:
    """Film one episode of the policy `act`, in the speed of the simulated world, to a .gif or .mp4.

    After so many `seconds` of simulated time the film stops even if the episode goes on. Lower makes smaller files.

    Raises:
        UsageError: the path is not one for a film, the environment cannot draw, or the film cannot be encoded; the
            message names the remedy.
        MissingExtraError: the film is an .mp4, and the package that writes them is not installed.
    """
    path = Path(path)
    is_mp4 = path.suffix.lower() == ".mp4"
    if not is_mp4 and path.suffix.lower() != ".gif":
        raise UsageError(f"{path}: films are written as GIF or MP4; give a name that ends in .gif or .mp4.")
    if is_mp4 and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise MissingExtraError("mp4", f"{path}: an MP4")
    if not path.parent.is_dir() or path.is_dir():
        raise UsageError(f"{path}: there is no such folder to write to, or the name is a folder's.")
    widest = WIDEST_MP4 if is_mp4 else WIDEST
    with _drawing(env_id) as env:
        observation, _ = env.reset(seed=seed)
        rate = float(env.metadata.get("render_fps") or _USUAL_RATE)
        stride = math.ceil(rate / PICTURES_PER_SECOND)
        low, high = env.action_space.low, env.action_space.high
        pictures, earned, steps, ended = [_picture(env, env_id, widest)], 0.0, 0, False
        while not ended and steps < seconds * rate:
            action = np.clip(np.asarray(act(observation[None]))[0], low, high).astype(low.dtype)
            observation, reward, terminated, truncated, _ = env.step(action)
            earned, steps, ended = earned + float(reward), steps + 1, terminated or truncated
            if ended or steps % stride == 0:
                pictures.append(_picture(env, env_id, widest))
    (_write_mp4 if is_mp4 else _write_gif)(pictures, path, stride / rate)
    return Film(path, len(pictures), steps, earned, ended)


def _write_gif(pictures: list[Image.Image], path: Path, seconds: float) -> None:
    """Pictures that stand for so many seconds each, in the few colours of a GIF."""
    first, *rest = (picture.quantize(256) for picture in pictures)
    content = io.BytesIO()
    first.save(content, "GIF", save_all=True, append_images=rest, duration=round(1000 * seconds), loop=0)
    write_bytes(path, content.getvalue())


def _write_mp4(pictures: list[Image.Image], path: Path, seconds: float) -> None:
    """Pictures that stand for so many seconds each, as H.264, whose sides are even numbers of pixels."""
    from imageio_ffmpeg import write_frames  # pyright: ignore[reportMissingImports]

    size = pictures[0].width // 2 * 2, pictures[0].height // 2 * 2
    with atomic_path(path) as unfinished:
        rate: Any = 1.0 / seconds  # annotated there as a whole number, though the encoder takes any
        film = write_frames(str(unfinished), size, fps=rate, macro_block_size=2, output_params=["-f", "mp4"])
        try:
            film.send(None)
            for picture in pictures:
                film.send(picture.crop((0, 0, *size)).tobytes())
            film.close()
        except (OSError, RuntimeError) as error:  # the encoder's message is in the last lines
            reason = (str(error).strip().splitlines() or ["no message"])[-1]
            raise UsageError(f"{path}: the film cannot be encoded ({reason}). Give a name ending in .gif.") from error


@contextlib.contextmanager
def _drawing(env_id: str) -> Iterator[Any]:
    """An environment that draws, closed afterwards."""
    with _offscreen():
        with env_errors(env_id):
            registered = registered_id(env_id)
            gymnasium.spec(registered)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the mode is not supported; the error below is clearer
                env = gymnasium.make(registered, render_mode="rgb_array")
        except TypeError as error:  # its constructor knows no render_mode
            raise _no_pictures(env_id) from error
        except gymnasium.error.Error as error:
            raise UsageError(f"cannot film {env_id}: {error}") from error
        try:
            if not isinstance(env.action_space, gymnasium.spaces.Box):
                raise UsageError(f"{env_id} has actions in {env.action_space}; they must be continuous (Box)")
            yield env
        finally:
            env.close()


def _picture(env: Any, env_id: str, widest: int) -> Image.Image:
    """The current frame, at most so many pixels wide or high."""
    try:
        drawn = env.render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise UsageError(f"cannot film {env_id}: {error}") from error
    except Exception as error:  # each OpenGL driver has errors of its own
        raise UsageError(
            f"cannot film {env_id}: {type(error).__name__}: {str(error).rstrip('.')}. MuJoCo draws with OpenGL: "
            "without a display set the environment variable MUJOCO_GL=egl (graphics driver), or MUJOCO_GL=osmesa "
            "(software, Debian package libosmesa6)."
        ) from error
    if not isinstance(drawn, np.ndarray):
        raise _no_pictures(env_id)
    picture = Image.fromarray(drawn.astype(np.uint8))
    picture.thumbnail((widest, widest))
    return picture.convert("RGB")


def _no_pictures(env_id: str) -> UsageError:
    return UsageError(f"cannot film {env_id}: it draws no pictures (render mode rgb_array).")


@contextlib.contextmanager
def _offscreen() -> Iterator[None]:
    """Where there is no display, let MuJoCo render with EGL, unless the user has chosen otherwise."""
    displays = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform != "linux" or any(os.environ.get(name) for name in displays):
        yield
        return
    os.environ["MUJOCO_GL"] = "egl"
    try:
        yield
    finally:
        os.environ.pop("MUJOCO_GL", None)
