"""Whether a run's computed clock has passed the time that its experiment gives it (analysis/clock).

Published files are up to half a minute old, which may be a third of such a run: between them the
clock is taken to go on at the pace it had. A run that was stopped a little too soon is not done,
and goes on; comparisons at that time leave out what it did after it.
"""

import math
import time
from collections.abc import Callable

from esac_mpi.analysis.clock import computed
from esac_mpi.analysis.measures import last
from esac_mpi.record import RunFiles
from esac_mpi.studies.experiments.plan import Computed, Planned

METRICS = "metrics.h5"
# shares of the time: between two looks at the files, which are read whenever they are new in the
# last one; and how much later a run ends whose end was not seen, so that it need not go on
STRIDE = 0.1
MARGIN = 0.02


def reached(run: RunFiles | None, clock: Computed) -> bool:
    """Say whether what a run has published passes its computed time.

    Raises Unusable where it cannot be computed.
    """
    if run is None or not run.generation:
        return False
    return bool(computed(run, clock.machine)[-1] >= clock.seconds)


class Pace:
    """How far the computed clock of a run is, and how fast it goes."""

    def __init__(self, planned: Planned, files: Callable[[Planned], RunFiles | None]) -> None:
        """files: returns a run's files, None where they cannot be read now."""
        self._planned, self._files = planned, files
        self._dated = self._seconds = self._wall = self._published = 0.0
        self._looked = -math.inf

    def passed(self, now: float, since: float) -> bool:
        """Say whether the clock has passed its time `now`, in a run that goes on from `since`.

        Both are times of the monotonic clock [s].
        """
        clock = self._planned.clock
        if clock is None:
            return False
        stride = STRIDE * clock.seconds
        due = min(self._seconds + stride, clock.seconds - stride)
        if not self._wall or self._expected(now, since) >= due:
            self._look(clock, now)
        if self._seconds >= clock.seconds:
            return True
        return self._expected(now, since) >= (1 + MARGIN) * clock.seconds

    def _expected(self, now: float, since: float) -> float:
        """Extrapolate the clock to `now` [s]."""
        if not self._wall:
            return 0.0
        ahead = max(0.0, now - max(self._published, since))
        return self._seconds + ahead * self._seconds / self._wall

    def _look(self, clock: Computed, now: float) -> None:
        """Read what was published since the last look, and is no older, whatever clock was set."""
        before = self._looked
        self._looked = now
        file = self._planned.run_dir / METRICS
        dated = file.stat().st_mtime if file.exists() else 0.0
        if dated == self._dated:
            return
        run = self._files(self._planned)
        if run is None or not run.generation:
            return
        self._dated = dated
        self._seconds = float(computed(run, clock.machine)[-1])
        self._published = now - min(max(0.0, time.time() - dated), now - before)
        self._wall = last(run, "wall_seconds", "timing") or 0.0
