"""The benchmarks: what they make of runs that are known by hand, and how they are called."""

import json
import sys
from unittest.mock import Mock

import pytest
from clocked_runs import FOUR, run_of
from conftest import finish

from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.record import Run
from tools import processes
from tools.bench import __main__ as bench
from tools.bench import clock, history, measurement, program, scaling

pytestmark = pytest.mark.slow


def test_a_larger_population_takes_members_and_update(tmp_path):
    """A generation: 4 members of 1 s, 0.1 s writing, 0.3 s its own, 0.2 s update; no evaluation."""
    run = run_of(tmp_path / "run", [(FOUR, False, None, (0.5, 0.5))] * 15)
    assert scaling.simulated(run, 4, 1) == pytest.approx(4.6, abs=1e-3)
    assert scaling.simulated(run, 40, 1) == pytest.approx(40 + 0.4 + 2.0, abs=1e-3)
    blocks = next(scaling.generations(run, 40, True)).blocks  # rank 0 writes before its member
    update = 2.0 * Cluster(40).share(blocks)
    assert scaling.simulated(run, 40, 40) == pytest.approx(1.1 + 0.3 + update, abs=2e-3)


def test_a_whole_phase_takes_longer_by_its_updates(tmp_path):
    rows = [(FOUR, k % 5 == 0, (5.0, 3.0, 500) if k % 5 == 0 else None, (0.5,)) for k in range(15)]
    run = run_of(tmp_path / "run", rows)
    phases = [each.phase for each in scaling.generations(run, 4, True)]
    assert max(phases) == pytest.approx(5.0 * scaling.WHOLE / 500)
    assert max(each.phase for each in scaling.generations(run, 4, False)) == pytest.approx(5.0)


def test_either_run_of_a_pair_tells_the_time_of_the_other(tmp_path):
    rows = [(FOUR, True, (5.0, 3.0, 300), (0.5, 0.5))] * 6
    pair = [run_of(tmp_path / "one", rows), run_of(tmp_path / "two", rows, ranks=2)]
    figures = list(clock.compare("ESAC", [pair, pair], clock.FIRST))
    found = {(each.case, each.name): each.plain()["median"] for each in figures}
    assert found["ESAC ranks=1", "generations"] == pytest.approx(2 * 10.6)
    assert found["ESAC ranks=1", "processor time / that"] == pytest.approx(1.0)
    assert found["ESAC ranks=1", "computed from 2 / measured"] == pytest.approx(1.0, abs=1e-3)
    assert found["ESAC ranks=1", "computed from itself / measured"] == pytest.approx(1.0)
    assert all(each.simulation == ("computed" in each.name) for each in figures)


def test_a_quick_benchmark_prints_json_lines():
    done = finish([sys.executable, *"-m tools.bench generation --quick --json".split()])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    told = {"case", "name", "unit", "min", "median", "max", "rounds", "simulation"}
    assert told <= rows[0].keys()
    assert all(row["min"] <= row["median"] <= row["max"] and not row["simulation"] for row in rows)
    names = {row["name"] for row in rows if "ranks=2" in row["case"]}
    assert {"noise", "episodes", "exchange", "update", "whole", "idle fraction of rank 1"} <= names
    assert [row["max"] for row in rows if row["name"] == "episode length"] == [20.0] * 3


def test_history_is_measured_at_every_mark(tmp_path):
    figures = list(history.grow(tmp_path / "run", 4, 100, (3, 8)))
    assert {each.case for each in figures} == {f"n=4 ranks=100 generations={g}" for g in (3, 8)}
    assert all(each.plain()["min"] > 0 for each in figures)
    assert Run.open(tmp_path / "run").columns["timing/busy_seconds"].shape == (8, 64)


def test_who_fails_is_left_out_with_the_first_line_of_the_reason(capsys):
    failing = Mock(side_effect=MemoryError("\nCUDA out of memory\nat this address"))
    theirs = iter([lambda: (1, 1.0), failing])
    rates = measurement.turns({"ours": lambda: (6, 2.0), "theirs": lambda: next(theirs)()}, 2)
    assert {name: list(values) for name, values in rates.items()} == {"ours": [3.0, 3.0]}
    assert capsys.readouterr().err == "theirs: failed: MemoryError: CUDA out of memory\n"
    assert list(measurement.compare_rates("x", {}, "z")) == []


def test_without_an_mpirun_it_is_a_sentence_and_nothing_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert bench.main(["generation", "--quick"]) == 2
    assert "no mpirun here: pip install -c constraints.txt -e '.[mpich]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_program_that_fails_ends_the_benchmark(monkeypatch, capsys):
    # python -n: no such option
    monkeypatch.setattr(program, "launcher", lambda ranks: [sys.executable, "-n", str(ranks)])
    assert bench.main(["generation", "--quick", "--json"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "exit 2" in printed.err
    assert "Traceback" not in printed.err


def test_a_run_that_hangs_is_ended_with_all_it_started():
    """The child's child is in a session of its own, as a launcher's ranks are."""
    child = (
        "import subprocess; "
        "print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True)"
    )
    for seconds in (5, 100):  # a busy machine may begin it late
        with pytest.raises(program.Unusable, match=f"not ended after {seconds} s") as raised:
            program.launch(1, ["-c", f"{child}; __import__('time').sleep(600)"], seconds=seconds)
        if (begun := str(raised.value).split()[-1]).isdecimal():
            break
    assert not processes.alive(int(begun))
