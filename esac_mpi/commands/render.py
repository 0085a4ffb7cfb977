"""Play a policy offscreen: a strip of pictures, a film, or its balance when tilted.

    esac-mpi render RUN|POLICY [--out FILE.png] [--video FILE.mp4|FILE.gif] [--start tilted]
    esac-mpi render RUN|POLICY --trials N [--degrees D]

Examples:
    esac-mpi render runs/Walker2d-v5-esac-seed0                         # writes strip.png there
    esac-mpi render policy.h5 --video walk.mp4 --seconds 10             # a film of ten seconds
    esac-mpi render policy.h5 --trials 50 --degrees 30                  # how often it recovers

Pictures show the time and the return so far. A tilted start puts the body on the floor at rest,
leaning forward by --degrees, with other joints within 0.1 rad of the model's own pose.
--trials counts how often balance is regained within 100 steps (esac_mpi/policies/recovery.py).
Needs pillow and, for MuJoCo, EGL or OSMesa; mp4 needs imageio-ffmpeg; --trials needs none of them.
Cost: 5 s; without a GPU 0.05 to 0.4 s a picture, so a film of 20 s takes minutes. 50 trials 5 s.
"""

import argparse
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi import Policy, envs
from esac_mpi.analysis import command
from esac_mpi.analysis.messages import Unusable
from esac_mpi.host import process_state
from esac_mpi.host.invocation import look_here
from esac_mpi.host.log import figures
from esac_mpi.host.paths import has_suffix, read_path, whole_file
from esac_mpi.operators.noise import Purpose, generator, integer
from esac_mpi.play.rollout import play
from esac_mpi.policies import posture, recovery, stage
from esac_mpi.policies.evaluation import make_env

LONGEST = 10_000  # what is shown of a task without a time limit [steps]
RATE = 25.0  # most pictures of a film [1/s]
GAP = 4  # between the pictures of a strip [pixels]
watched = process_state.preserve_state()(play)


def show(env: envs.Env, policy: Any, options: Any, out: Path, video: Path | None) -> None:
    """Write the strip, and the film if asked for. Raises Unusable."""
    from PIL import Image

    step = stage.seconds_per_step(env)
    start, episode_seed = None, integer(options.seed, Purpose.EVALUATION, 0, block=0)
    if options.start == "tilted":
        body = posture.Body(env)
        start = lambda: body.tilt(  # noqa: E731
            options.degrees, generator(options.seed, Purpose.EPISODE)
        )
    # 1.1 s of 0.02 s each are 55, and 55.00000000000001 by floats
    cap = math.ceil(min(options.seconds / step, env.horizon) - 1e-9)
    # below the same, to the bit
    length = watched(stage.Watched(env, tilt=start), policy, episode_seed, cap=cap).episodic_length
    if not length:
        raise Unusable(f"{env.id}: no start of seed {options.seed}: {env.not_finite or 'unstable'}")
    frames = min(options.frames, length + 1)
    wanted = np.unique(np.linspace(0, length, frames).round()).astype(int)
    stride, strip = max(1, round(1 / (RATE * step))), []
    camera = stage.Camera(env)
    try:
        with stage.film(video, stride * step) as take:

            def see(steps: int, total: float) -> None:
                filmed = video and steps % stride == 0
                if filmed or steps in wanted:
                    image = stage.draw_label(
                        camera.picture(), f"{steps * step:.1f} s   return {figures(total, '.0f')}"
                    )
                    if steps in wanted:
                        strip.append(image)
                    if filmed:
                        take(image)

            watched(stage.Watched(env, see, start), policy, episode_seed, cap=cap)
    finally:
        camera.close()
    width = strip[0].width + GAP
    whole = Image.new("RGB", (len(strip) * width - GAP, stage.SIZE), "white")
    for i, image in enumerate(strip):
        whole.paste(image, (i * width, 0))
    whole.quantize(128).save(out, optimize=True)


def add_arguments(line: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its line."""
    add = line.add_argument
    add("policy", type=read_path, metavar="RUN|POLICY", help="run directory or policy.h5")
    text = "default: the task's own"
    add("--start", choices=("default", "tilted"), default="default", help=text)
    text = "how far a tilted start leans forward (30)"
    add("--degrees", type=command.number_in(-180, 180, "degrees"), default=30.0, help=text)
    text = "simulated time to show [s]; 0: the whole episode"
    add("--seconds", type=command.amount, default=0.0, help=text)
    add("--frames", type=command.count, default=6, help="pictures in the strip (6)")
    add("--video", type=command.out_path, help="film, .mp4 or .gif")
    text = "which start state (0): the first of evaluate's"
    add("--seed", type=command.whole_number, default=0, help=text)
    add(
        "--trials",
        type=command.whole_number,
        default=0,
        help="tilted starts to count the recoveries of",
    )
    add("--out", type=command.out_path, help="picture; default: strip.png beside policy.h5")


def check(options: argparse.Namespace) -> None:
    """Raise Unusable for options that are not read, and for names of other files."""
    if options.trials:
        command.refuse_unread(options, "--trials", ("seconds", "frames", "video", "out"))
    elif options.start != "tilted":
        command.refuse_unread(options, "a start that is not tilted", ("degrees",))
    suffixes = {"video": (".mp4", ".gif"), "out": (".png",)}
    for name, allowed in suffixes.items():
        if (file := getattr(options, name)) and not has_suffix(file, *allowed):
            raise Unusable(f"--{name} {file}: the name must end in {' or '.join(allowed)}")


def main(options: argparse.Namespace) -> Iterator[object]:
    """Yield the pictures that were written, or how often balance was regained. Raises Unusable."""
    check(options)
    if not options.trials:
        stage.choose_gl()
    look_here()
    policy = Policy.load(options.policy)
    env = make_env(policy, "", LONGEST if options.trials else policy.horizon or LONGEST)
    if options.trials:
        with envs.refuse_errors(env.id, "played"):
            found = recovery.run_trials(env, policy, options.trials, options.degrees, options.seed)
        yield recovery.summary_line(found, options.degrees, stage.seconds_per_step(env))
        return
    out = options.out or policy.path.with_name("strip.png")
    with whole_file(out) as strip, ExitStack() as files:
        video = options.video and files.enter_context(whole_file(options.video))
        with envs.refuse_errors(env.id, "played"):
            show(env, policy, options, strip, video)
    yield out
    if options.video:
        yield options.video
