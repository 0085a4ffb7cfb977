"""Phases of a gradient learner, on its rank, beside or after the evaluation: what one did.

An algorithm calls `begin` and `finish` in one generation, or `finish` some generations later;
then `enter`. Where a generation is one phase, `one_phase` is all three.
"""

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import astuple, dataclass, fields
from typing import ClassVar, Self, TypeVar, cast

import numpy as np

from esac_mpi.comm.contracts import Learner, World
from esac_mpi.host.cooperative import ON_DEVICE
from esac_mpi.play.counters import Counters, Standardising
from esac_mpi.play.params import Row

Pupil = TypeVar("Pupil", bound=Learner)


@dataclass(frozen=True)
class Phase:
    """Counts of a phase, and means over its updates, nan without any; as a vector it travels."""

    SIZE: ClassVar[int]  # numbers of vector()

    env_steps: int = 0
    episodes: int = 0  # complete ones
    unstable_episodes: int = 0
    gradient_updates: int = 0
    replayed_steps: int = 0  # of the population's episodes that it played again
    episodic_return: float = np.nan  # mean over the complete episodes
    episodic_length: float = np.nan  # theirs, where the learner plays them itself [steps]
    critic_loss: float = np.nan
    actor_loss: float = np.nan
    value_loss: float = np.nan
    mean_q: float = np.nan
    temperature: float = np.nan
    entropy: float = np.nan

    @classmethod
    def summed_up(
        cls, env_steps: int, returns: Sequence[float], gradient_updates: int, **means: float
    ) -> Self:
        """Summarise episodes with these returns, nan if unstable; means: the other fields."""
        complete = [r for r in returns if math.isfinite(r)]
        mean = float(np.mean(complete)) if complete else math.nan
        unstable = len(returns) - len(complete)
        return cls(env_steps, len(complete), unstable, gradient_updates, 0, mean, **means)

    def columns(self, prefix: str, *names: str) -> Row:
        """Name some of the fields as a row's columns."""
        return {f"{prefix}_{name}": getattr(self, name) for name in names}

    def vector(self) -> np.ndarray:
        """Return the fields as float64 [SIZE]."""
        return np.array(astuple(self), np.float64)

    @classmethod
    def of(cls, vector: np.ndarray) -> Self:
        """Return the phase of a vector [SIZE]."""
        counts, means = vector[:COUNTS].astype(int).tolist(), vector[COUNTS:].tolist()
        return cls(*counts, *means)


COUNTS = 5  # the first fields of Phase
Phase.SIZE = len(fields(Phase))
# a phase, a part at a time: whether of an update, or ON_DEVICE; at last what it did
Steps = Generator[int, None, Phase]


