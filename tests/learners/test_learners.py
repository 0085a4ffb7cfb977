"""What holds for every gradient learner: it learns a line.

Its program does not depend on ranks, and its settings are checked.
"""

import gc
import sys
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROUTINE, TASK
from gradients import Breaking, Line
from small_learners import RIVALS, learner
from whole_runs import assert_same_run, summary

from esac_mpi.algorithms import td3
from esac_mpi.config import Config, updated
from esac_mpi.host import cooperative
from esac_mpi.learners import LEARNERS, load
from esac_mpi.operators.policy import Layout, Policy
from esac_mpi.record import Run

pytestmark = pytest.mark.slow

LINE: dict[str, dict] = {
    # what the line needs beside one learning rate for all:
    # a learner without an entry has its defaults
    "sac": {"temperature": 0.01},
    "ddpg": {"critic_weight_decay": 0.0, "tau": 0.005},
    "ppo": {
        "epochs": 40,
        "initial_std": 0.3,
    },  # twice 40 updates on each 100 steps, after which it forgets them
}
OUTPUT = {"ppo": "clip"}  # how the policy is evaluated, where not by tanh


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    "name", [name for name in LEARNERS if name not in ("erl", "cem")]
)  # play no episodes
def test_every_learner_learns_a_line(name, seed):
    """a = x/2 within 900 updates: rms error of the policy over [-1, 1] below 0.06.

    10 seeds: 0.010-0.051; at first 0.18-0.37.
    """
    table = getattr(Config(), name)
    rates = {f.name: 3e-3 for f in fields(table) if f.name.startswith("lr_")}
    common = {"gamma": 0.5, "batch_size": 64, "replay_capacity": 1000, "start_steps": 100}
    made = learner(name, (1, 32, 32, 1), seed=seed, **rates, **common, **LINE.get(name, {}))
    policy = Policy(
        Layout((1, 32, 32, 1)), "relu", OUTPUT.get(name, "tanh"), -np.ones(1), np.ones(1)
    )
    x = np.linspace(-1, 1, 41, dtype=np.float32)

    def error() -> float:
        policy.set(made.theta)
        return float(
            np.sqrt(np.mean([(policy(x[i : i + 1])[0] - x[i] / 2) ** 2 for i in range(len(x))]))
        )

    before, env = error(), Line()
    updates = sum(made.phase(env, k, 0, 100).gradient_updates for k in range(9))
    assert 700 <= updates <= 900
    assert error() < 0.06 < 0.1 < before


def test_what_torch_makes_is_not_looked_through_for_garbage_and_all_that_follows_is(monkeypatch):
    seen = []
    monkeypatch.delitem(sys.modules, "torch")  # as if this were the first learner
    monkeypatch.setattr(
        "esac_mpi.learners.import_module", lambda name: seen.append((name, gc.isenabled()))
    )
    load("sac")
    assert seen == [("esac_mpi.learners.sac", False)]
    assert gc.get_freeze_count() > 100_000
    assert gc.isenabled()
    gc.unfreeze()
    monkeypatch.undo()
    load("sac")  # torch is there
    assert gc.get_freeze_count() == 0
    assert gc.isenabled()


@pytest.mark.parametrize("name", RIVALS)
def test_the_program_does_not_depend_on_ranks_or_restarts(tmp_path, name, alone, together):
    table = {
        "steps_per_generation": 35,
        "start_steps": 50,
        "batch_size": 16,
        "replay_capacity": 200,
    }
    table |= {"observation_normalisation": name == "ddpg", "critic_layer_norm": name == "td3"}
    options = [token for key, value in table.items() for token in (f"--{name}.{key}", value)]
    arguments = [
        "--algorithm",
        name,
        *TASK,
        *ROUTINE,
        *options,
        "--policy.layer_norm",
        name == "ddpg",
    ]
    alone(*arguments, "--budget.generations", 8, "--run-dir", tmp_path / "straight")
    alone(
        *arguments, "--budget.generations", 5, "--run-dir", tmp_path / "parts"
    )  # after 125 updates: odd
    together(2, *arguments, "--budget.generations", 8, "--run-dir", tmp_path / "parts")
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    said = summary(tmp_path / "parts")
    assert said["env_steps"]["learner"] == said["nominal_steps"] == 8 * 35
    assert said["gradient_updates"] == 8 * 35 - 50
    assert said["last_evaluation"][name] == said["final_return"]


