"""How a run is found again: its directory wherever it is, --fresh in a job's later rounds."""

import os
import shutil
import time
from dataclasses import replace
from itertools import count, cycle
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from conftest import TINY, TINY_ES
from in_process import refused, started
from run_files import publish
from short_runs import flip, statuses
from words import words, written

import esac_mpi
from esac_mpi.algorithms import es
from esac_mpi.config import Config, load
from esac_mpi.host import batch_system, errors, log
from esac_mpi.host.stop import Stop
from esac_mpi.play.counters import Best
from esac_mpi.play.rollout import ReturnDiffers
from esac_mpi.record import Run, read, replays
from esac_mpi.training import active_run, loop, provenance, session


@pytest.fixture
def begun(tmp_path):
    """Leave a run of two generations in a directory whose name has a space; return it."""
    path = tmp_path / "the arm"
    assert started(*TINY_ES, "--run-dir", path, "--max-hours", 3) == 0
    return path


def test_a_clock_that_is_set_meanwhile_changes_nothing(begun, tmp_path, monkeypatch):
    honest, steps = time.time, cycle((0, 3600, -3600, 7200))
    monkeypatch.setattr(time, "time", lambda: honest() + next(steps))
    limits = "--max-hours 0.5 --stop.member_minutes 10 --checkpoint.every_minutes 10"
    assert started(*TINY_ES, "--run-dir", tmp_path / "set", *words(limits)) == 0
    straight, other = Run.open(begun), Run.open(tmp_path / "set")
    assert (other.status["status"], other.generation) == ("complete", 2)
    fitness = (run.columns["metrics/fitness"] for run in (other, straight))
    np.testing.assert_array_equal(*fitness)
    lasted = np.diff(other.columns["timing/wall_seconds"], prepend=0)
    assert ((lasted > 0) & (lasted < 1800)).all()


def test_a_moved_run_and_a_copy_go_on_where_they_are(begun, tmp_path):
    moved, copy = tmp_path / "moved", tmp_path / "copy"
    shutil.copytree(begun, copy)
    begun.rename(moved)
    for path, budget in ((moved, 3), (copy, 4)):
        assert started(path / "config.toml", "--budget.generations", budget) == 0
        assert statuses(path)["generation"] == budget
    assert not begun.exists()
    elsewhere, _ = load([str(moved / "config.toml"), *words("--run-dir elsewhere --max-hours 2")])
    assert (elsewhere.run_dir, elsewhere.max_hours) == ("elsewhere", 2)


def test_a_runs_place_and_its_jobs_end_are_not_saved_with_it(begun):
    for text in ((begun / "config.toml").read_text(), Run.open(begun).provenance["config"]):
        assert "run_dir" not in text
        assert "max_hours" not in text
    found, _ = load([str(begun / "config.toml")])
    assert (found.run_dir, found.max_hours) == (str(begun), 0)


def test_a_file_of_that_name_elsewhere_is_like_any(tmp_path):
    text = 'run_dir = "runs/x"\nmax_hours = 2.0\n'
    found, _ = load([written(tmp_path / "config.toml", text)])
    assert (found.run_dir, found.max_hours) == ("runs/x", 2.0)


def test_another_cpu_for_libraries_is_told_like_another_cpu(begun, monkeypatch):
    warnings = []
    monkeypatch.setattr(log, "warn", warnings.append)
    told_them = {"OPENBLAS_CORETYPE": "Another", "ATEN_CPU_CAPABILITY": "default"}
    for name in provenance.KERNELS:
        monkeypatch.setenv(name, told_them.get(name, ""))
    for generations in (3, 4):  # the second time it is the same again
        assert started(begun / "config.toml", "--budget.generations", generations) == 0
    (told,) = [text for text in warnings if text.startswith("cpu: was ")]
    words = "), OPENBLAS_CORETYPE=Another, ATEN_CPU_CAPABILITY=default"
    assert told.endswith(f"{words}: exact, but bits may differ")
    assert Run.open(begun).provenance["cpu"].endswith(words)


def test_between_the_processor_times_of_two_rows_nothing_is_lost(tmp_path, monkeypatch):
    process_time = Mock(side_effect=map(float, count()))
    monkeypatch.setattr(loop.time, "process_time", process_time)
    assert started(*TINY_ES, "--run-dir", tmp_path / "a") == 0
    found = Run.open(tmp_path / "a").columns["timing/seconds_processor"].sum()
    assert found == process_time.call_count - 1 > 0


SLURM, PBS = {"SLURM_JOB_ID": "7"}, {"PBS_JOBID": "7.server"}
RESTARTED = {**SLURM, "SLURM_RESTART_COUNT": "12"}
OURS = {"job": "7"}


