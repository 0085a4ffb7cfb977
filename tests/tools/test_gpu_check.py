"""tools/gpu_check.py where there is no GPU: what it compares, compared on a CPU, and that it says so."""

import sys
from itertools import pairwise

import numpy as np
import pytest

from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.learners import chunks
from tools import gpu_check, processes
from tools.bench import (
    gpu_bits,
    gpu_rates,
    gpu_runs,
    gpu_scaling,
    learner,
    measurement,
    program,
    simulation,
)
from tools.bench.gpu_bits import Finding
from tools.processes import alive


def test_on_a_cpu_every_learner_agrees_with_itself(monkeypatch):
    """Chunks against chunks to the bit; and losses of one by one, whose order of operations is the same."""
    monkeypatch.setattr(gpu_bits, "UPDATES", 4)
    monkeypatch.setattr(chunks, "CHUNK", 1)
    findings = list(gpu_bits.bits("cpu", (8, 8)))
    assert len(findings) == 3 * len(gpu_bits.KINDS)
    assert all(finding.passed for finding in findings)


def test_what_does_not_agree_is_found(monkeypatch):
    monkeypatch.setattr(gpu_bits, "KINDS", {"TD3": gpu_bits.KINDS["TD3"]})
    monkeypatch.setattr(gpu_bits, "UPDATES", 3)
    monkeypatch.setattr(chunks, "CHUNK", 3)
    make, number = gpu_bits.made, iter(range(4))

    def other(*arguments):
        learner = make(*arguments)
        if next(number):
            learner.critic.values.mul_(1.01)
        return learner

    monkeypatch.setattr(gpu_bits, "made", other)
    assert [finding.passed for finding in gpu_bits.bits("cpu", (8, 8))] == [False, False, False]


def test_differences_are_over_the_largest_value_of_each_statistic():
    one, other = np.array([[1.0, 200.0], [4.0, 100.0]]), np.array([[1.0, 200.0], [5.0, 110.0]])
    assert gpu_bits.difference(one, other) == 0.2


def test_bits_are_compared_over_several_chunks_in_both_halves_the_last_one_not_whole(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 9)
    made, begun = gpu_bits.made("DDPG", "cpu", False, (8, 8)), []
    launch = made.chunks._gpu.launch
    monkeypatch.setattr(made.chunks._gpu, "launch", lambda work: (begun.append(work), launch(work)))
    gpu_bits.many(made)
    assert [work.args[0] for work in begun if work.args[0] in (0, 9)] == [
        0,
        9,
        0,
        9,
        0,
        9,
    ]  # where the counter stands at the start of a chunk
    assert made.adam["critic"].steps == 5 * 9 + 7


def test_a_check_of_whole_runs_has_phases_of_several_chunks():
    options = dict(pairwise(gpu_runs.ESAC))
    assert options["--esac.sac_min_steps"] > 5 * chunks.CHUNK


def test_no_process_of_the_check_is_an_mpi_process_itself():
    """It starts some; to be one of them, a singleton, is in their way under some MPIs."""
    line = "import sys; from tools import gpu_check; print({'mpi4py', 'torch', 'esac_mpi.comm.mpi'} & sys.modules.keys())"
    assert program.ended([sys.executable, "-c", line], 60) == (0, "set()")


def test_the_plan_takes_at_most_nine_minutes_and_gives_every_part_its_share():
    plan = gpu_check.planned(list(gpu_check.PARTS), 540 - gpu_check.FIRST)
    assert list(plan) == list(gpu_check.PARTS)
    assert max(plan.values()) <= 540 - gpu_check.FIRST
    shares = np.diff([0, *plan.values()])
    assert all(shares >= [part.share for part in gpu_check.PARTS.values()])


def test_parts_that_there_is_no_time_for_are_left_out_from_the_end_and_the_others_share_what_there_is(
    monkeypatch,
):
    shares = {"a": 10, "b": 20, "c": 40}
    monkeypatch.setattr(
        gpu_check, "PARTS", {name: gpu_check.Part(share, None) for name, share in shares.items()}
    )
    assert gpu_check.planned(list("abc"), 60) == {"a": 20, "b": 60}
    assert gpu_check.planned(list("abc"), 70) == {"a": 10, "b": 30, "c": 70}
    assert gpu_check.planned(["c"], 5) == {"c": 5}


def test_what_was_cut_failed_or_left_out_is_said_with_how_to_go_on(monkeypatch, capsys):
    ended = {"bits": 0, "trouble": 1, "updates": None, "peers": -11}
    monkeypatch.setattr(gpu_check, "in_a_process", lambda name, *_: ended[name])
    assert (
        gpu_check.main(["--device", "cpu", "--part", *ended, "scaling", "--minutes", "3.3"])
        == gpu_check.FAILED
    )
    said = capsys.readouterr().out
    assert "CUT     updates" in said
    assert "FAILED  peers: exit -11" in said
    assert "LEFT    updates scaling: python -m tools.gpu_check --part updates scaling" in said
    assert gpu_check.main(["--device", "cpu", "--part", "updates"]) == gpu_check.AGAIN
    assert gpu_check.main(["--device", "cpu", "--part", "bits"]) == 0


