import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from clocked_runs import erl_run_of
from conftest import ROOT

from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.config import Config
from esac_mpi.learners import critics
from esac_mpi.operators.policy import Layout
from esac_mpi.operators.selection import Kind
from esac_mpi.record import Run
from tools.bench import __main__ as bench
from tools.bench import competitors, history, pderl, program, serial, simulation
from tools.bench.simulation import Costs, Schedule

ONE = Costs(np.array([1.0]), d=1000)  # every episode lasts 1 s; nothing else costs anything
FREE = {"latency": 0.0, "bandwidth": np.inf, "barrier": 0.0}


def test_es_alone_takes_the_longest_node_and_what_follows():
    costs = Costs(np.array([1.0]), d=1000, noise=0.5 / 1000, plan=0.25)
    seconds = simulation.simulate(8, Cluster(4, 64, **FREE), costs, Schedule())
    np.testing.assert_allclose(seconds, 2 * 1.5 + 0.25)  # two members a rank


def test_recording_delays_rank_0_alone():
    costs = Costs(np.array([1.0]), d=1000, record=0.5)
    assert (
        simulation.simulate(4, Cluster(4, 64, **FREE), costs, Schedule())[0] == 1.5
    )  # each rank has one member
    assert (
        simulation.simulate(3, Cluster(4, 64, **FREE), costs, Schedule())[0] == 1.0
    )  # rank 0 has none


def learning(seconds: float) -> Costs:
    return Costs(
        np.array([1.0]), d=1000, phase_steps=10, phase_updates=100, seconds_per_update=seconds / 100
    )


def test_lag_0_is_the_sum_of_evaluation_and_phase():
    seconds = simulation.simulate(4, Cluster(4, 64, **FREE), learning(20.0), Schedule(0, 5))
    np.testing.assert_allclose(seconds, 1 + 20 / 5)


def test_lag_g_is_the_larger_of_evaluation_and_phase():
    cluster = Cluster(5, 64, **FREE)  # 4 members: rank 0 is not needed
    np.testing.assert_allclose(
        simulation.simulate(4, cluster, learning(20.0), Schedule(5, 5)), 4.0
    )  # the phase: 20 s / 5
    np.testing.assert_allclose(
        simulation.simulate(4, cluster, learning(4.0), Schedule(5, 5)), 1.0
    )  # evaluation


def test_lag_g_on_one_rank_hides_nothing():
    np.testing.assert_allclose(
        simulation.simulate(4, Cluster(1, 64, **FREE), learning(20.0), Schedule(5, 5)), 4 + 20 / 5
    )


def test_a_shorter_lag_waits_for_the_phase_at_its_own_generation():
    seconds = simulation.simulate(4, Cluster(5, 64, **FREE), learning(20.0), Schedule(2, 5))
    np.testing.assert_allclose(
        seconds, (20 + 3 * 1) / 5
    )  # two generations wait out the phase, three have none


def test_a_device_leaves_rank_0_its_core_but_for_what_it_takes_to_feed_it():
    """Four members of 1 s on four ranks, a phase of 4 s: on rank 0 two generations long there are three for four members."""
    cluster = Cluster(4, 64, **FREE)
    np.testing.assert_allclose(
        simulation.simulate(4, cluster, learning(4.0), Schedule(5, 5)), (2 * 2.0 + 3 * 1.0) / 5
    )
    free = replace(learning(4.0), host_per_update=0.0)
    np.testing.assert_allclose(simulation.simulate(4, cluster, free, Schedule(5, 5)), 1.0)
    quarter = replace(
        free, host_per_update=0.01
    )  # a quarter of rank 0's core while 100 updates take 4 s
    assert quarter.host == 0.25
    expected = 3 * 1.25 + (1 + 0.25 * 0.25) + 1  # after three generations 0.25 s are left
    np.testing.assert_allclose(
        simulation.simulate(4, cluster, quarter, Schedule(5, 5)), expected / 5
    )


def test_a_device_is_waited_for_where_it_is_late_and_where_there_is_one_rank():
    late = replace(learning(20.0), host_per_update=0.0)
    np.testing.assert_allclose(
        simulation.simulate(4, Cluster(4, 64, **FREE), late, Schedule(5, 5)), 4.0
    )
    np.testing.assert_allclose(
        simulation.simulate(4, Cluster(1, 64, **FREE), late, Schedule(5, 5)), 4 + 20 / 5
    )
    np.testing.assert_allclose(
        simulation.simulate(4, Cluster(4, 64, **FREE), late, Schedule(0, 5)), 1 + 20 / 5
    )


def test_a_core_that_cannot_feed_its_device_is_what_lasts():
    costs = replace(learning(4.0), host_per_update=0.05)
    assert (costs.phase, costs.host) == (5.0, 1.0)


def test_the_phase_plays_on_rank_0_before_its_device_has_work():
    """10 steps of 0.1 s, then 4 s of updates: in the first generation rank 0's member begins after 1 s."""
    costs = replace(learning(4.0), seconds_per_step=0.1, host_per_update=0.0)
    np.testing.assert_allclose(
        simulation.simulate(4, Cluster(4, 64, **FREE), costs, Schedule(5, 5)), (2.0 + 4 * 1.0) / 5
    )