@pytest.mark.parametrize(
    ("environ", "status", "said"),
    [
        ({}, {}, ""),
        ({"ROUND": "3"}, OURS, ""),  # anybody's variable, outside PBS
        ({**PBS, "ROUND": "0"}, {}, ""),
        ({**PBS, "ROUND": "2"}, {"job": "6.server"}, "ROUND=2"),  # each round is another job
        (SLURM, OURS, ""),
        ({**SLURM, "SLURM_RESTART_COUNT": "0"}, OURS, ""),
        (RESTARTED, OURS, "SLURM_RESTART_COUNT=12"),
        (RESTARTED, {}, "SLURM_RESTART_COUNT=12"),  # status.json cannot be read, as after a crash
        (RESTARTED, {"job": "6"}, ""),  # a requeued job of several runs has not been at this one
        (RESTARTED, {"status": "complete", "host": "login"}, ""),
    ],
)
def test_fresh_is_ignored_in_a_later_round_of_a_job(environ, status, said, monkeypatch, caplog):
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "PBS_JOBID", "ROUND"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert batch_system.later_round(environ, status) == said
    monkeypatch.setattr(log.logger, "propagate", True)
    monkeypatch.setattr(session.record, "read_status", lambda path: status)
    found, fresh = session.resolve_asked(lambda: load(["--seed", "3", "--fresh"]))
    assert (found.seed, fresh) == (3, not said)
    assert (f"--fresh is ignored in a job's later round ({said})" in caplog.text) == bool(said)


@pytest.fixture
def in_pbs(monkeypatch):
    """Return a function that makes this process a job of PBS, or one by hand in it."""

    def be(job, environment="PBS_BATCH"):
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        monkeypatch.setenv("PBS_JOBID", job)
        monkeypatch.setenv("PBS_ENVIRONMENT", environment)

    return be


def test_a_loop_in_a_job_means_fresh_by_each_of_its_calls(tmp_path, in_pbs):
    in_pbs("7.server")
    for _ in range(3):
        run = esac_mpi.train(load(TINY_ES)[0], run_dir=tmp_path / "a", fresh=True, quiet=True)
        assert run.status["job"] == "7.server"
    assert len(list(tmp_path.glob("a.old*"))) == 2


def test_a_job_that_pbs_runs_again_goes_on_where_it_was(tmp_path, in_pbs):
    line = [*TINY_ES, "--run-dir", str(tmp_path / "a")]

    def aside():
        _, fresh = session.resolve_asked(lambda: load([*line, "--fresh"]))
        assert started(*line, *(["--fresh"] if fresh else [])) == 0
        assert Run.open(tmp_path / "a").status["job"] == os.environ["PBS_JOBID"]
        session.BEGUN.clear()  # in another process
        return len(list(tmp_path.glob("a.old*")))

    in_pbs("7[2].server")
    assert [aside(), aside()] == [0, 0]  # as a job that was requeued has it
    in_pbs("8.server")
    assert [aside(), aside()] == [1, 1]
    in_pbs("8.server", "PBS_INTERACTIVE")
    assert aside() == 2


@pytest.mark.parametrize(("fresh", "but"), [([], " to go on"), ([True], ", without --fresh,")])
def test_the_advice_to_run_a_command_again_leaves_fresh_out(fresh, but, monkeypatch, tmp_path):
    said = []
    monkeypatch.setattr(loop.log, "say", said.append)
    monkeypatch.setattr(active_run, "save", lambda *arguments: True)
    counters = SimpleNamespace(env_steps=0, nominal_steps=0)
    state = SimpleNamespace(generation=5, best=Best(), counters=counters)
    run = SimpleNamespace(path=tmp_path, starts=1, restored=None, close=lambda: None)
    world = SimpleNamespace(
        from_root=lambda code: code,
        gather=lambda value: [value, value, ""],
        stop=SimpleNamespace(why="SIGTERM"),
    )
    stopped = active_run.Job(Config(), world, None, None, state, None, None, run)
    assert loop.finish(stopped, *fresh) == errors.STOPPED
    assert said[0].startswith("stopped at generation 5 (SIGTERM), saved; run the same command ")
    assert f"again{but}" in said[0]


ESAC = words(f"""{" ".join(TINY)} --esac.population_size 6 --esac.sigma 0.3 --esac.preset corrected
--esac.gradient_interval 2 --esac.sac_min_steps 10 --esac.sac_episodes 1 --esac.learner_lag 2
--esac.transfer means --evaluation.episodes 1
--sac.start_steps 5 --sac.batch_size 4 --sac.replay_capacity 50""")


