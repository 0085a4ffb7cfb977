"""Phases on their way: where they begin, what they leave, how they are told to other ranks."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from esac_mpi.comm.clock.generations import PHASE_NUMBERS
from esac_mpi.play import learner_phases
from esac_mpi.play.counters import Counters
from esac_mpi.play.learner_phases import Phase


class Pupil:
    """A learner whose phase k has k steps and leaves theta at k."""

    NAME = "TD3"

    def __init__(self):
        self.theta, self.held, self.seen = np.zeros(2, np.float32), [], np.full(2, 2.0)

    def hold(self):
        self.held.append(True)

    def release(self):
        self.held.append(False)

    def begin(self, k):
        for _ in range(k):
            yield
        self.theta[:] = k
        return Phase.summed_up(k, [1.0, math.nan, 3.0], 2 * k, mean_q=0.5)


def test_a_phase_sums_up_its_episodes():
    phase = replace(Phase.summed_up(9, [1.0, math.nan, 3.0], 4, critic_loss=0.5), replayed_steps=5)
    counts = phase.env_steps, phase.episodes, phase.unstable_episodes, phase.gradient_updates
    assert counts == (9, 2, 1, 4)
    assert (phase.episodic_return, phase.critic_loss, phase.replayed_steps) == (2.0, 0.5, 5)
    assert math.isnan(phase.mean_q)
    assert math.isnan(Phase.summed_up(9, [math.nan], 0).episodic_return)
    assert np.array_equal(Phase.of(phase.vector()).vector(), phase.vector(), equal_nan=True)
    assert len(phase.vector()) == Phase.SIZE == PHASE_NUMBERS  # as clocks have it


def test_a_phase_is_counted_and_enters_when_it_is_let(world, monkeypatch):
    pupil, counters, theta, beats = Pupil(), Counters(), np.full(2, 9, np.float32), []
    monkeypatch.setattr(world.watchdog, "beat", lambda: beats.append(world.in_flight))
    learner_phases.begin(world, pupil, 3, lambda own: own.begin(3))
    learner_phases.begin(world, pupil, 5, lambda own: own.begin(5))  # one is in flight: it stays
    phase, _, _ = learner_phases.finish(world)
    assert (pupil.held, phase.env_steps) == ([True], 3)
    assert (world.background, world.learning) == (None, False)
    assert beats == [3] * 4  # after each part, and the exchange
    assert theta.tolist() == [9, 9]
    learner_phases.enter(phase, world, counters, theta, pupil)
    assert (pupil.held, theta.tolist()) == ([True, False], [3, 3])
    counts = {"env_steps_learner": 3, "gradient_updates": 6, "unstable_episodes": 1}
    assert counters == Counters(**counts, learner_phases=1)


@pytest.mark.parametrize(
    ("standardises", "given", "after"), [(True, [1, 1], [3, 3]), (False, None, [1, 1])]
)
def test_a_generation_of_one_phase_is_counted_and_enters(world, standardises, given, after):
    pupil, theta = Pupil(), np.zeros(2, np.float32)
    state = SimpleNamespace(generation=4, counters=Counters(), observation_sums=np.ones(2))
    begun = []

    def steps(own, k, sums):
        begun.append((k, sums if sums is None else sums.tolist()))
        return own.begin(k)

    phase, row, timing = learner_phases.one_phase(world, pupil, state, theta, steps, standardises)
    assert begun == [(5, given)]
    assert (phase.env_steps, state.generation) == (5, 5)
    assert (state.observation_sums.tolist(), theta.tolist()) == (after, [5, 5])
    counts = {"env_steps_learner": 5, "nominal_steps": 5, "gradient_updates": 10}
    assert state.counters == Counters(**counts, unstable_episodes=1, learner_phases=1)
    assert row == {"theta_norm": 50**0.5}
    assert [*timing] == ["busy_seconds", "seconds_learn", "seconds_phase", "seconds_updates"]


def test_a_rank_without_the_learner_begins_nothing(world):
    learner_phases.begin(world, None, 3, lambda own: pytest.fail("begun"), beside=True)
    assert (world.background, world.learning) == (None, True)
    world.end_background()
    assert world.learning is False


def test_an_error_names_the_learner_and_the_generation(world):
    def broken(_):
        yield
        raise FloatingPointError

    learner_phases.begin(world, Pupil(), 4, broken)
    with pytest.raises(FloatingPointError) as error:
        learner_phases.finish(world)
    assert error.value.__notes__ == ["in the TD3 phase of generation 4"]
