"""AES-RL: the same bits on any ranks, restarts, counts, what a task and the critic do."""

import math
import re

import numpy as np
import pytest
from conftest import ROUTINE, run
from in_process import checked, started
from whole_runs import assert_same_run, counted, killed_at, run_once, sentence, summary
from words import words

from esac_mpi.algorithms.aes_driver import Driver
from esac_mpi.algorithms.aes_work import TIMES
from esac_mpi.analysis.clock import generation_ends, grid, recorded_tasks
from esac_mpi.analysis.times import idle_share
from esac_mpi.learners import LearnerNotFinite
from esac_mpi.record import Run

pytestmark = pytest.mark.slow

OTHER = words("--algorithm aes_rl --policy.hidden 8 8", *ROUTINE[3:])  # of another mean rule
OTHER += words("--checkpoint.every_generations 2 --aes_rl.workers 3 --aes_rl.start_steps 200")
OTHER += words("--aes_rl.batch_size 16 --aes_rl.critic_chunk 60 --aes_rl.mean_episodes 2")
OTHER += words("--aes_rl.actor_updates_window 3 --aes_rl.arrivals_per_generation 6")
OTHER += words("--aes_rl.update_cost 0.5")
SMALL = [*OTHER, *words("--aes_rl.relative_baseline 100 --aes_rl.critic_layer_norm true")]
TASK = ["--task.id", "own_envs:Delayed-v0"]
# a ring that is written over
LINE = [*SMALL, *TASK, *words("--aes_rl.replay_capacity 500 --budget.generations 8")]
straight = run_once(*LINE)


KILLS = [
    ("esac_mpi.record.lock:RunLock.store", 3),
    ("esac_mpi.algorithms.aes_driver:Driver._take_critic", 2),
    ("esac_mpi.algorithms.aes_driver:Driver._give", 17),
    ("esac_mpi.record.lock:RunLock.store", 2),
]


def test_ranks_nodes_kills_and_restarts_leave_the_bits(straight, tmp_path, together):
    """Delayed at random by machine and task, on one rank, two and three, which share four tasks."""
    line = [*LINE, "--run-dir", tmp_path / "parts"]
    together(2, *line, "--budget.generations", 2)
    killed_at(KILLS, *line)
    together(3, *line, nodes=2)
    assert_same_run(straight, tmp_path / "parts")


def test_the_clock_goes_on_and_a_critic_that_never_stops_trains(straight):
    rows = Run.open(straight).columns
    assert (np.diff(rows["metrics/virtual_end"].ravel()) >= 0).all()
    trained = rows["metrics/learned"].ravel().astype(bool)
    steps = np.cumsum(rows["metrics/length"])
    assert 0 < trained.mean() < 1
    assert steps[trained][0] > 200
    assert rows["metrics/gradient_updates"][-1] % 60 == 0
    assert rows["metrics/gradient_updates"][-1] <= steps[-1]
    assert {*rows["metrics/worker"].ravel().astype(int).tolist()} == {0, 1, 2}
    assert rows["metrics/lag"].max() >= 2  # others arrive between, and are not waited for
    assert not rows["metrics/p"].ravel()[: int(np.searchsorted(steps, 200))].any()
    said = summary(straight)
    assert said["nominal_steps"] == steps[-1]
    # with the mean's episodes, which it moves by
    assert said["env_steps"]["population"] == np.nansum(rows["timing/task_steps"])


def test_counters_are_what_the_environment_counted(tmp_path, monkeypatch, alone):
    line = [*SMALL, *words("--task.id own_envs:Counting-v0 --budget.generations 4 --run-dir")]
    steps = counted(tmp_path / "counts", monkeypatch, alone, *line, tmp_path / "run")
    in_flight = steps - sum(summary(tmp_path / "run")["env_steps"].values())
    assert 0 <= in_flight <= 3 * (1 + 2) * 30  # at most a task of each worker is begun and not told


def test_the_agenda_knows_how_long_updates_last_of_a_task_given(tmp_path, monkeypatch):
    honest, found = Driver.take_result, []

    def told(driver, task):
        critic = task.order.theta is None
        cost = 2.0 if critic else 0.5
        assert task.least == math.ceil(cost * task.order.updates)
        found.append((critic, task.least > 0))
        return honest(driver, task)

    monkeypatch.setattr(Driver, "take_result", told)
    line = [*SMALL, *TASK, *words("--aes_rl.critic_cost 4.0 --budget.generations 5")]
    assert started(*line, "--run-dir", tmp_path / "run") == 0
    assert {*found} == {(True, True), (False, True), (False, False)}


