"""The simulator behind an environment, and pictures of it.

The steps of esac_mpi.envs change the library's own model and data, so a picture of those is a
picture of the episode. Nothing here steps them.
"""

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.analysis.messages import Unusable
from esac_mpi.envs import Env
from esac_mpi.host.errors import describe_error
from esac_mpi.host.paths import has_suffix

FONT = 22  # of a text on a picture [pixels]
# height of a picture, and its width for MuJoCo [pixels]; what films want: a multiple of 16
SIZE = 320
PROBE = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 8, 8).close()"
NO_GL = (
    "No offscreen OpenGL: neither EGL nor OSMesa draws here. On Debian or Ubuntu: apt-get install "
    "libegl1 libgl1, or apt-get install libosmesa6; without root, ask for an EGL or OSMesa module; "
    "then MUJOCO_GL=egl or osmesa chooses one"
)
NO_PICTURE = (
    "there is neither self.model and self.data, of MuJoCo, nor 'rgb_array' in "
    "metadata['render_modes'], for its render()"
)


def choose_gl() -> None:
    """Set MUJOCO_GL to what draws here, before mujoco is imported; "disabled" for nothing."""
    if not sys.platform.startswith("linux"):
        return  # MuJoCo's own choice
    asked, both = os.environ.get("MUJOCO_GL", "").lower(), ("egl", "osmesa")
    for name in (asked,) if asked in both else (*both, asked):
        command, there = [sys.executable, "-c", PROBE], {**os.environ, "MUJOCO_GL": name}
        tried = subprocess.run(command, env=there, capture_output=True, check=False)
        if tried.returncode == 0:
            os.environ["MUJOCO_GL"] = name
            return
    os.environ["MUJOCO_GL"] = "disabled"


def library(env: Env) -> Any:
    """Unwrap the library's own environment; BipedalWalker has a new one after each reset."""
    inner = getattr(env, "_env", None)
    return getattr(inner, "unwrapped", inner)


def simulator(env: Env) -> tuple[Any, Any] | None:
    """Return MuJoCo's (model, data) of a task, None where it has none."""
    task = library(env)
    for holder in (getattr(task, "physics", None), task):
        parts = getattr(holder, "model", None), getattr(holder, "data", None)
        model, data = (getattr(part, "ptr", part) for part in parts)  # dm_control's hold them
        if (type(model).__name__, type(data).__name__) == ("MjModel", "MjData"):
            return model, data
    return None


def seconds_per_step(env: Env) -> float:
    """Return the simulated time of a step [s]; of a second for 50 where a task does not tell."""
    task = library(env)
    told: list[Any] = [getattr(task, name, None) for name in ("control_timestep", "dt")]
    rate: Any = getattr(task, "metadata", {}).get("render_fps")
    for step in (*told, lambda: 1 / rate):
        with suppress(TypeError, ValueError, ZeroDivisionError):  # a task's own may be anything
            if 0 < (seconds := float(step() if callable(step) else step)) < math.inf:
                return seconds
    return 1 / 50


