"""AES-RL: the same bits on any ranks, restarts, counts, what an arrival does.

The bits are the same though nobody waits for a generation.
"""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import EAGER, ROUTINE, run
from in_process import checked, started
from whole_runs import assert_same_run, killed_at, summary

from esac_mpi.algorithms.aes_driver import Driver
from esac_mpi.algorithms.aes_moves import moved
from esac_mpi.algorithms.aes_state import COLUMNS
from esac_mpi.algorithms.aes_work import TIMES, Result
from esac_mpi.analysis.clock import Machine, computed, grid
from esac_mpi.analysis.times import idle_share
from esac_mpi.config import AESRL
from esac_mpi.learners import LearnerNotFinite
from esac_mpi.play.counters import Counters
from esac_mpi.record import Run
from esac_mpi.training.check import directory

pytestmark = pytest.mark.slow

SMALL = [
    *(
        "--algorithm",
        "aes_rl",
        "--policy.hidden",
        8,
        8,
        *ROUTINE[3:],
        "--aes_rl.workers",
        3,
        "--aes_rl.start_steps",
        200,
    ),
    *(
        "--aes_rl.batch_size",
        16,
        "--aes_rl.critic_chunk",
        60,
        "--aes_rl.mean_episodes",
        2,
        "--aes_rl.actor_updates_window",
        3,
    ),
    *("--aes_rl.arrivals_per_generation", 6, "--checkpoint.every_generations", 2),
    *("--aes_rl.update_cost", 0.5),
]
OTHER = [*SMALL]  # of another mean rule
SMALL += ["--aes_rl.relative_baseline", 100, "--aes_rl.critic_layer_norm", "true"]
TASK = ["--task.id", "own_envs:Delayed-v0"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory, alone):
    path = tmp_path_factory.mktemp("aes") / "straight"
    alone(
        *SMALL, *TASK, "--aes_rl.replay_capacity", 500, "--budget.generations", 8, "--run-dir", path
    )
    return path


def test_ranks_nodes_and_restarts_leave_the_bits_as_they_are(
    straight, tmp_path, monkeypatch, together
):
    """Delayed at random by machine and task.

    Four ranks have a task each, two share them, and one does all.
    """
    line = [*SMALL, *TASK, "--aes_rl.replay_capacity", 500]  # a ring that is written over
    together(2, *line, "--budget.generations", 3, "--run-dir", tmp_path / "parts")
    monkeypatch.setenv("NODES", "2")
    run(4, *line, "--budget.generations", 8, "--run-dir", tmp_path / "parts", program=EAGER)
    assert_same_run(straight, tmp_path / "parts")


KILLS = [
    ("esac_mpi.record.lock:Held.publish", 3),
    ("esac_mpi.algorithms.aes_driver:Driver._taught", 2),
    ("esac_mpi.algorithms.aes_driver:Driver._give", 17),
    ("esac_mpi.record.lock:Held.store", 2),
]


def test_killed_at_any_moment_it_goes_on_as_it_would_have(straight, tmp_path, alone):
    line = [
        *SMALL,
        *TASK,
        "--aes_rl.replay_capacity",
        500,
        "--budget.generations",
        8,
        "--run-dir",
        tmp_path / "killed",
    ]
    killed_at(KILLS, *line)
    alone(*line)
    assert_same_run(straight, tmp_path / "killed")


def test_the_clock_goes_on_and_individuals_are_trained_by_a_critic_that_never_stops(straight):
    rows = Run.open(straight).columns
    ends = rows["metrics/virtual_end"].ravel()
    assert (np.diff(ends) >= 0).all()
    trained = rows["metrics/learned"].ravel().astype(bool)
    assert 0 < trained.mean() < 1
    length = rows["metrics/length"].ravel()
    assert (np.cumsum(length)[trained][0]) > 200
    assert rows["metrics/gradient_updates"][-1] % 60 == 0
    assert rows["metrics/gradient_updates"][-1] <= length.sum()
    assert {*rows["metrics/worker"].ravel().astype(int).tolist()} == {0, 1, 2}
    assert rows["metrics/lag"].max() >= 2  # others arrive between, and are not waited for
    assert (
        rows["metrics/p"].ravel()[: int(np.searchsorted(np.cumsum(length), 200))] == 0
    ).all()  # nothing moves before
    said = summary(straight)
    assert said["nominal_steps"] == length.sum()
    tasks = Run.open(straight).columns["timing/task_steps"]
    assert said["env_steps"]["population"] == np.nansum(
        tasks
    )  # with the mean's episodes, which it moves by