def test_a_generation_given_up_at_the_end_is_finished_first(tmp_path, monkeypatch, capfd):
    """900 steps are reached before the last of a generation's arrivals, where all is given up."""
    line = [*SMALL, *TASK, "--budget.nominal_steps", 900, "--run-dir"]
    assert started(*line, tmp_path / "straight") == 0
    honest, given_up = Driver.take_result, []

    def told(driver, task):
        enough = honest(driver, task)
        if driver.state.counters.nominal_steps >= 900 and not (enough or given_up):
            given_up.append(driver.state.arrived)
            driver.world.stop.give_up_at(0.0)
        return enough

    monkeypatch.setattr(Driver, "take_result", told)
    parts = tmp_path / "parts"
    assert started(*line, parts) == 75
    assert 0 < given_up[0] < 6
    less = [*line, parts, "--budget.nominal_steps", 100]
    said = "transitions of its replay: go on with the budget of before"
    before = (parts / "status.json").read_text()
    assert (checked(*less), said in " ".join(capfd.readouterr().out.split())) == (2, True)
    assert (started(*less), said in capfd.readouterr().err) == (2, True)
    assert (parts / "status.json").read_text() == before  # refused, the run has not failed
    assert started(*line, parts) == 0
    assert_same_run(tmp_path / "straight", parts)


def test_a_rank_that_is_never_heard_of_again_ends_the_job(tmp_path):
    """The one worker's tasks are rank 1's, which gets stuck in one; rank 0 can only wait."""
    line = words("--task.id own_envs:Stuck-v0 --aes_rl.workers 1 --aes_rl.start_steps 100000000")
    line += words("--stop.member_minutes 0 --stop.silent_minutes 0.05 --evaluation.every 1000000")
    line += words("--budget.generations 100000 --run-dir", tmp_path / "run")
    done = run(2, *SMALL, *line, code=None)
    assert done.returncode != 0
    waits = r"rank 0 on \S+ hangs: waiting for other ranks for \S+ minutes \(stop.silent_minutes\)"
    assert re.search(waits, done.stderr)


# the (1+1)-ES: most of its arrivals leave the mean where it is
REUSING = [*OTHER, *TASK, *words("--aes_rl.mean_rule full_move --aes_rl.variance_rule success")]
REUSING += words("--aes_rl.reward_shift 0.5 --budget.generations 6")
reusing = run_once(*REUSING)


def test_while_the_mean_stays_nobody_plays_it_again(reusing):
    columns = Run.open(reusing).columns
    worker, steps = columns["timing/task_worker"].ravel(), columns["timing/task_steps"].ravel()
    of_mean = steps[np.isin(worker, range(3))] - columns["metrics/length"].ravel()
    returns, p = (columns[f"metrics/{name}"].ravel() for name in ("mean_return", "p"))
    # arrivals before each was given out
    given = np.arange(p.size) - columns["metrics/lag"].ravel().astype(int)
    moves = np.flatnonzero(p)
    assert 0 < moves.size < p.size / 2
    for i, before in enumerate(given.tolist()):
        # arrivals before the mean that it was given out with
        last = max((m + 1 for m in moves if m < before), default=0)
        known = any(given[j] >= last and of_mean[j] for j in range(last, before))
        assert bool(of_mean[i]) == (not known), i
        assert of_mean[i] or not i or returns[i] == returns[i - 1]
    said = summary(reusing)
    assert said["env_steps"]["population"] == np.nansum(steps) < 3 * said["nominal_steps"]


def test_where_it_is_not_reused_all_come_with_the_means_return(tmp_path, alone):
    alone(*REUSING, "--aes_rl.mean_reused", "false", "--run-dir", tmp_path / "run")
    columns = Run.open(tmp_path / "run").columns
    worker, steps = columns["timing/task_worker"].ravel(), columns["timing/task_steps"].ravel()
    assert (steps[np.isin(worker, range(3))] > columns["metrics/length"].ravel()).all()


