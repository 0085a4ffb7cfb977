"""Whether balance comes back from tilted starts: the paper's Figure 4 as a count.

In trial after trial the body leans forward and backward in turn. Balance is back at the first step
from which, to the end of the first WINDOW, the lean is below LEAN and the body's centre of mass
above BALANCED of its height in standing. Below FALLEN of it, the body has fallen.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.envs import Env
from esac_mpi.host import process_state
from esac_mpi.operators.noise import Purpose, generator, integer
from esac_mpi.play.rollout import play
from esac_mpi.policies.posture import Body
from esac_mpi.policies.stage import Watched

WINDOW = 100  # [steps]
LEAN, BALANCED, FALLEN = 20.0, 0.8, 0.5  # [degrees], [heights in standing]
# Okabe and Ito: colour-blind safe
KINDS = {
    "did not fall": "#0072B2",
    "fell and came back": "#009E73",
    "did not come back": "#D55E00",
}


@dataclass(frozen=True)
class Trial:
    """A tilted start: lean [degrees] and height [heights in standing] by steps, float64."""

    lean: np.ndarray
    height: np.ndarray

    @property
    def back(self) -> int | None:
        """The step at which balance was back, None if it was not within WINDOW."""
        out = np.flatnonzero((np.abs(self.lean) >= LEAN) | (self.height <= BALANCED))
        back = int(out[-1]) + 1 if len(out) else 0
        # a shorter one was terminated by the task
        return back if len(self.lean) > WINDOW >= back else None

    @property
    def kind(self) -> str:
        """One of KINDS."""
        if self.back is None:
            return "did not come back"
        return "fell and came back" if (self.height < FALLEN).any() else "did not fall"


class Watch:
    """Collects the posture after every step: (lean [degrees], height [m])."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self.postures: list[tuple[float, float]] = []

    def __call__(self, *_: object) -> None:
        """Note the posture of now."""
        self.postures.append(self._body.posture())


@process_state.kept()
def trials(env: Env, policy: Any, count: int, degrees: float, seed: int) -> list[Trial]:
    """Play WINDOW steps from tilted starts, forward and backward in turn. Raises NoTilt."""
    body, found = Body(env), []
    for trial in range(count):
        random = generator(seed, Purpose.EPISODE, member=trial)
        lean = -degrees if trial % 2 else degrees
        watch = Watch(body)
        watched = Watched(env, watch, partial(body.tilt, lean, random))
        play(watched, policy, integer(seed, Purpose.EVALUATION, 0, block=trial), cap=WINDOW)
        leans, heights = np.array(watch.postures).T
        found.append(Trial(leans, heights / body.standing))
    return found


def verdict(found: list[Trial], degrees: float, step: float) -> str:
    """Sum up the trials in a line; `step` is a step's time [s]."""
    back = [trial.back for trial in found if trial.back is not None]
    when = ""
    if back:
        middle = np.median(back)
        when = f", after {middle:.0f} steps ({middle * step:.2f} s) in the median"
    feet = [sum(trial.kind == "did not fall" for trial in found[side::2]) for side in (0, 1)]
    share = f"{len(back)} of {len(found)} trials ({len(back) / len(found):.0%})"
    forward, backward = f"{feet[0]} of {len(found[::2])}", f"{feet[1]} of {len(found[1::2])}"
    falls = f"without a fall in {forward} forward and {backward} backward"
    return f"{degrees:g} degrees: balance back in {share}{when}; {falls}"


def draw(found: list[Trial], title: str, files: list[Path]) -> None:
    """Draw the posture of every trial."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from PIL import Image

    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    figure, (leans, heights) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for trial in found:
        for axes, values in ((leans, trial.lean), (heights, trial.height)):
            axes.plot(values, color=KINDS[trial.kind], lw=0.9, alpha=0.6)
            if trial.back is not None:
                axes.plot(trial.back, values[trial.back], ".", color="black", ms=4, zorder=4)
    leans.axhspan(-LEAN, LEAN, color="0.92", zorder=0)
    heights.axhspan(
        BALANCED, max(1.1, *(trial.height.max() + 0.02 for trial in found)), color="0.92", zorder=0
    )
    heights.axhline(FALLEN, color="0.6", lw=0.8, ls="--", zorder=1)
    leans.set(xlabel="step", ylabel="lean, forward positive [degrees]", xlim=(0, WINDOW))
    heights.set(
        xlabel="step", ylabel="height / height in standing", xlim=(0, WINDOW), ylim=(0, None)
    )
    lines: list[Any] = [plt.Line2D([], [], color=colour) for colour in KINDS.values()]
    lines += [
        plt.Line2D([], [], color="black", ls="", marker="."),
        plt.Rectangle((0, 0), 1, 1, color="0.92"),
    ]
    lines += [plt.Line2D([], [], color="0.6", lw=0.8, ls="--")]
    names = [*KINDS, "balance is back", "limits of balance", "below: fallen"]
    figure.legend(
        lines, names, loc="outside lower center", ncols=6, frameon=False, fontsize="small"
    )
    figure.suptitle(title.replace("; ", "\n"), fontsize="medium")
    for file in files:
        figure.savefig(file, dpi=110)
        if file.suffix == ".png":  # pillow comes with matplotlib; a palette halves the bytes
            Image.open(file).convert("RGB").quantize(256).save(file, optimize=True)