def test_counters_are_what_the_environment_counted(tmp_path, monkeypatch, alone):
    (tmp_path / "counts").mkdir()
    monkeypatch.setenv("COUNT_DIR", str(tmp_path / "counts"))
    alone(
        *SMALL,
        "--task.id",
        "own_envs:Counting-v0",
        "--budget.generations",
        4,
        "--run-dir",
        tmp_path / "run",
    )
    counted = sum(f.stat().st_size for f in (tmp_path / "counts").iterdir())
    said, probe = summary(tmp_path / "run"), Run.open(tmp_path / "run").provenance["probe_steps"]
    in_flight = counted - probe - sum(said["env_steps"].values())
    assert 0 <= in_flight <= 3 * (1 + 2) * 30  # at most a task of each worker is begun and not told


def test_an_individual_is_compared_with_the_newest_mean_that_is_known():
    """Worker 0's was trained, and drawn from an old mean.

    What the others' tasks said of a newer one stands when it comes.
    """
    aes = AESRL(workers=3, relative_baseline=100.0, start_steps=0)
    state = SimpleNamespace(
        mean=np.zeros(1, np.float32), variance=np.ones(1, np.float32),
        counters=Counters(), mean_return=np.nan, time=5,
        task_told=np.array([2, 7, 7, 0]), task_updates=np.zeros(4, int),
        row=np.zeros((9, len(COLUMNS))), arrived=0, told=9,
        mean_told=0, mean_known=0, task_mean=np.zeros((4, 1), np.float32),
    )  # fmt: skip
    driver = SimpleNamespace(
        params=SimpleNamespace(config=SimpleNamespace(aes_rl=aes)),
        state=state,
        _keep=lambda result: None,
    )
    for worker, fitness, means in (
        (1, 110.0, [100.0, 120.0]),
        (0, 60.0, [10.0, 10.0]),
        (2, 130.0, [130.0, 130.0]),
    ):
        result = Result(
            fitness,
            4,
            np.zeros((0, 0)),
            np.ones(1, np.float32),
            np.array(means),
            np.full(2, 4),
            0,
            0.0,
        )
        Driver._arrived(driver, SimpleNamespace(worker=worker), result)
    p, mean_return = (state.row[:3, COLUMNS.index(name)].tolist() for name in ("p", "mean_return"))
    assert mean_return == [110.0, 110.0, 130.0]
    assert p == pytest.approx(
        [0.5, 50 / 150, 0.5]
    )  # (100 + 60 - 110) / (100 + that); by its own mean's return 150 / 250


def test_an_unstable_episode_of_the_mean_tells_nothing_of_it():
    aes = AESRL(workers=1, relative_baseline=100.0, start_steps=0)
    state = SimpleNamespace(
        mean=np.zeros(1, np.float32), variance=np.ones(1, np.float32),
        counters=Counters(), mean_return=np.nan, time=5,
        task_told=np.zeros(2, int), task_updates=np.zeros(2, int),
        row=np.zeros((9, len(COLUMNS))), arrived=0, told=0,
        mean_told=0, mean_known=0, length_of_mean=0.0, task_mean=np.zeros((4, 1), np.float32),
    )  # fmt: skip
    driver = SimpleNamespace(
        params=SimpleNamespace(config=SimpleNamespace(aes_rl=aes)),
        state=state,
        _keep=lambda result: None,
    )
    for means in ([np.nan, np.nan], [400.0, np.nan], [np.nan, np.nan]):
        result = Result(
            50.0,
            4,
            np.zeros((0, 0)),
            np.ones(1, np.float32),
            np.array(means),
            np.full(2, 4),
            0,
            0.0,
        )
        Driver._arrived(driver, SimpleNamespace(worker=0), result)
    np.testing.assert_array_equal(state.row[:3, COLUMNS.index("mean_return")], [np.nan, 400, 400])
    assert state.row[:3, COLUMNS.index("p")].tolist() == [
        aes.p_positive,
        0,
        0,
    ]  # where nothing is known it gives way