def test_what_is_known_of_the_mean_survives_ranks_and_kills(reusing, tmp_path, alone, together):
    line = [*REUSING, "--run-dir", tmp_path / "run"]
    together(3, *line, "--budget.generations", 2)
    killed_at([(*KILLS[2][:1], 7)], *line)
    alone(*line)
    assert_same_run(reusing, tmp_path / "run")


def test_by_ranks_alone_nobody_has_to_play_the_mean(tmp_path, alone):
    line = words("--aes_rl.mean_episodes 0 --aes_rl.mean_rule rank_oldest --budget.generations 6")
    alone(*OTHER, *TASK, *line, "--run-dir", tmp_path / "run")
    said, columns = summary(tmp_path / "run"), Run.open(tmp_path / "run").columns
    steps = columns["metrics/length"].sum()
    assert said["env_steps"]["population"] == said["nominal_steps"] == steps
    assert columns["metrics/p"].any()


def test_a_variance_that_is_not_finite_ends_all_ranks(tmp_path, together):
    # (1e19 x)**2
    wide = words("--policy.activation tanh --aes_rl.variance_init 1e38 --aes_rl.start_steps 0")
    wide += words("--budget.generations 2 --run-dir", tmp_path / "run")
    done = together(2, *SMALL, *TASK, *wide, code=1)
    assert done.stderr.count("generation 1: mean or variance is no longer finite") == 1
    assert "Traceback" not in done.stderr


def test_a_critic_that_is_no_longer_finite_ends_all_ranks(tmp_path, together):
    line = [*SMALL, *TASK, *words("--aes_rl.lr_critic 1e30 --budget.generations 40 --run-dir")]
    said = sentence(together(3, *line, tmp_path / "run", code=1))
    assert said.startswith("esac_mpi: the AES-RL learner's ")
    place = r" no longer finite at training step [1-9]\d*, in task \d+ of worker 3 \(seed 0\)"
    assert re.search(place, said)
    assert Run.open(tmp_path / "run").state == "failed"
    with pytest.raises(LearnerNotFinite):  # when the turn is told, however soon it was made
        started(*line, tmp_path / "alone")
    assert Run.open(tmp_path / "alone").generation == Run.open(tmp_path / "run").generation


def test_its_tasks_are_recorded_and_add_up(straight):
    """On one rank: a task's time is a part of the run's."""
    # A turn of the critic is all updates, and who was trained has some.
    columns = Run.open(straight).columns
    task = {name: columns[f"timing/task_{name}"] for name in TIMES}
    there, critic = np.isfinite(task["worker"]), task["worker"] == 3
    who, learned = (columns[f"metrics/{name}"] for name in ("worker", "learned"))
    np.testing.assert_array_equal(task["worker"][there & ~critic], who.ravel())
    np.testing.assert_array_equal(task["updates"][there & ~critic] > 0, learned.ravel() > 0)
    for worker in range(3):  # the virtual clock: steps, and half a step an update
        mine = task["worker"] == worker
        last = columns["metrics/virtual_end"][who == worker].max()
        assert task["steps"][mine].sum() + np.ceil(0.5 * task["updates"][mine]).sum() == last
    assert task["updates"][critic].sum() == columns["metrics/gradient_updates"][-1]
    np.testing.assert_array_equal(task["updating"][critic], task["busy"][critic])
    assert (task["updating"] <= task["busy"])[there].all()
    assert (task["busy"] <= task["end"] - task["start"] + 1e-9)[there].all()
    assert (task["end"] <= task["told"] + 1e-9)[there].all()
    assert (task["rank"][there] == 0).all()
    assert 0 <= idle_share(Run.open(straight)).max() < 1


def test_its_clock_on_the_rank_that_it_had_is_its_time(straight, monkeypatch):
    """But for what was at work at the end, and what had been at the end of a generation."""
    run = Run.open(straight)
    # both by the wall clock: on a busy machine tasks and generations have other shares of a core
    monkeypatch.setattr(recorded_tasks, "core_share", lambda run: np.ones(run.generation))
    one, four = (generation_ends(run, ranks)[-1] for ranks in (1, 4))
    assert one == pytest.approx(run.columns["timing/wall_seconds"][-1], rel=0.2)
    assert four < one
    (text,) = grid.format_cells(run, np.array([run.generation - 1]))
    assert grid.time_on(text, 4, "a row") == pytest.approx(four, rel=1e-3)