def test_the_floor_in_updates_per_second():
    costs = Costs(
        np.array([1.0]), d=1, phase_steps=1000, phase_updates=1000, seconds_per_step=0.005
    )
    assert simulation.updates_per_second(2.0, costs, 5) == (
        100.0,
        200.0,
    )  # 10 s a phase, 5 of which are played
    assert simulation.updates_per_second(1.0, costs, 5) == (200.0, np.inf)


def test_a_quick_benchmark_prints_one_json_object_a_line_with_the_promised_fields():
    command = [sys.executable, "-m", "tools.bench", "generation", "--quick", "--json"]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    fields = {"benchmark", "case", "figure", "unit", "min", "median", "max", "rounds", "simulation"}
    assert all(row.keys() == fields for row in rows)
    assert all(row["min"] <= row["median"] <= row["max"] and not row["simulation"] for row in rows)
    figures = {row["figure"] for row in rows if "ranks=2" in row["case"]}
    assert {
        "noise",
        "episodes",
        "exchange",
        "update",
        "record",
        "whole",
        "idle fraction of rank 1",
    } <= figures
    lengths = [
        row for row in rows if row["figure"] == "episode length" and "HalfCheetah" in row["case"]
    ]
    assert lengths
    assert {row["max"] for row in lengths} == {20.0}


def test_a_generation_of_pderl_against_the_same_pieces_in_the_serial_order(tmp_path):
    assert {"KEPT": 0, "CHILD": 2}.items() <= Kind.__members__.items()
    rates = {"steps": 100.0, "children": 0.25, "mutations": 1.0, "updates": 20.0}
    in_turn = {name: np.array([rate]) for name, rate in rates.items()}
    found = {
        m.figure: m for m in pderl.described("x", [erl_run_of(tmp_path / "run", 4)], 2, in_turn)
    }
    assert found["whole"].median == pytest.approx(12.0)
    assert found["children/s"].median == pytest.approx(2 / 4)
    assert found["ranks at work on them, mean"].median == pytest.approx(1.0)
    assert found["the serial order / whole"].median == pytest.approx(
        (400 / 100 + 2 / 0.25 + 1 + 200 / 20) / 12
    )


def test_the_serial_order_has_our_networks():
    layout = Layout((competitors.OBSERVATION, *serial.HIDDEN, competitors.ACTION), layer_norm=True)
    for network, size in (
        (serial.actor(), layout.d),
        (serial.critic(), critics.critic_size(Config(), layout)),
    ):
        assert sum(parameter.numel() for parameter in network.parameters()) == size


def test_history_is_measured_at_every_mark(tmp_path):
    found = dict(history.grow(tmp_path / "run", 4, 100, (3, 8)))
    assert list(found) == [3, 8]
    assert all(
        len(values) == 1 and values[0] > 0
        for figures in found.values()
        for _, values in figures.values()
    )
    assert Run.open(tmp_path / "run").columns["timing/busy_seconds"].shape == (8, 64)


def test_the_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    curves = {
        50: {"ranks": np.array([1, 2]), "ES": np.array([2.0, 1.0]), "ESAC": np.array([4.0, 3.0])}
    }
    simulation.draw(curves, {"ES": [(1, 2.1)]}, "a simulation", tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "name", "tasks", "out"),
    [
        ("--task A-v0 scaling", "scaling", ["A-v0"], None),
        ("scaling --task A-v0", "scaling", ["A-v0"], None),
        ("--out rollout clock", "clock", [], "rollout"),
    ],
)
def test_a_benchmark_is_named_before_or_after_its_options(words, name, tasks, out):
    found = bench.command_line().parse_args(bench.name_first(words.split()))
    assert (found.name, found.task, out and str(found.out)) == (name, tasks, out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rollout --task Hopper-v5", "rollout does not read --task: leave it out"),
        ("history --rounds 2", "history does not read --rounds: leave it out"),
        ("startup --rounds -1", "--rounds must be at least 0"),
        ("scaling --cores-per-node 0", "--cores-per-node at least 1"),
    ],
)
def test_options_that_a_benchmark_does_not_read_are_refused(words, said, capsys):
    with pytest.raises(SystemExit) as end:
        bench.main(words.split())
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_without_an_mpirun_it_is_a_sentence_and_nothing_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("esac_mpi.host.affinity.cores", lambda: [0, 1])
    monkeypatch.chdir(tmp_path)
    assert bench.main(["generation", "--quick"]) == 2
    assert (
        capsys.readouterr().err
        == "no mpirun here: pip install esac_mpi[mpich], or load the cluster's MPI\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_program_that_fails_ends_the_benchmark_with_what_it_said_and_exit_1(monkeypatch, capsys):
    monkeypatch.setattr(program, "launcher", lambda: sys.executable)  # python -n: no such option
    assert bench.main(["generation", "--quick", "--json"]) == 1
    printed = capsys.readouterr()
    assert (
        printed.out,
        "-n" in printed.err,
        "exit 2" in printed.err,
        "Traceback" in printed.err,
    ) == ("", True, True, False)
