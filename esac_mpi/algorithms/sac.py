"""The SAC learner alone: ESAC's other half. A generation is a number of training steps on rank 0.

Source: Haarnoja et al. 2018. The other ranks share the evaluations.
"""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from esac_mpi.algorithms.es import THETA_SAC, Params, Row
from esac_mpi.envs import Env
from esac_mpi.learners.phase import Phase
from esac_mpi.policy import Normaliser
from esac_mpi.rollout import Best, Board, Counters


@dataclass
class State:
    """All that changes, beside the learner on rank 0."""

    theta_sac: np.ndarray = field(metadata={"shared": True})  # float32 [d] the actor's mean
    generation: int = 0
    counters: Counters = field(default_factory=Counters)
    best: Best = field(default_factory=Best)

    @property
    def policies(self) -> dict[str, np.ndarray]:
        """The policies to evaluate, by name."""
        return {"sac": self.theta_sac}

    @property
    def normaliser(self) -> Normaliser | None:
        """None: SAC sees plain observations."""
        return None


def init(params: Params, world: Any) -> State:
    """Return the state before the first generation."""
    return State(world.share(params.layout.initial(params.config.seed, THETA_SAC)))


def board(params: Params) -> Board:
    """Return the shape of what the ranks put together of a generation: nothing, rank 0 plays alone."""
    return Board(0, 0)


def generation(params: Params, state: State, world: Any, env: Env, learner: Any) -> tuple[Row, Row]:
    """Make one generation: train for steps_per_generation steps; return its metrics and its timing."""
    k, start = state.generation + 1, world.clock()
    if learner is not None:
        learner.hold()
        steps = learner.begin(env, k, 0, params.config.sac.steps_per_generation, cut=True)
        world.background = Flight(steps, k, world.clock, world.watchdog.beat)
    phase, busy, _ = finish(world)
    enter(phase, world, state.counters, state.theta_sac, learner)
    state.generation = k
    state.counters.nominal_steps += phase.env_steps
    row = {**metrics(phase), "theta_norm": float(np.sqrt(np.square(state.theta_sac, dtype=np.float64).sum()))}
    return row, {"busy_seconds": busy, "seconds_learn": world.clock() - start}


class Flight:
    """A learner's phase on its way, on rank 0: a slice at a time beside other work, or the rest of it at once."""

    SLICE = 0.002  # least time of a slice [s]

    def __init__(
        self,
        steps: Generator[None, None, Phase],
        k: int,
        clock: Callable[[], float],
        beat: Callable[[], None] = lambda: None,
        name: str = "SAC",
    ) -> None:
        self._steps, self._k, self._clock, self._beat, self._name = steps, k, clock, beat, name
        self._phase: Phase | None = None
        self._error: Exception | None = None
        self.seconds = 0.0  # spent on it so far

    @property
    def done(self) -> bool:
        """Whether the phase has ended; its result, or its error, waits for the generation that it is due in."""
        return self._phase is not None or self._error is not None

    def advance(self, seconds: float = SLICE) -> None:
        """Go on for at least `seconds`, or to the end of the phase."""
        start = self._clock()
        try:
            while self._clock() < start + seconds:
                next(self._steps)
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
        if not self.done:
            self.advance(math.inf)
        if self._error is not None:
            raise self._error
        assert self._phase is not None
        return self._phase


def finish(world: Any) -> tuple[Phase, np.ndarray, float]:
    """End rank 0's phase in flight; give every rank its counts.

    Returns the phase, busy seconds [ranks], and on rank 0 the seconds spent on the phase since it began. Nothing is changed but
    the learner, which is held as it was at the phase's start: an Abandoned phase leaves no trace in a checkpoint.
    """
    flight = world.background
    numbers, busy = world.at_root(lambda: flight.finish().vector(), Phase.SIZE)
    world.background = None
    return Phase.of(numbers), busy, flight.seconds if flight else np.nan


def enter(phase: Phase, world: Any, counters: Counters, theta: np.ndarray, learner: Any) -> None:
    """Let the result of a phase that has ended enter: the learner's actor, on every node, and the counts."""
    if learner is not None:
        learner.release()
        theta[:] = learner.theta
    world.broadcast_shared(theta)
    counters.env_steps_learner += phase.env_steps
    counters.gradient_updates += phase.gradient_updates
    counters.unstable_episodes += phase.unstable_episodes
    counters.sac_phases += 1


def metrics(phase: Phase | None) -> Row:
    """Return a row's columns about the learner; nan where no phase ran."""
    phase = phase or Phase()
    return {
        "sac_episodes": phase.episodes,
        "sac_episodic_return": phase.episodic_return,
        "sac_critic_loss": phase.critic_loss,
        "sac_actor_loss": phase.actor_loss,
        "sac_value_loss": phase.value_loss,
        "sac_mean_q": phase.mean_q,
        "sac_temperature": phase.temperature,
        "sac_entropy": phase.entropy,
    }