class Flight:
    """A phase on its way, on the learner's rank: slice by slice beside other work, or at once."""

    SLICE = 0.002  # least time of a slice [s]
    PAUSE = 1e-4  # between two looks at a device [s]

    def __init__(
        self,
        steps: Steps,
        k: int,
        clock: Callable[[], float],
        name: str,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """name: the learner's. beat: called after every part, a sign of life."""
        self._steps, self._k, self._clock, self._name, self._beat = steps, k, clock, name, beat
        self._phase: Phase | None = None
        self._error: Exception | None = None
        self._left = 0.0  # when it was last left to its device
        # for its device alone, as far as is known: this rank has nothing to do for it now
        self.waits = False
        self.seconds = 0.0  # spent on it so far, by this rank or its device
        self.updating = 0.0  # of these on gradient updates

    @property
    def done(self) -> bool:
        """Whether the phase has ended; its result or error waits until it is due."""
        return self._phase is not None or self._error is not None

    def advance(self, seconds: float = SLICE) -> None:
        """Go on for at least `seconds`, to the phase's end, or until it waits for its device."""
        start = now = self._clock()
        if self.waits:
            self.seconds += start - self._left
            self.updating += start - self._left
            self.waits = False
        try:
            while now < start + seconds and not self.waits:
                updating, before = next(self._steps), now
                now = self._left = self._clock()
                self.waits = updating == ON_DEVICE
                self.updating += (now - before) * (bool(updating) and not self.waits)
                self._beat()
        except StopIteration as end:
            self._phase = end.value
        except Exception as error:
            error.add_note(f"in the {self._name} phase of generation {self._k}")
            self._error = error
        finally:
            self.seconds += self._clock() - start

    def finish(self) -> Phase:
        """Run the rest of the phase; return what it did. Raises what the phase raised."""
        while not self.done:
            self.advance(math.inf)
            if self.waits:
                time.sleep(self.PAUSE)
        if self._error is not None:
            raise self._error
        assert self._phase is not None
        return self._phase


def begin(
    world: World,
    learner: Pupil | None,
    k: int,
    steps: Callable[[Pupil], Steps],
    beside: bool = False,
) -> None:
    """Begin generation k's phase, `steps(learner)`, on rank 0 unless one is in flight; collective.

    Until its result enters, checkpoints have the learner as it was at the phase's start.
    beside: the rank goes on with the phase while others evaluate, from now on.
    """
    if world.in_flight:
        return
    flight = None
    if learner is not None:
        learner.hold()
        flight = Flight(steps(learner), k, world.clock, learner.NAME, world.watchdog.beat)
    world.begin_background(k, flight, beside)


def finish(world: World) -> tuple[Phase, np.ndarray, dict[str, float]]:
    """End the phase in flight; give every rank its counts.

    Returns the phase, busy seconds [ranks], and on the learner's rank the seconds spent on the
    phase since it began, in all and on gradient updates, as columns of a row's timing. Nothing is
    changed but the learner, which is held as it was at the phase's start: an Abandoned phase
    leaves no trace in a checkpoint.
    """
    flight = cast(Flight | None, world.background)

    def end() -> np.ndarray:
        assert flight is not None
        return flight.finish().vector()

    numbers, busy = world.at_root(end, Phase.SIZE)
    world.end_background()
    return Phase.of(numbers), busy, timing_columns(flight)


def timing_columns(flight: Flight | None) -> dict[str, float]:
    """Return the timing columns of a phase, nan without one."""
    seconds, updating = (flight.seconds, flight.updating) if flight else (np.nan, np.nan)
    return {"seconds_phase": seconds, "seconds_updates": updating}


def enter(
    phase: Phase, world: World, counters: Counters, theta: np.ndarray, learner: Learner | None
) -> None:
    """Copy an ended phase's actor from rank 0 to every node, and add its counts."""
    if learner is not None:
        theta[:] = learner.theta
    world.broadcast_shared(theta)
    count(phase, counters, learner)


def count(phase: Phase, counters: Counters, learner: Learner | None) -> None:
    """Count a phase that has ended, and let the learner be what it is now."""
    if learner is not None:
        learner.release()
    counters.env_steps_learner += phase.env_steps
    counters.env_steps_replayed += phase.replayed_steps
    counters.gradient_updates += phase.gradient_updates
    counters.unstable_episodes += phase.unstable_episodes
    counters.learner_phases += 1


def share_observations(world: World, learner: Learner | None) -> np.ndarray:
    """Share with all ranks the sums over the ended phase's observations, float64 [3, o]."""
    return world.from_root(learner.seen if learner is not None else None)


def one_phase(
    world: World,
    learner: Pupil | None,
    state: Standardising,
    theta: np.ndarray,
    steps: Callable[[Pupil, int, np.ndarray | None], Steps],
    standardises: bool,
) -> tuple[Phase, Row, Row]:
    """Make a generation of one phase: begin it, end it, let it enter state and theta [d].

    steps(learner, k, sums): the phase of generation k; sums: over the observations before it,
    float64 [3, o], by which it standardises its own, else None. Returns the phase, and the
    columns that its row and the row's timing have whatever the learner.
    """
    k, start = state.generation + 1, world.clock()
    sums = state.observation_sums if standardises else None
    begin(world, learner, k, lambda learner: steps(learner, k, sums))
    phase, busy, seconds = finish(world)
    enter(phase, world, state.counters, theta, learner)
    if sums is not None:
        state.observation_sums = sums + share_observations(world, learner)
    state.generation = k
    state.counters.nominal_steps += phase.env_steps
    row = {"theta_norm": float(np.sqrt(np.square(theta, dtype=np.float64).sum()))}
    return phase, row, {"busy_seconds": busy, "seconds_learn": world.clock() - start, **seconds}