def test_where_torch_sees_no_gpu_nothing_begins(monkeypatch, capsys):
    monkeypatch.setattr(
        gpu_check, "in_a_process", lambda name, *_: gpu_check.carried_out(name, "cuda")
    )
    assert gpu_check.main([]) == gpu_check.NO_GPU
    assert "torch sees no GPU here" in capsys.readouterr().out


def test_figures_come_out_as_they_are_found_and_an_error_ends_its_part_alone(monkeypatch, capsys):
    def work(device):
        yield Finding("one", True, device)
        yield Finding("two", None, "2")
        yield Finding("three", False, "3")
        raise ValueError("four")

    monkeypatch.setitem(gpu_check.PARTS, "bits", gpu_check.Part(1, work))
    assert gpu_check.carried_out("bits", "cpu") == gpu_check.FAILED
    assert capsys.readouterr().out.splitlines() == [
        "ok      one: cpu", "figure  two: 2", "FAILED  three: 3", "FAILED  bits: ValueError: four",
    ]  # fmt: skip


def test_what_hangs_is_ended_with_all_that_it_has_started_and_what_it_said_is_there():
    """The child's child is in a session of its own, as a launcher's ranks are."""
    child = "import subprocess, sys; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True);"
    said: list[str] = []
    for seconds in (2, 20, 200):  # on a busy machine the first may not be enough to say anything
        if not said:
            assert (
                processes.follow(
                    [sys.executable, "-c", f"{child} __import__('time').sleep(600)"],
                    seconds,
                    said.append,
                    {},
                )
                is None
            )
    assert not alive(int(said[0]))


def test_a_run_that_hangs_says_what_it_had_said():
    with pytest.raises(program.Failed, match=r"(?s)not ended after 5 s.*begun"):
        program.launch(
            1, ["-c", "print('begun', flush=True); import time; time.sleep(60)"], seconds=5
        )


def test_a_peer_that_fails_is_a_line_and_the_others_go_on(monkeypatch, capsys):
    monkeypatch.setattr(learner, "ON_GPU", [((8, 8), 16)])
    found = [
        f.what for f in gpu_rates.competing("cpu", ("ours", "ours tf32", "CleanRL-style"), 0.01, 1)
    ]
    assert found == [
        f"2x8 batch=16: {figure}" for figure in ("ours", "CleanRL-style", "ours / CleanRL-style")
    ]
    said = capsys.readouterr().err
    assert (
        "ours tf32: failed: NoDevice: learner.precision = tf32: a CPU has no such products" in said
    )


def test_who_fails_in_a_later_turn_is_left_out_with_the_first_line_of_the_reason(capsys):
    def failing():
        raise MemoryError("\nCUDA out of memory\nat this address")

    competitors = {"ours": lambda: (6, 2.0), "theirs": iter([lambda: (1, 1.0), failing]).__next__}
    competitors["theirs"] = lambda turn=competitors["theirs"]: turn()()
    rates = measurement.turns(competitors, 2, measurement.failed)
    assert {name: list(values) for name, values in rates.items()} == {"ours": [3.0, 3.0]}
    assert capsys.readouterr().err == "theirs: failed: MemoryError: CUDA out of memory\n"
    assert list(measurement.against("x", "y", {}, "z")) == []


def test_what_an_update_takes_of_the_host_is_told(monkeypatch):
    monkeypatch.setattr(learner, "ON_GPU", [((8, 8), 16)])
    (finding,) = gpu_rates.updates("cpu", 0.01)
    assert "updates/s; of the host" in finding.found
    assert "of a core" in finding.found


def test_where_the_learner_is_the_floor_is_said_of_each_n_and_ranks():
    """64 members of 1 s on 64 ranks: a phase of 4 s every five generations is none, one of 6 s is."""
    es = simulation.Costs(np.array([1.0]), d=1000)
    for phase, said in ((4.0, "a 5th of its phase 0.8 s: no floor"), (6.0, "1.2 s: the floor")):
        esac = simulation.Costs(
            np.array([1.0]),
            d=1000,
            phase_updates=100,
            seconds_per_update=phase / 100,
            host_per_update=0.0,
        )
        found = gpu_scaling.simulated(64, Cluster(64), {"es": es, "esac": esac})
        assert found.what == "n=64 ranks=64, SIMULATION"
        assert found.found.endswith(said)


def test_the_cost_of_a_core_is_measured_in_another_process(monkeypatch):
    monkeypatch.setattr(gpu_scaling, "HIDDEN", (8, 8))
    monkeypatch.setattr(gpu_scaling, "BATCH", 16)
    assert 0 < gpu_scaling.host_per_update("cpu") < 10
