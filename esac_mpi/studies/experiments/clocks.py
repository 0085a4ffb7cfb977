"""Whether a run's computed clock has passed the time that its experiment gives it (analysis/clock).

Published files are up to half a minute old, which may be a third of such a run: between them the clock is taken to go on at the
pace it had. A run that was stopped a little too soon is not done, and goes on; what it did after its time is left out of
comparisons at that time.
"""

import math
import time
from collections.abc import Callable

from esac_mpi.analysis.clock import computed
from esac_mpi.analysis.measures import last
from esac_mpi.record import RunFiles
from esac_mpi.studies.experiments.plan import Computed, Planned

METRICS = "metrics.h5"
STRIDE = 0.1  # of the time: files are read after so much more of it, and whenever they are new in the last part
MARGIN = 0.02  # of the time: so much later is the end of a run that was not seen, so that it need not go on


def reached(run: RunFiles | None, clock: Computed) -> bool:
    """Return whether what a run has published passes its computed time. Raises Unusable where it cannot be computed."""
    return (
        run is not None
        and run.generation > 0
        and bool(computed(run, clock.machine)[-1] >= clock.seconds)
    )


class Pace:
    """How far the computed clock of a run is, and how fast it goes."""

    def __init__(self, planned: Planned, files: Callable[[Planned], RunFiles | None]) -> None:
        """files: returns a run's files, None where they cannot be read now."""
        self._planned, self._files = planned, files
        self._dated = self._seconds = self._wall = self._published = 0.0
        self._looked = -math.inf

    def passed(self, now: float, since: float) -> bool:
        """Return whether the clock has passed its time `now`; the run has been going on from `since`, both monotonic [s]."""
        clock = self._planned.clock
        if clock is None:
            return False
        stride = STRIDE * clock.seconds
        if not self._wall or self._expected(now, since) >= min(
            self._seconds + stride, clock.seconds - stride
        ):
            self._look(clock, now)
        return (
            self._seconds >= clock.seconds
            or self._expected(now, since) >= (1 + MARGIN) * clock.seconds
        )

    def _expected(self, now: float, since: float) -> float:
        """Return where the clock may be by `now` [s]."""
        ahead = max(0.0, now - max(self._published, since))
        return self._seconds + ahead * self._seconds / self._wall if self._wall else 0.0

    def _look(self, clock: Computed, now: float) -> None:
        """Read what was published since the last look: a clock that was set meanwhile makes it no older than that."""
        before, self._looked = self._looked, now
        file = self._planned.run_dir / METRICS
        dated = file.stat().st_mtime if file.exists() else 0.0
        if dated == self._dated:
            return
        run = self._files(self._planned)
        if run is None or not run.generation:
            return
        self._dated, self._seconds = dated, float(computed(run, clock.machine)[-1])
        self._published = now - min(max(0.0, time.time() - dated), now - before)
        self._wall = last(run, "wall_seconds", "timing") or 0.0