def test_episodes_played_on_all_ranks_do_not_depend_on_them(tmp_path, alone, together):
    """Whole episodes of Pendulum, truncated at 30 steps.

    Two a generation, uniform in those that begin before 100 steps.
    """
    table = {
        "episodes_on": "ranks",
        "episodes_per_generation": 2,
        "start_steps": 100,
        "batch_size": 16,
        "replay_capacity": 150,
    }
    table |= {"observation_normalisation": True}
    options = [token for key, value in table.items() for token in (f"--td3.{key}", value)]
    arguments = [
        "--algorithm",
        "td3",
        "--task.id",
        "Pendulum-v1",
        "--task.horizon",
        30,
        *ROUTINE,
        *options,
    ]
    alone(*arguments, "--budget.generations", 6, "--run-dir", tmp_path / "straight")
    alone(*arguments, "--budget.generations", 2, "--run-dir", tmp_path / "parts")
    together(3, *arguments, "--budget.generations", 6, "--run-dir", tmp_path / "parts")
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    said, rows = summary(tmp_path / "parts"), Run.open(tmp_path / "parts").columns
    assert said["env_steps"]["learner"] == said["nominal_steps"] == 6 * 60
    assert rows["metrics/gradient_updates"].tolist() == [0, 20, 80, 140, 200, 260]
    assert rows["metrics/td3_episodes"].tolist() == [2] * 6


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("how", ["raise", "huge"])
def test_episodes_that_others_played_are_taken_over_whole(name, how):
    """Two of 20 steps, uniform; two by the actor; one that breaks in its fourth step.

    That one is counted and not stored.
    """

    class Alone:
        waited = 0.0

        def map(self, work, count, columns, expected, bulk):
            return np.stack([work(i) for i in range(count)]), np.zeros(1)

        def clock(self):
            return 0.0

    def collect(env, episodes, k, noise):
        config = updated(Config(), {"algorithm": "td3", "td3.episodes_per_generation": episodes})
        params = SimpleNamespace(config=config, layout=layout, horizon=20)
        state = SimpleNamespace(generation=k - 1, theta=made.theta, normaliser=None)
        return td3.play(params, state, Alone(), env, noise).episodes()

    env, made = Line(), learner(name, start_steps=40, interleaved=False)
    layout = Layout((1, 8, 8, 1))
    mean = Policy(layout, "relu", "tanh", -np.ones(1), np.ones(1)).set(made.theta)
    uniform = collect(env, 2, 1, None)
    acted = collect(env, 2, 2, 0.0)
    broken = collect(Breaking(how), 1, 3, 0.0)
    assert [(len(rows), steps) for rows, _, steps in [*uniform, *acted, *broken]] == [
        (20, 20)
    ] * 4 + [(3, 4)]
    assert np.ptp(uniform[0][0][:, 1]) > 1.5
    assert np.array_equal(
        acted[1][0][:, 1], [mean(row[:1].astype(np.float32))[0] for row in acted[1][0]]
    )
    x, a, reward, terminated, following = acted[0][0].T
    assert reward == pytest.approx(-((a - x / 2) ** 2), rel=1e-5, abs=1e-7)
    assert not terminated.any()
    assert np.array_equal(following[:-1], x[1:])
    assert acted[0][1] == pytest.approx(
        -np.sum((acted[0][0][:, 1] - acted[0][0][:, 0] / 2) ** 2), rel=1e-5
    )
    assert len(set(env.seeds)) == 4
    assert np.isnan(broken[0][1])

    phase = cooperative.run(made.take(uniform, 1))
    assert (phase.env_steps, phase.episodes, phase.gradient_updates) == (40, 2, 0)
    phase = cooperative.run(made.take([*acted, *broken], 2))
    assert (phase.env_steps, phase.episodes, phase.unstable_episodes, phase.gradient_updates) == (
        44,
        2,
        1,
        44,
    )
    assert phase.episodic_return == pytest.approx((acted[0][1] + acted[1][1]) / 2)
    stored = made.replay.rows(0, made.replay.added)
    expected = np.vstack([rows for rows, *_ in [*uniform, *acted, *broken]]).astype(np.float32)
    assert np.array_equal(
        np.column_stack(
            [stored[key].reshape(len(expected), -1) for key in made.replay.columns._fields]
        ),
        expected,
    )
