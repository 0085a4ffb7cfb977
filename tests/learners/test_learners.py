"""What holds for every gradient learner: it learns a line, on any ranks with the same bits."""

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROUTINE, TASK
from gradients import Breaking, Line
from small_learners import RIVALS, learner
from whole_runs import assert_same_run, summary
from words import of_table, words

from esac_mpi.algorithms import td3
from esac_mpi.config import Config, amend
from esac_mpi.host import cooperative
from esac_mpi.operators.policy import Layout, Policy
from esac_mpi.record import Run

pytestmark = pytest.mark.slow

SMALL = {"start_steps": 50, "batch_size": 16, "replay_capacity": 200}


@pytest.mark.parametrize("name", RIVALS)
def test_the_program_does_not_depend_on_ranks_or_restarts(tmp_path, name, alone, together):
    form = {"observation_normalisation": name == "ddpg", "critic_layer_norm": name == "td3"}
    line = ["--algorithm", name, *TASK, *ROUTINE, "--policy.layer_norm", name == "ddpg"]
    line += of_table(name, steps_per_generation=35, **SMALL, **form)
    straight, parts = tmp_path / "straight", tmp_path / "parts"
    alone(*line, "--budget.generations", 8, "--run-dir", straight)
    alone(*line, "--budget.generations", 5, "--run-dir", parts)  # after 125 updates: odd
    together(2, *line, "--budget.generations", 8, "--run-dir", parts)
    assert_same_run(straight, parts)
    said = summary(parts)
    assert said["env_steps"]["learner"] == said["nominal_steps"] == 8 * 35
    assert said["gradient_updates"] == 8 * 35 - 50
    assert said["last_evaluation"][name] == said["final_return"]


def test_episodes_played_on_all_ranks_do_not_depend_on_them(tmp_path, alone, together):
    """Two of 30 steps a generation, uniform in those that begin before 100 steps."""
    line = words("--algorithm td3 --task.id Pendulum-v1 --task.horizon 30")
    form = {**SMALL, "start_steps": 100, "replay_capacity": 150, "observation_normalisation": True}
    line += [*ROUTINE, *of_table("td3", episodes_on="ranks", episodes_per_generation=2, **form)]
    straight, parts = tmp_path / "straight", tmp_path / "parts"
    alone(*line, "--budget.generations", 6, "--run-dir", straight)
    alone(*line, "--budget.generations", 2, "--run-dir", parts)
    together(3, *line, "--budget.generations", 6, "--run-dir", parts)
    assert_same_run(straight, parts)
    said, rows = summary(parts), Run.open(parts).columns
    assert said["env_steps"]["learner"] == said["nominal_steps"] == 6 * 60
    assert rows["metrics/gradient_updates"].tolist() == [0, 20, 80, 140, 200, 260]
    assert rows["metrics/td3_episodes"].tolist() == [2] * 6


class Alone:
    """A world of one rank, as far as episodes need it."""

    waited = 0.0

    def map(self, work, count, columns, expected, bulk):
        return np.stack([work(i) for i in range(count)]), np.zeros(1)

    def clock(self):
        return 0.0


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("how", ["raise", "huge"])
def test_episodes_that_others_played_are_taken_over_whole(name, how):
    """Two of 20 steps, uniform; two by the actor; one that breaks in its fourth step."""

    def collect(env, episodes, k, noise):
        config = amend(Config(), {"algorithm": "td3", "td3.episodes_per_generation": episodes})
        params = SimpleNamespace(config=config, layout=layout, horizon=20)
        state = SimpleNamespace(generation=k - 1, theta=made.theta, normaliser=None)
        return td3.play(params, state, Alone(), env, noise).episodes()

    env, made = Line(), learner(name, start_steps=40, interleaved=False)
    layout = Layout((1, 8, 8, 1))
    mean = Policy(layout, "relu", "tanh", -np.ones(1), np.ones(1)).set(made.theta)
    uniform, acted = collect(env, 2, 1, None), collect(env, 2, 2, 0.0)
    broken = collect(Breaking(how), 1, 3, 0.0)
    assert [(len(rows), steps) for rows, _, steps in [*uniform, *acted]] == [(20, 20)] * 4
    assert [(len(rows), steps) for rows, _, steps in broken] == [(3, 4)]
    assert np.isnan(broken[0][1])
    assert np.ptp(uniform[0][0][:, 1]) > 1.5
    means = [mean(row[:1].astype(np.float32))[0] for row in acted[1][0]]
    assert np.array_equal(acted[1][0][:, 1], means)
    x, a, reward, terminated, following = acted[0][0].T
    assert reward == pytest.approx(-((a - x / 2) ** 2), rel=1e-5, abs=1e-7)
    assert acted[0][1] == pytest.approx(-np.sum((a - x / 2) ** 2), rel=1e-5)
    assert not terminated.any()
    assert np.array_equal(following[:-1], x[1:])
    assert len(set(env.seeds)) == 4

    phase = cooperative.run(made.take(uniform, 1))
    assert (phase.env_steps, phase.episodes, phase.gradient_updates) == (40, 2, 0)
    phase = cooperative.run(made.take([*acted, *broken], 2))
    assert (phase.env_steps, phase.episodes, phase.unstable_episodes) == (44, 2, 1)
    assert phase.gradient_updates == 44
    assert phase.episodic_return == pytest.approx((acted[0][1] + acted[1][1]) / 2)
    expected = np.vstack([rows for rows, *_ in [*uniform, *acted, *broken]]).astype(np.float32)
    stored = made.replay.rows(0, made.replay.added).values()  # by the order of a row's columns
    assert np.array_equal(np.column_stack(list(stored)), expected)
