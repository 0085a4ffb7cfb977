"""Whether balance comes back from tilted starts: the paper's Figure 4 as a count.

In trial after trial the body leans forward and backward in turn. Balance is back at the first step
from which, to the end of the first WINDOW, the lean is below LEAN and the body's centre of mass
above BALANCED of its height in standing. Below FALLEN of it, the body has fallen.
"""

from dataclasses import dataclass
from functools import partial
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
        # a shorter one was terminated by the task, or unstable
        return back if len(self.lean) > WINDOW >= back else None

    @property
    def stood(self) -> bool:
        """Whether balance came back without a fall."""
        return self.back is not None and not (self.height < FALLEN).any()


@process_state.preserve_state()
def run_trials(env: Env, policy: Any, count: int, degrees: float, seed: int) -> list[Trial]:
    """Play WINDOW steps from tilted starts, forward and backward in turn. Raises Unusable."""
    body, found = Body(env), []
    postures: list[tuple[float, float]] = []  # after every step

    def note(*_: object) -> None:
        postures.append(body.posture())

    for trial in range(count):
        random = generator(seed, Purpose.EPISODE, member=trial)
        lean = -abs(degrees) if trial % 2 else abs(degrees)
        postures.clear()
        watched = Watched(env, note, partial(body.tilt, lean, random))
        address = integer(seed, Purpose.EVALUATION, 0, block=trial)
        episode = play(watched, policy, address, cap=WINDOW)
        # what MuJoCo has repaired, upright perhaps, did not come back by itself
        steps = WINDOW if np.isnan(episode.episodic_return) else None
        leans, heights = np.array(postures[:steps]).reshape(-1, 2).T
        found.append(Trial(leans, heights / body.standing))
    return found


def summary_line(found: list[Trial], degrees: float, step: float) -> str:
    """Sum up the trials in a line; `step` is a step's time [s]."""
    back = [trial.back for trial in found if trial.back is not None]
    when = ""
    if back:
        middle = np.median(back)
        when = f", after {middle:.0f} steps ({middle * step:.2f} s) in the median"
    feet = [sum(trial.stood for trial in found[side::2]) for side in (0, 1)]
    share = f"{len(back)} of {len(found)} trials ({len(back) / len(found):.0%})"
    forward, backward = f"{feet[0]} of {len(found[::2])}", f"{feet[1]} of {len(found[1::2])}"
    falls = f"without a fall in {forward} forward and {backward} backward"
    return f"{degrees:g} degrees: balance back in {share}{when}; {falls}"
