"""Observations and actions that are not finite end the episode, are counted and are named."""

import gymnasium
import numpy as np
import pytest
from in_process import checked, refused, started
from own_envs import Walk
from warm_starts import options
from whole_runs import assert_same_run, science
from words import words

from esac_mpi import envs
from esac_mpi.config import ALGORITHMS
from esac_mpi.envs import TaskError, UnstablePhysics, probe
from esac_mpi.operators import kernels
from esac_mpi.operators.policy import Layout, Policy
from esac_mpi.play.rollout import explore, play
from esac_mpi.record import read

pytestmark = pytest.mark.slow

BAD = [np.nan, -np.nan, np.inf, -np.inf]


def test_whether_numbers_are_finite():
    for size in (0, 1, 3, 376):
        numbers = np.resize(np.array([0.0, -3e38, 1e-45, 3.4e38], np.float32), size)
        assert kernels.finite(numbers)
        for place in {0, size // 2, size - 1} if size else ():
            for bad in BAD:
                spoilt = numbers.copy()
                spoilt[place] = bad
                assert not kernels.finite(spoilt)


class Line(Walk):
    """Observe three numbers, the third of them `bad` at one moment: the reset, 0, or that step."""

    moment, bad = 0, 0.0

    def reset(self, *, seed=None, options=None):
        self.number = -1
        return super().reset(seed=seed)

    def observe(self):
        self.number += 1
        return np.array([0.0, 1.0, Line.bad if self.number == Line.moment else 2.0])

    def step(self, action):
        return self.observe(), 1.0, False, False, {}


gymnasium.register("Line-v0", Line, max_episode_steps=9)


@pytest.fixture
def line(monkeypatch):
    """Return a function that makes the task with a bad number at a moment."""

    def made(moment, bad):
        monkeypatch.setattr(Line, "moment", moment)
        monkeypatch.setattr(Line, "bad", bad)
        return envs.make("Line-v0")

    return made


def policy_of(env):
    layout = Layout((env.observation_size, env.action_size))
    policy = Policy(layout, "tanh", "tanh", env.low, env.high)

    def act(observation):
        assert np.isfinite(observation).all()
        return policy(observation)

    act.low, act.high = policy.low, policy.high
    return act


@pytest.mark.parametrize("bad", [*BAD, 1e39])  # the last is beyond float32
@pytest.mark.parametrize("moment", [0, 1, 5])
@pytest.mark.filterwarnings("ignore:overflow")
def test_an_episode_ends_at_an_observation_that_is_not_finite(line, moment, bad):
    env = line(moment, bad)
    episode = play(env, policy_of(env), 0)
    assert np.isnan(episode.episodic_return)
    assert episode.episodic_length == moment
    assert env.not_finite == f"observation[2] is {np.float32(bad)}"
    rows, explored = explore(env, policy_of(env), 0)
    assert np.isnan(explored.episodic_return)
    assert (explored.episodic_length, len(rows)) == (moment, max(moment - 1, 0))
    assert np.isfinite(rows).all()


def test_an_episode_of_finite_but_large_observations_goes_on(line):
    env = line(3, 3e38)
    assert play(env, policy_of(env), 0).episodic_return == 9


@pytest.mark.parametrize("task", ["HalfCheetah-v5", "dm_control/cartpole-swingup-v0"])
def test_the_own_steps_of_fast_tasks_are_looked_at_too(task):
    env = envs.make(task)
    assert env.closed_loop is not None
    bad = env.reset(0)
    bad[1] = np.inf
    env.closed_loop.step = lambda action: (bad, 1.0, False)
    with pytest.raises(UnstablePhysics, match=r"observation\[1\] is inf"):
        env.step(env.high)


@pytest.mark.parametrize("task", ["CartPole-v1", "CyclicMDP-v0", "Pendulum-v1"])
def test_an_action_that_is_not_finite_is_taken_for_none(task):
    env = envs.make(task)
    env.reset(0)
    action = np.zeros(env.action_size, np.float32)
    action[-1] = np.nan
    with pytest.raises(UnstablePhysics, match=rf"action\[{env.action_size - 1}\] is nan"):
        env.step(action)


def test_the_first_steps_tell_of_it_and_may_refuse_the_task(line):
    assert probe.probe(line(0, 0.0)).not_finite == ""
    env = line(7, np.nan)
    assert "Line-v0: observation[2] is nan in its first steps" in probe.probe(env).not_finite
    assert env.not_finite == ""  # what episodes have is told apart
    said = r"no observation .* is finite: observation\[2\] is nan"
    for moment in (0, 1):
        with pytest.raises(TaskError, match=said):
            probe.probe(line(moment, np.nan))


def test_the_start_and_the_check_warn(line, tmp_path, capsys):
    line(7, np.nan)
    made = words("--algorithm es --task.id Line-v0 --policy.hidden 4 --run-dir", tmp_path / "run")
    assert checked(*made) == 0
    assert "observation[2] is nan in its first steps" in capsys.readouterr().out
    line(0, np.nan)
    assert "observation[2] is nan" in refused(*made)


def blinded(algorithm):
    task = ["--task.id", "own_envs:Blinded-v0"]
    return [*options(algorithm), *task, "--budget.generations", 12]


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a not in ("erl", "perl", "derl")])
def test_every_algorithm_counts_such_episodes_in_the_same_words(tmp_path, caplog, algorithm):
    # 1: no evaluation without such an episode
    assert started(*blinded(algorithm), "--run-dir", tmp_path / "run") in (0, 1)
    (told,) = [line for line in caplog.text.splitlines() if "told once" in line]
    assert "own_envs:Blinded-v0: observation[1] is " in told
    assert science(tmp_path / "run")["metrics/unstable_episodes"][-1] > 0
    kept = ("replay", "learner/", "state/observation_sums", "state/noise_sums", "state/population")
    for name, array in read(tmp_path / "run/checkpoint.h5")[0].items():
        assert not name.startswith(kept) or np.isfinite(array).all(), name


@pytest.mark.parametrize("standardised", ["true", "false"])  # false: their noise is scaled
def test_ranks_say_it_once_and_have_the_same_bits(tmp_path, alone, together, standardised):
    made = [*blinded("es"), "--es.observation_normalisation", standardised]
    done = together(3, *made, "--run-dir", tmp_path / "three")
    (told,) = [line for line in done.stdout.splitlines() if "told once" in line]
    assert "observation[1] is " in told
    alone(*made, "--run-dir", tmp_path / "one")
    assert_same_run(tmp_path / "one", tmp_path / "three")
