"""Trainings in processes of one's own: forked, spawned, and started by a rank."""

import sys

import pytest
from conftest import TINY_ES, command, finish

from esac_mpi.host import errors, process_start

POOL = """
import sys
from multiprocessing import get_context

from esac_mpi import train

SETTINGS = {"algorithm": "es", "task.id": "CyclicMDP-v0", "task.horizon": 10}
SETTINGS |= {"policy.hidden": [4], "budget.generations": 1}


def one(seed):
    try:
        run = train(None, {**SETTINGS, "seed": seed}, run_dir=f"{sys.argv[1]}/{seed}", quiet=True)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return run.status["status"]


if __name__ == "__main__":
    with get_context("fork").Pool(2) as pool:
        print(*pool.map(one, range(2)))
    print(one(2))
    for method, seed in (("fork", 3), ("spawn", 4)):
        with get_context(method).Pool(1) as pool:
            print(*pool.map(one, [seed]))
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "pool.py"
    path.write_text(POOL)
    return path


def test_a_pool_trains_unless_it_was_forked_after_mpi_began(script, tmp_path):
    forked, own, late, spawned = finish([sys.executable, script, tmp_path]).stdout.splitlines()
    assert (forked, own, spawned) == ("complete complete", "complete", "complete")
    assert late.startswith("WrongUsage: ")
    assert "get_context('spawn')" in late
    assert not (tmp_path / "3").exists()


def test_no_child_process_is_started_after_mpi_began(tmp_path):
    heard = "event in ('os.fork', 'os.posix_spawn', 'subprocess.Popen') and 'mpi4py.MPI' in modules"
    code = (
        "from sys import addaudithook, argv, exit, modules\n"
        f"addaudithook(lambda event, given: {heard} and exit(repr(given)))\n"
        "from esac_mpi.__main__ import main\n"
        "exit(main(argv[1:]))"
    )
    finish([sys.executable, "-c", code, *TINY_ES, "--run-dir", tmp_path / "run"])


def test_children_of_a_rank_are_refused(script, tmp_path):
    done = finish(command(1, script, tmp_path, program=()))
    assert done.stdout.splitlines()[0].count("WrongUsage: ") == 2


def test_the_program_started_by_a_rank_is_refused_in_a_sentence(tmp_path):
    inner = command(0, "--run-dir", tmp_path / "run")
    code = f"import subprocess, sys; sys.exit(subprocess.run({inner!r}).returncode)"
    done = finish(command(1, "-c", code, program=()), 2)
    assert done.stderr.count("\n") == 1
    assert "was started by a rank" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_process_of_no_rank_is_in_place(monkeypatch):
    monkeypatch.setattr(process_start, "FORKED_WITH_MPI", set())
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    process_start.check_place({})
    process_start.check_place({"PMI_RANK": "0", "PMI_FD": "0"})
    process_start.check_place({"PMIX_RANK": "0"})
    for line in ("9999", "nothing"):
        with pytest.raises(errors.Misplaced, match=r"env -u PMI_FD -u PMI_RANK"):
            process_start.check_place({"PMI_RANK": "0", "PMI_FD": line})


def test_without_an_mpi_library_train_says_what_run_says():
    code = "from esac_mpi import train\ntry: train()\nexcept ImportError as error: print(error)"
    done = finish([sys.executable, "-c", code], MPI4PY_LIBMPI="/nowhere/libmpi.so")
    assert (done.stdout, done.stderr) == (f"{errors.NO_MPI}\n", "")