class Camera:
    """Takes pictures of a task, uint8 [height, width, 3]. Raises Unusable."""

    def __init__(self, env: Env) -> None:
        self._env, self._model = env, None
        self._renderer: Any = None
        if state := simulator(env):
            self._look_at(state[0])
            return
        modes = getattr(library(env), "metadata", {}).get("render_modes")
        if "rgb_array" not in (modes or ()):
            raise Unusable(f"{env.id} has no picture: {NO_PICTURE}")

    def _look_at(self, model: Any) -> None:
        """Draw this model from now on: a task may make another one at a reset."""
        if os.environ.get("MUJOCO_GL") == "disabled":
            raise Unusable(NO_GL)
        import mujoco

        self.close()
        screen = model.vis.global_  # which some models have smaller
        screen.offwidth, screen.offheight = max(screen.offwidth, SIZE), max(screen.offheight, SIZE)
        self._renderer, self._free = mujoco.Renderer(model, SIZE, SIZE), mujoco.MjvCamera()
        self._free.distance, self._free.azimuth, self._free.elevation = 0.0, 90.0, -30.0
        names = [model.cam(i).name for i in range(model.ncam)]
        # of the model's cameras one that follows from the side, or the first
        self._own = next((names.index(name) for name in ("side", "track") if name in names), 0)
        self._model = model

    def _viewpoint(self, model: Any, data: Any) -> Any:
        """Return the model's camera, or without any a free one that has all parts in its view."""
        if model.ncam:
            return self._own
        parts = model.geom_rbound > 0  # all but planes
        if not parts.any():  # sites, say
            self._free.lookat[:], self._free.distance = model.stat.center, 2 * model.stat.extent
            return self._free
        places = data.geom_xpos[parts]
        self._free.lookat[:] = places.mean(axis=0)
        reach = np.linalg.norm(places - self._free.lookat, axis=1) + model.geom_rbound[parts]
        self._free.distance = max(self._free.distance, 2.8 * float(reach.max()))
        return self._free

    def picture(self) -> np.ndarray:
        """Return the task as it stands. Raises Unusable."""
        if state := simulator(self._env):
            if state[0] is not self._model:
                self._look_at(state[0])
            self._renderer.update_scene(state[1], self._viewpoint(*state))
            return self._renderer.render().copy()
        task = library(self._env)
        try:
            task.render_mode = "rgb_array"
            picture = np.asarray(task.render())
        except Exception as error:  # each library has its own
            said, where = describe_error(error)
            raise Unusable(f"{self._env.id}: its render() fails: {said} ({where})") from error
        if picture.dtype != np.uint8 or picture.shape[2:] != (3,) or not picture.size:
            wanted = "uint8 [height, width, 3]"
            raise Unusable(f"{self._env.id}: its render() gave no picture, {wanted}")
        return picture

    def close(self) -> None:
        """Free the OpenGL context; EGL complains if Python's end does it."""
        if self._renderer is not None:
            self._renderer.close()


class Watched:
    """An environment that may start tilted, with `see(steps, return so far)` after each step."""

    closed_loop = None  # that of the environment would pass it by

    def __init__(self, env: Env, see: Any = None, tilt: Any = None) -> None:
        self._env, self._see, self._tilt = env, see or (lambda steps, total: None), tilt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode, tilted if asked for."""
        observation = self._env.reset(seed)
        if self._tilt is not None:
            observation = self._tilt()
        self._steps, self._total = 0, 0.0
        self._see(0, 0.0)
        return observation

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """Step, and show what came of it."""
        observation, reward, terminated, truncated = self._env.step(action)
        self._steps, self._total = self._steps + 1, self._total + reward
        self._see(self._steps, self._total)
        return observation, reward, terminated, truncated


def draw_label(picture: np.ndarray, text: str) -> Any:
    """Return the picture, SIZE high, with the text on it, as pillow has it."""
    from PIL import Image, ImageDraw

    image = Image.fromarray(picture)
    image = image.resize((round(image.width * SIZE / image.height), SIZE))
    form: dict[str, Any] = {"fill": "white", "stroke_fill": "black", "stroke_width": 2}
    ImageDraw.Draw(image).text((8, SIZE - FONT - 10), text, font_size=FONT, **form)
    return image


@contextmanager
def film(path: Path | None, seconds: float) -> Iterator[Any]:
    """Give what takes the pictures of a film, each shown for so long [s]; write the film."""
    if path is None:
        yield lambda image: None
    elif has_suffix(path, ".gif"):
        images: list[Any] = []
        yield lambda image: images.append(image.quantize())
        images[0].save(
            path, save_all=True, append_images=images[1:], duration=round(1000 * seconds), loop=0
        )
    else:
        import imageio.v2 as imageio
        import imageio_ffmpeg  # noqa: F401 - or imageio's message is about TIFF

        writer: Any = imageio.get_writer(path, fps=1 / seconds)
        with writer:
            yield lambda image: writer.append_data(np.asarray(image))