@pytest.mark.parametrize(
    ("fitness", "mean_return", "variance", "successes"),
    [
        (np.nan, 5.0, 1.0, [0]),
        (4.0, 5.0, 0.99, [0]),
        (6.0, 5.0, 1 / 0.99, [1]),
        (4.0, np.nan, 1 / 0.99, [1]),
    ],
)
def test_by_the_rule_of_one_fifth_an_individual_without_a_return_changes_nothing(
    fitness, mean_return, variance, successes
):
    aes = AESRL(mean_rule="full_move", variance_rule="success", start_steps=0, success_window=1)
    state = SimpleNamespace(
        mean=np.zeros(2, np.float32), variance=np.ones(2, np.float32),
        mean_return=mean_return, length_of_mean=4.0,
        successes=np.zeros(1, int), counters=Counters(),
    )  # fmt: skip
    result = Result(
        fitness, 4, np.zeros((0, 0)), np.zeros(2, np.float32), np.zeros(2), np.full(2, 4), 0, 0.0
    )
    moved(aes, state, result)
    assert state.variance == pytest.approx([variance] * 2, rel=1e-6)
    assert state.successes.tolist() == successes


def test_the_agenda_knows_what_updates_last_when_a_task_is_given(tmp_path, monkeypatch):
    honest, found = Driver.told, []

    def told(driver, task):
        cost = 2.0 if task.order.theta is None else 0.5
        found.append((task.order.theta is None, task.least, math.ceil(cost * task.order.updates)))
        return honest(driver, task)

    monkeypatch.setattr(Driver, "told", told)
    line = [*SMALL, *TASK, "--aes_rl.critic_cost", 4.0, "--budget.generations", 5]
    assert started(*line, "--run-dir", tmp_path / "run") == 0
    assert all(least == lasts for _, least, lasts in found)
    assert {(critic, least > 0) for critic, least, _ in found} == {
        (True, True),
        (False, True),
        (False, False),
    }


def test_a_generation_given_up_beyond_the_budget_is_finished_and_only_then_the_run(
    tmp_path, monkeypatch, capfd
):
    """900 steps are reached before the last of a generation's arrivals, where all is given up."""
    line = [*SMALL, *TASK, "--budget.nominal_steps", 900]
    assert started(*line, "--run-dir", tmp_path / "straight") == 0
    honest, given_up = Driver.told, []

    def told(driver, task):
        enough = honest(driver, task)
        if driver.state.counters.nominal_steps >= 900 and not (enough or given_up):
            given_up.append(driver.state.arrived)
            driver.world.stop.give_up_at(0.0)
        return enough

    monkeypatch.setattr(Driver, "told", told)
    assert started(*line, "--run-dir", tmp_path / "parts") == 75
    assert 0 < given_up[0] < 6
    monkeypatch.setattr(directory, "WRITTEN", 2**20)
    less = [*SMALL, *TASK, "--budget.nominal_steps", 100, "--run-dir", tmp_path / "parts"]
    said = "transitions of its replay: go on with the budget of before"
    before = (tmp_path / "parts" / "status.json").read_text()
    assert (checked(*less), said in " ".join(capfd.readouterr().out.split())) == (2, True)
    assert (started(*less), said in capfd.readouterr().err) == (2, True)
    assert (
        tmp_path / "parts" / "status.json"
    ).read_text() == before  # refused, the run has not failed
    assert started(*line, "--run-dir", tmp_path / "parts") == 0
    assert_same_run(tmp_path / "straight", tmp_path / "parts")