def test_another_machines_episodes_are_not_compared(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    line = [*ESAC, "--esac.resimulated", "winners"]
    assert started(*line, "--budget.generations", 3, "--run-dir", here) == 0
    arrays, attributes = read(here / "checkpoint.h5")
    assert arrays["state/phase_begun"] == 2  # in flight
    arrays["state/replayed_returns"] += 1.0  # as other bits would have it
    publish(here / "checkpoint.h5", arrays, attributes)
    shutil.copytree(here, there)
    publish(there / "checkpoint.h5", arrays, {**attributes, "cpu": "another one"})
    line += ["--budget.generations", 5, "--run-dir"]
    with pytest.raises(ReturnDiffers, match=r"member \d of generation 2 had the return"):
        started(*line, here)
    assert statuses(here)["status"] == "failed"
    assert read(here / "checkpoint.h5")[1]["generation"] == 3
    assert started(*line, there) == 0
    assert Run.open(there).columns["metrics/env_steps_replayed"][-1] > 0


def test_a_checkpoint_without_what_every_version_has_is_refused(begun, capfd):
    """A run that is finished stays so."""
    arrays, attributes = read(begun / "checkpoint.h5")
    del arrays["state/adam_m"]
    publish(begun / "checkpoint.h5", arrays, attributes)
    before = statuses(begun)
    for generations in (2, 3):
        assert statuses(begun) == before
        assert started(*TINY_ES, "--run-dir", begun, "--budget.generations", generations) == 2
        (said,) = capfd.readouterr().err.splitlines()
        assert "another version of es, whose State differs: 'adam_m'" in said
    assert statuses(begun) == before


def damage_replay(path):
    for segment in (path / "replay").iterdir():
        flip(segment)


def change_learner(path):
    """Leave the checkpoint's learner without a part, as of another version."""
    arrays, attributes = read(path / "checkpoint.h5")
    del arrays["learner/actor_values"]
    publish(path / "checkpoint.h5", arrays, attributes)


@pytest.mark.parametrize(
    ("spoil", "code", "begun_from"), [(damage_replay, 65, False), (change_learner, 2, True)]
)
def test_a_finished_run_that_cannot_go_on_stays_finished(
    tmp_path, monkeypatch, spoil, code, begun_from
):
    monkeypatch.setattr(replays, "SEGMENT", 10)
    line = words("--algorithm sac --sac.steps_per_generation 15 --budget.generations 2")
    line += [*TINY, "--checkpoint.every_generations", 1, "--run-dir", tmp_path / "run"]
    assert started(*line) == 0
    before = statuses(tmp_path / "run")
    spoil(tmp_path / "run")
    assert started(*line) == code
    assert statuses(tmp_path / "run") == before
    line += ["--run-dir", tmp_path / "other", "--from", tmp_path / "run", "--seed", 1]
    assert started(*line) == (0 if begun_from else code)
    assert (tmp_path / "other").exists() == begun_from


def test_ranks_that_save_nothing_leave_rank_0_the_time_to_save(tmp_path, monkeypatch):
    keep_time, ends = loop.keep_time, []
    monkeypatch.setattr(Stop, "give_up_at", lambda self, when, why="": ends.append(when))

    def as_another_rank(job):
        keep_time(replace(job, saving=[]))
        told = [seconds for seconds, _ in job.saving[: job.state.generation - 1]]
        assert ends[-1] == pytest.approx(job.deadline - 3 * max(told, default=0.0))

    monkeypatch.setattr(loop, "keep_time", as_another_rank)
    line = "--budget.generations 3 --checkpoint.every_generations 1 --max-hours 1 --run-dir"
    assert started(*TINY_ES, *line.split(), tmp_path / "run") == 0
    assert len(ends) == 4
    assert ends[2] < ends[0]


def test_numbers_of_numpy_in_a_state_are_python_s_as_after_a_restart(tmp_path, monkeypatch):
    """Theirs make others of float32 arrays."""
    made, kinds = es.generation, []

    def generation(params, state, *rest):
        kinds.append(type(state.sigma))
        answer = made(params, state, *rest)
        state.sigma = np.float64(state.sigma)
        return answer

    monkeypatch.setattr(es, "generation", generation)
    assert started(*TINY_ES, "--run-dir", tmp_path / "run") == 0
    assert kinds == [float, float]


def test_a_state_that_no_file_holds_is_refused_at_the_start(tmp_path, monkeypatch):
    made = es.init

    def init(*given):
        values = made(*given)
        values.sigma = None
        return values

    monkeypatch.setattr(es, "init", init)
    assert "State.sigma = None" in refused(*TINY_ES, "--run-dir", tmp_path / "run")


def test_policies_that_are_not_the_declared_ones_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(es, "DECLARES", replace(es.DECLARES, policies={"other": "another"}))
    assert "DECLARES.policies" in refused(*TINY_ES, "--run-dir", tmp_path / "run")
