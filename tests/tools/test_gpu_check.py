"""tools/gpu_check.py without a GPU: what it compares, compared on a CPU, and that it says so."""

import sys
from itertools import pairwise

import numpy as np
import pytest

from esac_mpi.learners import chunks
from tools import gpu_check
from tools.bench import learner, program


@pytest.mark.slow
def test_on_a_cpu_every_learner_agrees_with_itself(monkeypatch):
    """Chunks against chunks to the bit; losses of one by one, of the same order of operations."""
    monkeypatch.setattr(gpu_check, "UPDATES", 4)
    monkeypatch.setattr(chunks, "CHUNK", 1)
    found = [passed for _, passed, _ in gpu_check.check_bits("cpu", (8, 8))]
    assert found == [True] * (3 * len(gpu_check.KINDS))


def test_what_does_not_agree_is_found(monkeypatch):
    monkeypatch.setattr(gpu_check, "KINDS", {"TD3": gpu_check.KINDS["TD3"]})
    monkeypatch.setattr(gpu_check, "UPDATES", 3)
    monkeypatch.setattr(chunks, "CHUNK", 3)
    make, number = gpu_check.make_learner, iter(range(4))

    def other(*arguments):
        made = make(*arguments)
        if next(number):
            made.critic.values.mul_(1.01)
        return made

    monkeypatch.setattr(gpu_check, "make_learner", other)
    assert [passed for _, passed, _ in gpu_check.check_bits("cpu", (8, 8))] == [False] * 3


def test_differences_are_over_the_largest_value():
    one, other = np.array([[1.0, 200.0], [4.0, 100.0]]), np.array([[1.0, 200.0], [5.0, 110.0]])
    assert gpu_check.difference(one, other) == 0.2


def test_bits_are_compared_over_several_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 9)
    made, begun = gpu_check.make_learner("DDPG", "cpu", False, (8, 8)), []
    launch = made.chunks._gpu.launch
    monkeypatch.setattr(made.chunks._gpu, "launch", lambda work: (begun.append(work), launch(work)))
    gpu_check.make_chunks(made)
    # where the counter stands at the start of a chunk
    assert [work.args[0] for work in begun if work.args[0] in (0, 9)] == [0, 9] * 3
    assert made.adam["critic"].steps == 5 * 9 + 7


def test_a_check_of_whole_runs_has_phases_of_several_chunks():
    assert dict(pairwise(gpu_check.TASK))["--esac.sac_min_steps"] > 5 * chunks.CHUNK


def test_no_process_of_the_check_is_an_mpi_process_itself():
    """It starts some; to be one of them, a singleton, is in their way under some MPIs."""
    loaded = "{'mpi4py', 'torch', 'esac_mpi.comm.mpi'} & sys.modules.keys()"
    line = f"import sys; from tools import gpu_check; print({loaded})"
    assert program.run_for([sys.executable, "-c", line], 60) == (0, "set()")


def test_figures_come_at_once_and_an_error_ends_its_part(monkeypatch, capsys):
    def work(device):
        yield from [("one", True, device), ("two", None, "2"), ("three", False, "3")]
        raise ValueError("four")

    monkeypatch.setitem(gpu_check.PARTS, "bits", (1, work))
    assert gpu_check.main(["--part", "bits", "--device", "cpu"]) == gpu_check.FAILED
    assert capsys.readouterr().out.splitlines()[1:] == [
        "ok      one: cpu", "figure  two: 2", "FAILED  three: 3", "FAILED  bits: ValueError: four",
    ]  # fmt: skip


def test_several_parts_have_a_process_each(monkeypatch, capsys):
    ended = {"bits": 0, "trouble": 1, "promises": None, "peers": -11}
    follow = lambda line, *_: ended[line[4]]  # noqa: E731
    monkeypatch.setattr(gpu_check.processes, "follow", follow)
    assert gpu_check.main(["--device", "cpu", "--part", *ended]) == gpu_check.FAILED
    said = capsys.readouterr().out
    assert "CUT     promises" in said
    assert "FAILED  peers: exit -11" in said
    assert gpu_check.main(["--device", "cpu", "--part", "bits", "promises"]) == gpu_check.CUT
    assert gpu_check.main(["--device", "cpu", "--part", "bits", "bits"]) == 0


def test_where_torch_sees_no_gpu_nothing_begins(capsys):
    assert gpu_check.main(["--part", "bits"]) == gpu_check.NO_GPU
    assert capsys.readouterr().out == "torch sees no GPU here\n"


def test_updates_are_told_by_size(monkeypatch):
    monkeypatch.setattr(gpu_check, "SIZES", [learner.Size((8, 8), 16)])
    found = {what: told for what, _, told in gpu_check.measure_peers("cpu", 0.01, 1)}
    assert "updates/s" in found["2x8 batch=16: ours"]
    assert "ratio" in found["2x8 batch=16: ours / CleanRL-style"]