def test_a_rank_that_is_never_heard_of_again_ends_the_job(tmp_path):
    """The one worker's tasks are rank 1's, which gets stuck in one; rank 0 can only wait."""
    line = [
        *SMALL,
        "--task.id",
        "own_envs:Stuck-v0",
        "--aes_rl.workers",
        1,
        "--aes_rl.start_steps",
        10**8,
    ]
    line += [
        "--stop.member_minutes",
        0,
        "--stop.silent_minutes",
        0.05,
        "--evaluation.every",
        10**6,
        "--budget.generations",
        10**5,
    ]
    done = run(2, *line, "--run-dir", tmp_path / "run", code=None)
    assert done.returncode != 0
    assert re.search(
        r"rank 0 on \S+ hangs: waiting for other ranks for \S+ minutes \(stop.silent_minutes\)",
        done.stderr,
    )


@pytest.fixture(scope="module")
def reusing(tmp_path_factory, alone):
    """Return a run of the (1+1)-ES, and the line that makes it.

    Most of its arrivals leave the mean where it is.
    """
    path = tmp_path_factory.mktemp("reusing") / "run"
    line = [
        *OTHER,
        *TASK,
        "--aes_rl.mean_rule",
        "full_move",
        "--aes_rl.variance_rule",
        "success",
        "--budget.generations",
        6,
    ]
    alone(*line, "--run-dir", path)
    return path, line


def test_while_the_mean_stays_its_return_is_known_and_nobody_plays_it(reusing):
    path, _ = reusing
    columns = Run.open(path).columns
    worker, steps = columns["timing/task_worker"].ravel(), columns["timing/task_steps"].ravel()
    of_mean = steps[np.isin(worker, range(3))] - columns["metrics/length"].ravel()
    returns, p = (columns[f"metrics/{name}"].ravel() for name in ("mean_return", "p"))
    given = np.arange(p.size) - columns["metrics/lag"].ravel().astype(
        int
    )  # arrivals before each was given out
    moves = np.flatnonzero(p)
    assert 0 < moves.size < p.size / 2
    for i, before in enumerate(given.tolist()):
        last = max(
            (m + 1 for m in moves if m < before), default=0
        )  # arrivals before the mean that it was given out with
        known = any(given[j] >= last and of_mean[j] for j in range(last, before))
        assert bool(of_mean[i]) == (not known), i
    for i in range(1, p.size):
        if not of_mean[i]:
            assert returns[i] == returns[i - 1]
    assert (
        summary(path)["env_steps"]["population"]
        == np.nansum(steps)
        < 3 * summary(path)["nominal_steps"]
    )


def test_where_it_is_not_reused_every_individual_comes_with_the_means_return(
    reusing, tmp_path, alone
):
    alone(*reusing[1], "--aes_rl.mean_reused", "false", "--run-dir", tmp_path / "run")
    columns = Run.open(tmp_path / "run").columns
    worker, steps = columns["timing/task_worker"].ravel(), columns["timing/task_steps"].ravel()
    assert (steps[np.isin(worker, range(3))] > columns["metrics/length"].ravel()).all()


def test_what_is_known_of_the_mean_survives_ranks_and_kills(reusing, tmp_path, alone, together):
    path, line = reusing
    together(3, *line[:-1], 2, "--run-dir", tmp_path / "run")
    killed_at(
        [("esac_mpi.algorithms.aes_driver:Driver._give", 7)], *line, "--run-dir", tmp_path / "run"
    )
    alone(*line, "--run-dir", tmp_path / "run")
    assert_same_run(path, tmp_path / "run")


def test_by_ranks_alone_nobody_has_to_play_the_mean(tmp_path, alone):
    line = [*OTHER, *TASK, "--aes_rl.mean_episodes", 0, "--budget.generations", 6]
    alone(*line, "--aes_rl.mean_rule", "rank_oldest", "--run-dir", tmp_path / "run")
    said, columns = summary(tmp_path / "run"), Run.open(tmp_path / "run").columns
    assert (
        said["env_steps"]["population"] == said["nominal_steps"] == columns["metrics/length"].sum()
    )
    assert columns["metrics/p"].any()


