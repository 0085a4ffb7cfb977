"""A learner's own steps in a task's closed loop: those that it takes one by one, to the bit."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from gradients import Line
from small_learners import learner, perturbed, run_phase

from esac_mpi import envs
from esac_mpi.envs.closed_loop import Run
from esac_mpi.learners import LearnerNotFinite, cpu, explorers

pytestmark = pytest.mark.skipif(not cpu.KIND, reason="no compiled learner here")
SUMS = np.array([[10.0], [1.0], [20.0]])


def compiled(env, **values):
    sizes = (env.observation_size, 8, 8, env.action_size)
    return perturbed(learner("sac", sizes, learner__kernels="compiled", **values))


def phases(task, closed, **values):
    """Play three phases that cut episodes and learn; return what they did and made."""
    env = envs.make(task, 50)
    if not closed:
        env.closed_loop = None
    made = compiled(env, **values)
    sums = np.repeat(SUMS, env.observation_size, 1)
    did = [run_phase(made, env, k, 0, 77, True, sums, 40) for k in range(3)]
    return did, made.arrays() | made.replay.rows(0, 231) | {"seen": made.seen}


@pytest.mark.parametrize("values", [{}, {"policy__linear": True, "sac__start_steps": 0}])
@pytest.mark.parametrize("task", ["HalfCheetah-v5", "Hopper-v5", "dm_control/cheetah-run-v0"])
def test_steps_in_the_loop_are_those_one_by_one(task, values):
    (did, made), (expected, alone) = (phases(task, closed, **values) for closed in (True, False))
    assert all(np.array_equal(made[name], alone[name]) for name in alone)
    for phase, other in zip(did, expected, strict=True):
        np.testing.assert_array_equal(phase.vector(), other.vector())


@pytest.mark.parametrize("most", [1, 7])
def test_how_many_steps_are_at_once_changes_nothing(most, monkeypatch):
    _, expected = phases("Hopper-v5", True)
    monkeypatch.setattr(explorers, "SLICE", most)
    _, made = phases("Hopper-v5", True)
    assert all(np.array_equal(made[name], expected[name]) for name in expected)


def test_interleaved_steps_are_taken_alone(monkeypatch):
    monkeypatch.setattr(explorers.CompiledExplorer, "_run", lambda *_: pytest.fail("a run"))
    env = envs.make("Swimmer-v5")
    made = compiled(env, sac__start_steps=0, sac__interleaved=True)
    assert run_phase(made, env, 0, 0, 20, True).env_steps == 20


class Closed(Line):
    """A line in a closed loop, whose fifth step is broken in some way."""

    def __init__(self, how):
        super().__init__()
        self.how, self.closed_loop = how, self

    def run(self, drive, observation, most):
        n = min(most, 5 - self.length)
        actions, seen = np.zeros((n, 1), np.float32), np.zeros((n + 1, 1), np.float32)
        network = SimpleNamespace(run=lambda *given: None)
        drive(network, seen, np.zeros((n + 1, 0)), actions)
        self.length += n
        broken = self.length == 5
        rewards, terminated = [1.0] * n, False
        if broken and self.how == "raise":
            rewards[-1], terminated, n = math.nan, True, n - 1
        if broken and self.how == "reward":
            rewards[-1], terminated = 1e39, True
        if broken and self.how == "observation":
            seen[-1] = math.inf
        self.unstable = broken and self.how == "warn"
        return Run(seen[: n + 1], actions[:n], rewards, terminated)

    def reset(self, seed):
        self.unstable = False
        return super().reset(seed)


@pytest.mark.parametrize("how", ["raise", "warn", "reward", "observation"])
def test_a_broken_step_in_the_loop_ends_the_episode_and_is_not_stored(how):
    env = Closed(how)
    made = compiled(env, sac__start_steps=0)
    phase = run_phase(made, env, 0, 2, 0)
    assert (phase.env_steps, phase.episodes, phase.unstable_episodes) == (10, 0, 2)
    assert math.isnan(phase.episodic_return)
    assert made.replay.added == 8


def not_finite(task, closed):
    """Return what is said of an actor that overflows when the last observation is above 0."""
    env = envs.make(task)
    if not closed:
        env.closed_loop = None
    sizes = (env.observation_size, 2, env.action_size)
    made = learner("sac", sizes, learner__kernels="compiled", start_steps=3)
    (hidden, bias, *_), (mean, *_) = made.actor.layout.grouped(made.actor.tensors)
    made.actor.values.zero_()
    hidden[-1], bias[:] = 3.4e38, 3.4e38
    mean[0], mean[1] = 1.0, -1.0
    with pytest.raises(LearnerNotFinite) as error:
        run_phase(made, env, 0, 0, 50)
    return str(error.value)


@pytest.mark.parametrize("task", ["HalfCheetah-v5", "dm_control/cheetah-run-v0"])
def test_an_actor_that_is_not_finite_is_named_by_the_same_step(task):
    told = not_finite(task, True)  # where the suite's simulator raises
    assert told == not_finite(task, False)
    start, step = told.rsplit(" ", 1)
    assert start == "the actor's action is not finite at training step"
    assert int(step) > 3  # beside others that were finite
