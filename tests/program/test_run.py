"""The whole program, as a user starts it: the three promises, and what a run says of itself."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from conftest import CYCLIC, CYCLIC_ES, EAGER, LEARNER, ROUTINE, SMALL, STRATEGY, TASK, TIMED, run
from whole_runs import assert_same_run, rows_published, science, summary, wait_for

from esac_mpi import envs
from esac_mpi.operators.noise import Purpose, integer
from esac_mpi.operators.policy import Layout, Normaliser, Policy
from esac_mpi.play.rollout import play
from esac_mpi.record import Run, publish, read

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def straight(tmp_path_factory, alone):
    """ESAC for 20 generations on the cyclic MDP, on one process without mpirun."""
    path = tmp_path_factory.mktemp("straight") / "run"
    alone(*CYCLIC, "--budget.generations", 20, "--run-dir", path)
    return path


def test_the_reference_run_does_all_that_esac_does(straight):
    rows = science(straight)
    assert rows["metrics/generation"].tolist() == list(range(1, 21))
    assert rows["metrics/sac_phase"].sum() >= 5
    assert rows["metrics/gradient_updates"][-1] > 100
    assert rows["metrics/sigma"][-1] > 0.3
    assert rows["metrics/tuning_multiplier"][-1] == pytest.approx(
        rows["metrics/sigma"][-1] / 0.3, rel=1e-12
    )
    assert set(rows["metrics/parent"][5]) == {0, 1, 2, 3}
    assert np.isfinite(rows["metrics/evaluation_theta_es"][2::3]).all()
    assert np.isnan(rows["metrics/evaluation_theta_es"][0]).all()


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_the_answer_does_not_depend_on_the_ranks(straight, tmp_path, ranks):
    run(ranks, *CYCLIC, "--budget.generations", 20, "--run-dir", tmp_path / "run")
    assert_same_run(straight, tmp_path / "run")


def test_stopped_and_resumed_on_other_ranks_is_the_same_as_straight(straight, tmp_path):
    run(2, *CYCLIC, "--budget.generations", 12, "--run-dir", tmp_path / "run")
    done = run(3, *CYCLIC, "--budget.generations", 20, "--run-dir", tmp_path / "run")
    assert "resumed at generation 12" in done.stdout
    assert_same_run(straight, tmp_path / "run")


def test_a_run_with_sac_phases_for_learner_phases_goes_on_as_one(straight, tmp_path, alone):
    path = tmp_path / "run"
    alone(*CYCLIC, "--budget.generations", 12, "--run-dir", path)
    # state and history; history alone
    for name, count in (("checkpoint.h5", 2), ("checkpoint_prev.h5", 2), ("metrics.h5", 1)):
        arrays, attributes = read(path / name)
        former = {
            key.replace("learner_phases", "sac_phases"): array for key, array in arrays.items()
        }
        assert len(former.keys() - arrays.keys()) == count
        publish(path / name, former, attributes)
    phases = science(straight)["metrics/learner_phases"]
    assert phases[11] > 0
    assert "metrics/sac_phases" not in Run.open(path).columns
    np.testing.assert_array_equal(Run.open(path).columns["metrics/learner_phases"], phases[:12])
    alone(*CYCLIC, "--budget.generations", 20, "--run-dir", path)
    assert_same_run(straight, path)


@pytest.mark.parametrize("algorithm", ["es", "sac"])
def test_the_halves_do_not_depend_on_ranks_or_restarts(tmp_path, algorithm, alone, together):
    more = [*STRATEGY, "--es.observation_normalisation", True, "--es.weight_decay", 0.01]
    normalised = ["--sac.observation_normalisation", True]
    options = {"es": more, "sac": [*LEARNER, "--sac.steps_per_generation", 70, *normalised]}[
        algorithm
    ]
    arguments = ["--algorithm", algorithm, *TASK, *ROUTINE, *options]
    alone(*arguments, "--budget.generations", 7, "--run-dir", tmp_path / "straight")
    alone(*arguments, "--budget.generations", 2, "--run-dir", tmp_path / "parts")
    together(3, *arguments, "--budget.generations", 7, "--run-dir", tmp_path / "parts")
    assert_same_run(tmp_path / "straight", tmp_path / "parts")


@pytest.mark.parametrize(
    ("task", "phases"),
    [
        ("HalfCheetah-v5", TIMED),
        ("HalfCheetah-v5", SMALL),
        ("dm_control/walker-walk-v0", [*SMALL, "--esac.learner_lag", 2]),
        ("dm_control/walker-walk-v0", TIMED),
    ],
    ids=["timed", "waiting", "lag", "timed suite"],
)
def test_real_tasks_do_not_depend_on_ranks_or_restarts(tmp_path, task, phases, alone, together):
    """Observations are standardised; with a lag the restart is in the middle of a phase."""
    arguments = [
        f"--task.id={task}",
        "--task.horizon=60",
        *phases,
        "--esac.observation_normalisation=True",
    ]
    alone(*arguments, "--budget.generations", 5, "--run-dir", tmp_path / "straight")
    together(3, *arguments, "--budget.generations", 3, "--run-dir", tmp_path / "parts")
    alone(*arguments, "--budget.generations", 5, "--run-dir", tmp_path / "parts")
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    assert summary(tmp_path / "parts")["gradient_updates"] > 0


def test_killed_between_checkpoints_and_restarted_is_the_same_as_straight(
    tmp_path, start, alone, together
):
    arguments = [
        *CYCLIC,
        "--esac.amt_clip=1e-3",
        "--checkpoint.every_minutes=0",
        "--budget.generations=60",
    ]
    arguments[arguments.index("--checkpoint.every_generations") + 1] = 16
    alone(*arguments, "--run-dir", tmp_path / "straight")
    process = start(2, *arguments, "--run-dir", tmp_path / "killed", program=EAGER)
    wait_for(lambda: rows_published(tmp_path / "killed") >= 20)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: summary(tmp_path / "killed")["status"] == "dead")
    before = science(tmp_path / "killed")
    made = len(before["metrics/generation"])
    done = together(3, *arguments, "--run-dir", tmp_path / "killed")
    saved = 16 * (made // 16)
    assert (
        f"resumed at generation {saved} from checkpoint.h5; {made - saved} later rows dropped"
        in done.stdout
    )
    assert_same_run(tmp_path / "straight", tmp_path / "killed")
    for name, rows in science(tmp_path / "killed").items():
        np.testing.assert_array_equal(rows[:made], before[name], err_msg=name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_stops_with_a_checkpoint_and_75_and_the_run_can_go_on(
    straight, tmp_path, start, number, alone
):
    options = CYCLIC if number == signal.SIGTERM else CYCLIC_ES
    process = start(
        2, *options, "--budget.generations=100000", f"--run-dir={tmp_path / 'run'}", program=EAGER
    )
    wait_for(lambda: rows_published(tmp_path / "run") >= 5)
    process.send_signal(number)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 75, errors
    status = json.loads((tmp_path / "run/status.json").read_text())
    assert status["status"] == "requeue"
    rows = science(tmp_path / "run")
    stopped = status["generation"]
    assert rows["metrics/generation"][-1] == stopped
    if number == signal.SIGTERM:
        alone(*CYCLIC, "--budget.generations", max(20, stopped + 1), "--run-dir", tmp_path / "run")
        for name, values in science(straight).items():
            np.testing.assert_array_equal(
                science(tmp_path / "run")[name][:20], values, err_msg=name
            )


def test_counters_are_what_the_environment_counted(tmp_path, monkeypatch, together):
    (tmp_path / "counts").mkdir()
    monkeypatch.setenv("COUNT_DIR", str(tmp_path / "counts"))
    more = ["--esac.transfer=tested", "--esac.transfer_episodes=2", "--esac.fitness_episodes=2"]
    together(
        2,
        "--task.id=own_envs:Counting-v0",
        *SMALL,
        *more,
        "--budget.generations=10",
        f"--run-dir={tmp_path / 'run'}",
    )
    files = list((tmp_path / "counts").iterdir())
    assert len(files) == 2
    counted = sum(f.stat().st_size for f in files)
    said, history = summary(tmp_path / "run"), Run.open(tmp_path / "run").columns
    # of the last generation, off schedule; the summary counts it too
    assert history["final/env_steps_evaluation"] > 0
    assert (
        sum(said["env_steps"].values())
        == counted - Run.open(tmp_path / "run").provenance["probe_steps"]
    )
    trials = np.diff(history["metrics/env_steps_population"], prepend=0) - history[
        "metrics/length"
    ].sum(axis=1)
    tried = np.isfinite(history["metrics/trial_sac"]).all(axis=1)
    assert tried.any()
    assert ((trials > 0) == tried).all()
    assert trials.max() <= 2 * 2 * 30
    winners = np.take_along_axis(
        history["metrics/length"], history["metrics/winners"][:, :2], axis=1
    ).sum(axis=1)
    assert said["env_steps"]["replayed"] == winners[history["metrics/sac_phase"] == 1].sum() > 0
    assert said["env_steps"]["learner"] == said["gradient_updates"] > 30  # one update a step
    assert said["nominal_steps"] == 10 * 30


@pytest.mark.parametrize("nodes", [1, 2])
def test_blocks_split_over_ranks_and_nodes_give_the_same_bits(tmp_path, nodes, alone, together):
    wide = [*CYCLIC, "--budget.generations", 6]
    # three blocks of parameters
    wide[wide.index("--policy.hidden") + 1 : wide.index("--policy.hidden") + 3] = [200, 200]
    alone(*wide, "--run-dir", tmp_path / "one")
    done = together(3, *wide, "--run-dir", tmp_path / "three", nodes=nodes)
    assert f"3 ranks on {nodes} node(s)" in done.stdout
    assert_same_run(tmp_path / "one", tmp_path / "three")


@pytest.mark.parametrize(
    "switches",
    [
        [*SMALL, "--esac.preset", "paper"],
        TIMED,
        [
            *SMALL,
            "--esac.preset=reference-code",
            "--esac.amt_interval=3",
            "--sac.automatic_temperature=true",
            "--esac.fitness_episodes=2",
        ],
    ],
)
def test_readings_do_not_depend_on_ranks_or_restarts(tmp_path, switches, alone, together):
    arguments = [*TASK, *switches, "--esac.sac_copies", 1]
    alone(*arguments, "--budget.generations", 9, "--run-dir", tmp_path / "straight")
    # before the first update
    alone(*arguments, "--budget.generations=1", f"--run-dir={tmp_path / 'parts'}")
    together(3, *arguments, "--budget.generations", 9, "--run-dir", tmp_path / "parts")
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    assert summary(tmp_path / "parts")["gradient_updates"] > 0


LAGGED = [*CYCLIC, "--esac.learner_lag", 2]


@pytest.fixture(scope="module")
def lagged(tmp_path_factory, alone):
    """The straight run with SAC phases beside the evaluation of two generations."""
    path = tmp_path_factory.mktemp("lagged") / "run"
    alone(*LAGGED, "--budget.generations", 20, "--run-dir", path)
    return path


@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (3, 1), (3, 2), (3, 3)])
def test_phases_beside_the_evaluation_do_not_depend_on_the_ranks(
    lagged, straight, tmp_path, together, ranks, nodes
):
    together(ranks, *LAGGED, "--budget.generations", 20, "--run-dir", tmp_path / "run", nodes=nodes)
    assert_same_run(lagged, tmp_path / "run")
    rows, direct = science(lagged), science(straight)
    assert rows["metrics/sac_phase"].sum() >= 5
    begun = np.flatnonzero(direct["metrics/sac_phase"])[0]
    assert (
        rows["metrics/gradient_updates"][begun + 1] == 0 < direct["metrics/gradient_updates"][begun]
    )
    assert rows["metrics/gradient_updates"][begun + 2] == direct["metrics/gradient_updates"][begun]


def test_a_phase_in_flight_at_a_stop_is_run_again(lagged, tmp_path, alone, together):
    rows = science(lagged)
    # the replay has wrapped by then
    begun = int(rows["metrics/generation"][np.flatnonzero(rows["metrics/sac_phase"])[-2]])
    for generations, ranks in ((begun, 2), (begun + 1, 0), (20, 3)):
        again = [*LAGGED, "--budget.generations", generations, "--run-dir", tmp_path / "run"]
        together(ranks, *again) if ranks else alone(*again)
        assert read(tmp_path / "run/checkpoint.h5")[0]["state/phase_begun"] == (
            begun if generations < 20 else rows_begun(lagged)
        )
    assert_same_run(lagged, tmp_path / "run")


def test_killed_with_a_phase_in_flight_and_restarted_is_the_same_as_straight(
    lagged, tmp_path, start, alone
):
    process = start(
        3, *LAGGED, "--budget.generations=20", f"--run-dir={tmp_path / 'run'}", program=EAGER
    )
    wait_for(lambda: rows_published(tmp_path / "run") >= 6)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: summary(tmp_path / "run")["status"] in ("dead", "complete"))
    alone(*LAGGED, "--budget.generations", 20, "--run-dir", tmp_path / "run")
    assert_same_run(lagged, tmp_path / "run")


def rows_begun(path: Path) -> int:
    return int(read(path / "checkpoint.h5")[0]["state/phase_begun"])


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [("table", "noise_table_size", 100_000), ("lowrank", "noise_rank", 2)],
)
def test_other_noise_does_not_depend_on_ranks_nodes_or_restarts(
    tmp_path, kind, field, value, alone, together
):
    options = ["--esac.noise", kind, f"--esac.{field}", value, "--esac.length_cap", 1.5]
    wide = [*CYCLIC, *options]
    # two blocks of parameters
    wide[wide.index("--policy.hidden") + 1 : wide.index("--policy.hidden") + 3] = [150, 140]
    alone(*wide, "--budget.generations", 7, "--run-dir", tmp_path / "straight")
    together(3, *wide, "--budget.generations", 5, "--run-dir", tmp_path / "parts", nodes=2)
    alone(*wide, "--budget.generations", 7, "--run-dir", tmp_path / "parts")
    assert_same_run(tmp_path / "straight", tmp_path / "parts")


def test_what_travels_between_nodes_has_no_term_in_the_number_of_parameters(tmp_path, together):
    arguments = [
        "--algorithm=es",
        *TASK,
        "--es.population_size=10",
        "--evaluation.every=100",
        "--budget.generations=4",
    ]
    arguments += ["--es.observation_normalisation", "false"]
    received = []
    for hidden in (8, 200):
        together(
            2,
            *arguments,
            "--policy.hidden",
            hidden,
            hidden,
            f"--run-dir={tmp_path / str(hidden)}",
            nodes=2,
        )
        received.append(
            np.diff(Run.open(tmp_path / str(hidden)).columns["timing/bytes_exchanged"]).tolist()
        )
    members, columns, header = 5, 5, 5  # of the other node
    assert received == [[8 * (members * columns + header)] * 3] * 2


def replayed(path: Path) -> float:
    """Return the mean return of policy.h5 over the start states that confirmed it."""
    arrays, about = read(path / "policy.h5")
    config = Run.open(path).config
    env = envs.make(about["task"], config.task.horizon)
    normaliser = (
        Normaliser(arrays["normaliser_mean"], arrays["normaliser_std"])
        if "normaliser_mean" in arrays
        else None
    )
    policy = Policy(
        Layout(tuple(about["sizes"])),
        about["activation"],
        about["output"],
        about["low"],
        about["high"],
        normaliser,
    )
    seeds = [
        integer(config.seed, Purpose.CONFIRMATION, about["generation"], block=e)
        for e in range(config.evaluation.episodes)
    ]
    return float(
        np.mean([play(env, policy.set(arrays["theta"]), seed).episodic_return for seed in seeds])
    )


def test_the_policy_on_disk_is_the_best_that_was_evaluated_with_the_return_that_confirmed_it(
    straight, tmp_path, alone
):
    assert replayed(straight) == summary(straight)["best_return"]
    normalised = ["--esac.observation_normalisation", True, "--esac.sigma", 0.5]
    arguments = ["--task.id", "Pendulum-v1", "--task.horizon", 40, *SMALL, *normalised]
    for generations in (4, 5, 7):  # rewritten at each start
        alone(*arguments, "--budget.generations", generations, "--run-dir", tmp_path / "run")
        assert replayed(tmp_path / "run") == summary(tmp_path / "run")["best_return"]
    assert "normaliser_mean" in read(tmp_path / "run/policy.h5")[0]


def test_a_directory_of_another_configuration_is_refused_listing_what_differs(straight, together):
    before = {path: path.stat().st_mtime_ns for path in straight.rglob("*")}
    done = together(
        2,
        *CYCLIC,
        "--budget.generations=30",
        "--esac.sigma=0.4",
        "--seed=5",
        f"--run-dir={straight}",
        code=2,
    )
    assert "esac.sigma" in done.stderr
    assert "0.3" in done.stderr
    assert "0.4" in done.stderr
    assert "seed" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in straight.rglob("*")} == before


def test_a_finished_run_says_so(straight, together):
    done = together(2, *CYCLIC, "--budget.generations", 20, "--run-dir", straight)
    assert "finished" in done.stdout


def test_a_run_says_where_it_comes_from(straight):
    about = Run.open(straight).provenance
    assert {
        "command",
        "git_commit",
        "mpi",
        "cpu",
        "versions",
        "hosts",
        "ranks",
        "device",
        "config",
    } <= about.keys()
    assert about["config"] == (straight / "config.toml").read_text()
    assert "numpy" in about["versions"]
    assert "run directory" in (straight / "log.txt").read_text()