def test_a_variance_that_is_no_longer_finite_ends_the_run_on_all_ranks(tmp_path):
    wide = [
        *SMALL,
        "--policy.activation",
        "tanh",
        "--aes_rl.variance_init",
        1e38,
        "--aes_rl.start_steps",
        0,
    ]  # (1e19 x)**2
    done = run(2, *wide, *TASK, "--budget.generations", 2, "--run-dir", tmp_path / "run", code=1)
    assert (
        done.stderr.count(
            "generation 1: mean or variance is not finite, the last checkpoint stands"
        )
        == 1
    )
    assert "Traceback" not in done.stderr


def test_a_critic_that_is_no_longer_finite_ends_all_ranks_where_their_tasks_are(tmp_path, together):
    line = [
        *SMALL,
        *TASK,
        "--aes_rl.lr_critic",
        1e30,
        "--budget.generations",
        40,
        "--run-dir",
        tmp_path / "run",
    ]
    done = together(3, *line, code=1)
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("esac_mpi: ")]
    assert said.startswith("esac_mpi: the CEM-RL learner's ")
    assert re.search(
        r" are no longer finite at training step \d+, "
        r"in task \d+ of worker 3 \(seed 0\); the last ",
        said,
    )
    assert "Traceback" not in done.stderr
    assert Run.open(tmp_path / "run").state == "failed"
    with pytest.raises(LearnerNotFinite):  # when the turn is told, however soon it was made
        started(*line[:-1], tmp_path / "alone")
    assert Run.open(tmp_path / "alone").generation == Run.open(tmp_path / "run").generation


def test_its_tasks_are_recorded_and_add_up(straight):
    """On one rank: a task's time is a part of the run's.

    A turn of the critic is all updates, and who was trained has some.
    """
    columns = Run.open(straight).columns
    task = {name: columns[f"timing/task_{name}"] for name in TIMES}
    there, critic = np.isfinite(task["worker"]), task["worker"] == 3
    np.testing.assert_array_equal(
        task["worker"][there & ~critic], columns["metrics/worker"].ravel()
    )
    np.testing.assert_array_equal(
        task["updates"][there & ~critic] > 0, columns["metrics/learned"].ravel() > 0
    )
    for worker in range(3):  # the virtual clock: steps, and half a step an update
        mine, last = (
            task["worker"] == worker,
            columns["metrics/virtual_end"][columns["metrics/worker"] == worker].max(),
        )
        assert task["steps"][mine].sum() + np.ceil(0.5 * task["updates"][mine]).sum() == last
    assert task["updates"][critic].sum() == columns["metrics/gradient_updates"][-1]
    np.testing.assert_array_equal(task["updating"][critic], task["busy"][critic])
    assert (task["updating"] <= task["busy"])[there].all()
    assert (task["busy"] <= task["end"] - task["start"] + 1e-9)[there].all()
    assert (task["end"] <= task["told"] + 1e-9)[there].all()
    assert (task["rank"][there] == 0).all()
    assert 0 <= idle_share(Run.open(straight)).max() < 1


def test_its_clock_on_the_rank_that_it_had_is_its_time(straight):
    """But for what was at work at the end, and what had been at the end of a generation."""
    run = Run.open(straight)
    lasted = np.diff(run.columns["timing/wall_seconds"], prepend=0)
    counted = np.minimum(lasted, run.columns["timing/seconds_processor"]).cumsum()[-1]
    one = computed(run, Machine(1))
    assert counted == pytest.approx(one[-1], rel=0.2)
    assert computed(run, Machine(4))[-1] < one[-1]
    (text,) = grid.texts(run, np.array([run.generation - 1]))
    assert grid.at(grid.parsed(text), Machine(4)) == pytest.approx(
        computed(run, Machine(4))[-1], rel=1e-3
    )
