"""A training by one call from Python: its results, its callback, its errors, and what it leaves
behind.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import CYCLIC, CYCLIC_ES, ROOT, environment, run
from whole_runs import assert_same_run

import esac_mpi
from esac_mpi import Config, NoCheckpoint, RunError, WrongUsage
from esac_mpi.config import Budget, PolicyNetwork, Task, flatten, load
from esac_mpi.host import log, threads
from esac_mpi.play.rollout import ThetaNotFinite
from esac_mpi.training import active_run, ended, loop
from esac_mpi.training.api import resolve

pytestmark = pytest.mark.slow

TINY = {
    **{
        "algorithm": "es",
        "task.id": "CyclicMDP-v0",
        "task.horizon": 9,
        "policy.hidden": [4],
        "es.population_size": 4,
    },
    **{"evaluation.episodes": 1, "budget.generations": 3},
}


def settings(words):
    """Return the settings that a command line's words are."""
    config = load([str(word) for word in words])[0]
    named = {str(word)[2:] for word in words if str(word).startswith("--")}
    return {name: value for name, value in flatten(config) if name in named}


def tiny(path, callback=None, **more):
    return esac_mpi.train(None, TINY, run_dir=path, callback=callback, quiet=True, **more)


def test_settings_are_those_of_the_command_line(tmp_path):
    """Files, dotted names, tables, tuples, numbers of numpy, and a path."""
    (tmp_path / "es.toml").write_text(
        'algorithm = "es"\n[es]\nsigma = 0.2\n[policy]\nhidden = [4]\n'
    )
    given = {
        "task": {"id": "CyclicMDP-v0", "horizon": np.int64(9)},
        "es.population_size": 4,
        "budget.generations": 1,
    }
    found = esac_mpi.train(
        tmp_path / "es.toml", {**given, "policy.hidden": (5,)}, run_dir=tmp_path / "run", quiet=True
    )
    words = [
        tmp_path / "es.toml",
        "--task.id",
        "CyclicMDP-v0",
        "--task.horizon",
        9,
        "--es.population_size",
        4,
    ]
    same, _ = load(
        [str(word) for word in (*words, "--budget.generations", 1, "--policy.hidden", 5)]
    )
    assert found.config == replace(
        same, es=replace(same.es, reward_shift=0.0)
    )  # as the task has it
    assert found.config.budget == Budget(generations=1, nominal_steps=0)
    command = found.provenance["command"]
    assert command.startswith(f"esac_mpi.train {tmp_path / 'es.toml'} ")
    assert command.endswith(f"--policy.hidden 5 --run_dir {tmp_path / 'run'}")


def test_single_keyword_arguments_of_the_task_join_those_of_a_file_or_a_config(tmp_path):
    """As the command line has it: one by one they join, a table replaces."""
    file, rest = tmp_path / "x.toml", {"frame_skip": 2, "inner": {"a": 1}}
    file.write_text('[task]\nid = "Hopper-v5"\n[task.kwargs]\nframe_skip = 2\ninner = {a = 1}\n')
    for base in (file, load([str(file)])[0]):
        assert resolve(base, {"task.kwargs.b": np.int64(3)}).task.kwargs == {**rest, "b": 3}
        assert resolve(base, {"task": {"kwargs.inner.b": 3}}).task.kwargs == {
            **rest,
            "inner": {"a": 1, "b": 3},
        }
        assert resolve(base, {"task.kwargs": {"b": 3}, "task.kwargs.c": 4}).task.kwargs == {
            "b": 3,
            "c": 4,
        }
        assert resolve(base, {"task": {"kwargs": {}}}).task.kwargs == {}
        assert resolve(base, {"seed": 1}).task.kwargs == rest
    assert load([str(file)])[0].task.kwargs == rest


def test_a_config_built_by_hand_is_checked_and_has_the_values_of_python(tmp_path):
    config = Config(
        algorithm="es",
        task=Task("CyclicMDP-v0", 9),
        policy=PolicyNetwork((4,)),
        budget=Budget(2, nominal_steps=0),
    )
    strange = replace(
        config, seed=np.int64(0), es=replace(config.es, sigma=np.float64(0.3), population_size=4)
    )
    found = esac_mpi.train(strange, run_dir=tmp_path / "run", quiet=True)
    assert "np." not in (tmp_path / "run/config.toml").read_text()
    assert found.config == replace(strange, es=replace(strange.es, reward_shift=0.0))
    for wrong, said in (
        (replace(config, seed=1.5), "seed = 1.5"),
        (replace(config, es=replace(config.es, optimiser="foo")), "foo"),
    ):
        with pytest.raises(WrongUsage, match=said):
            esac_mpi.train(wrong, run_dir=tmp_path / "wrong", quiet=True)
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"es.sigmma": 1.0}, "settings: unknown key 'es.sigmma'; did you mean 'es.sigma'?"),
        ({"es.sigma": "wide"}, "settings: es.sigma = 'wide': expected a number"),
        ({"es.sigma": -1.0}, "es.sigma = -1.0: must be positive and finite"),
        ({"sac.gamma": 0.9}, "settings: sac.gamma: algorithm = es does not read it"),
        ({"task.id": "Nowhere-v0"}, "Nowhere-v0"),
        (
            {"start_from": ""},
            "settings: start_from is empty; name what the run begins from, or leave it out",
        ),
        ({"task.kwargs": {"f": len}}, "task.kwargs"),
    ],
)
def test_what_is_refused_is_an_exception_with_the_sentence_and_the_code(
    given, said, tmp_path, capfd
):
    with pytest.raises(WrongUsage, match=re.escape(said)) as caught:
        esac_mpi.train(None, {**TINY, **given}, run_dir=tmp_path / "run")
    assert caught.value.code == 2
    assert isinstance(caught.value, RunError)
    assert capfd.readouterr().err == ""
    assert not (tmp_path / "run").exists()


def test_what_is_no_configuration_is_told_where_it_belongs(tmp_path):
    (tmp_path / "config.toml").touch()
    for config, said in (
        (
            {"seed": 3},
            "a TOML file, a Config or None, not a dict; settings are the second one: train(None, "
            "{...})",
        ),
        (
            tmp_path,
            f"'{tmp_path}' is a run's directory: {tmp_path}/config.toml goes on with the run",
        ),
    ):
        with pytest.raises(WrongUsage, match=re.escape(said)):
            esac_mpi.train(config, quiet=True)


def test_runs_without_a_readable_checkpoint_or_of_other_settings_are_refused_alike(tmp_path):
    tiny(tmp_path / "run")
    with pytest.raises(WrongUsage, match=r"es\.sigma: 0\.02 -> 0\.3"):
        esac_mpi.train(None, {**TINY, "es.sigma": 0.3}, run_dir=tmp_path / "run", quiet=True)
    for name in ("checkpoint.h5", "checkpoint_prev.h5"):
        (tmp_path / "run" / name).write_bytes(b"not HDF5")
    with pytest.raises(NoCheckpoint) as caught:
        tiny(tmp_path / "run")
    assert caught.value.code == 65
    assert tiny(tmp_path / "run", fresh=True).generation == 3
    assert (tmp_path / "run.old-1").is_dir()


def test_a_callback_sees_every_row_as_it_is_stored_and_ends_the_run_saved(tmp_path):
    rows = []
    stopped = tiny(tmp_path / "run", lambda row: rows.append(row) or row["generation"] == 2)
    assert (stopped.status["status"], stopped.generation) == ("requeue", 2)
    for name, column in stopped.columns.items():
        if name.startswith("metrics/"):
            np.testing.assert_array_equal([row[name[8:]] for row in rows], column, err_msg=name)
    assert type(rows[0]["generation"]) is int
    rows[0]["fitness"][:] = 0  # a copy
    tiny(tmp_path / "run", rows.append)
    assert [row["generation"] for row in rows] == [1, 2, 3]
    tiny(tmp_path / "straight")
    assert_same_run(tmp_path / "straight", tmp_path / "run")
    assert tiny(tmp_path / "run", rows.append).status["status"] == "complete"
    assert len(rows) == 3  # there was nothing to do


def test_an_error_of_a_callback_comes_as_it_is_and_lets_go_of_the_run(tmp_path):
    def fails(row):
        raise ZeroDivisionError("of the callback")

    with pytest.raises(ZeroDivisionError, match="of the callback"):
        tiny(tmp_path / "run", fails)
    assert json.loads((tmp_path / "run/status.json").read_text())["status"] == "failed"
    holds = (
        "import sys; from pathlib import Path; from esac_mpi.record import lock; "
        "sys.exit(not lock.is_free(Path(sys.argv[1])))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", holds, tmp_path / "run"], env=environment(), check=False
        ).returncode
        == 0
    )
    assert tiny(tmp_path / "run").generation == 3


def test_what_all_ranks_find_wrong_is_a_run_error(tmp_path, monkeypatch):
    def diverged(job):
        raise ThetaNotFinite("theta_es is no longer finite")

    monkeypatch.setattr(loop, "go_on", diverged)
    with pytest.raises(RunError, match="no longer finite") as caught:
        tiny(tmp_path / "run")
    assert (type(caught.value), caught.value.code) == (RunError, 1)


def test_a_state_that_cannot_be_saved_is_an_exception(tmp_path, monkeypatch):
    monkeypatch.setattr(active_run, "save", lambda *arguments: False)
    with pytest.raises(
        esac_mpi.NotSaved, match="could not be saved; what was saved before stands"
    ) as caught:
        tiny(tmp_path / "run")
    assert caught.value.code == ended.UNSAVED


def test_a_callback_may_change_the_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    run = tiny("run", lambda row: os.chdir(tmp_path / "elsewhere"))
    assert run.columns["metrics/generation"].tolist() == [1, 2, 3]
    assert run.path == tmp_path / "run"


def test_an_empty_text_is_no_file():
    with pytest.raises(WrongUsage):
        esac_mpi.train("")


def left_behind():
    """Return what a training must not change in its process."""
    numbers = [get() for _, get, _ in threads.openblas()]
    handlers = [
        signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM)
    ]
    alive = sorted(thread.name for thread in threading.enumerate())
    logs = log.logger.handlers[:], log.logger.propagate, log.logger.level
    drawn = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    return (
        numbers,
        handlers,
        alive,
        logs,
        dict(os.environ),
        drawn,
        sys.stdout.errors,
        signal.getitimer(signal.ITIMER_REAL),
    )


@pytest.mark.parametrize("ends", ["well", "in an error"])
def test_nothing_is_left_behind(tmp_path, ends):
    during, more = [], {name: value for name, value in TINY.items() if not name.startswith("es.")}
    more |= {"algorithm": "ppo", "ppo.steps_per_generation": 20, "ppo.batch_size": 10}
    esac_mpi.train(None, more, run_dir=tmp_path / "first", quiet=True)  # which imports
    torch.manual_seed(11)
    for _, _, put in threads.openblas():
        put(2)

    def hears(row):
        during.append(left_behind())
        return {}["x"] if ends == "in an error" else None

    before = left_behind()
    try:
        tiny(tmp_path / "run", hears)
        esac_mpi.train(None, more, run_dir=tmp_path / "ppo", quiet=True)
    except KeyError:
        assert ends == "in an error"
    assert left_behind() == before
    assert set(during[0][0]) <= {1}
    assert during[0][1] != before[1]


def test_an_interrupt_ends_the_generation_and_a_third_one_is_pythons_own(tmp_path, monkeypatch):
    def once(row):
        signal.raise_signal(signal.SIGINT)

    run = tiny(tmp_path / "run", once)
    assert (run.status["status"], run.generation) == (
        "requeue",
        2,
    )  # the wish travels with the next exchange
    monkeypatch.setattr("esac_mpi.host.stop.SAME", -1.0)

    def thrice(row):
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tiny(tmp_path / "other", thrice)
    assert (
        esac_mpi.Run.open(tmp_path / "other").status["status"] == "failed"
    )  # and not running, which nobody does
    assert tiny(tmp_path / "other").generation == 3


def test_in_another_thread_a_training_hears_no_signals(tmp_path):
    handler, found = signal.getsignal(signal.SIGINT), []

    def trains():
        found.append(tiny(tmp_path / "run", lambda row: signal.getsignal(signal.SIGINT) != handler))

    thread = threading.Thread(target=trains)
    thread.start()
    thread.join(300)
    assert found[0].generation == 3


def test_quiet_is_of_what_is_printed_alone(tmp_path, capfd):
    tiny(tmp_path / "run")
    assert capfd.readouterr().out == ""
    assert "finished at generation 3" in (tmp_path / "run/log.txt").read_text()
    esac_mpi.train(None, TINY, run_dir=tmp_path / "other")
    assert "esac_mpi: es on CyclicMDP-v0, seed 0" in capfd.readouterr().out


NOTEBOOK = """
import json, sys
import numpy as np  # with as many threads as it likes
np.ones((300, 300)) @ np.ones((300, 300))
from esac_mpi import train
for given in json.loads(sys.argv[1]):
    train(None, given, quiet=True)
"""


def test_a_notebook_gives_the_bits_of_the_command_line_also_the_second_time(tmp_path, alone):
    """Two trainings of one process, of ESAC and of ES, in one that has loaded numpy, against two
    processes.
    """
    given = []
    for name, words in (("esac", CYCLIC), ("es", CYCLIC_ES)):
        alone(*words, "--budget.generations", 6, "--run-dir", tmp_path / name)
        given.append(
            {
                **settings(words),
                "budget.generations": 6,
                "run_dir": str(tmp_path / f"{name}-python"),
            }
        )
    variables = {
        name: value for name, value in environment().items() if name not in threads.VARIABLES
    }
    line = [sys.executable, "-c", NOTEBOOK, json.dumps(given)]
    done = subprocess.run(
        line, env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    for name in ("esac", "es"):
        assert_same_run(tmp_path / name, tmp_path / f"{name}-python")


SCRIPT = """
import json, sys
from mpi4py import MPI
from esac_mpi import WrongUsage, train
given, path = json.loads(sys.argv[1]), sys.argv[2]
run = train(None, given, run_dir=path, quiet=True, callback=lambda row: row["generation"] == 2)
stopped = run and run.generation
run = train(None, given, run_dir=path, quiet=True)
try:
    train(None, {**given, "es.sigma": 7.0}, run_dir=path, quiet=True)
except WrongUsage as error:
    with open(f"{path}-{MPI.COMM_WORLD.rank}.json", "w") as file:  \
# lines that ranks print may run together
        json.dump([stopped, run and run.generation, error.code], file)
"""


def test_all_ranks_make_the_same_call(tmp_path):
    (tmp_path / "study.py").write_text(SCRIPT)
    run(3, json.dumps(TINY), tmp_path / "ranks", program=(str(tmp_path / "study.py"),))
    answers = [json.loads((tmp_path / f"ranks-{rank}.json").read_text()) for rank in range(3)]
    assert answers == [[2, 3, 2], [None, None, 2], [None, None, 2]]
    tiny(tmp_path / "alone")
    assert_same_run(tmp_path / "alone", tmp_path / "ranks")


def test_the_page_is_right(tmp_path, monkeypatch):
    """The examples of docs/start/python.md, one after the other, in a directory of their own.

    That for many ranks is run on one.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    small = (
        'algorithm = "es"\n[task]\nid = "CyclicMDP-v0"\nhorizon = 9\n[es]\n'
        "population_size = 4\n[policy]\nhidden = [4]\n"
    )
    (tmp_path / "configs/quickstart.toml").write_text(small)
    blocks = re.findall(
        r"```python\n(.*?)```",
        (ROOT / "docs/start/python.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert len(blocks) == 7
    spaces = [{} for _ in blocks]
    for block, space in zip(blocks, spaces, strict=True):
        exec(block, space)
    assert (spaces[0]["run"].status["status"], spaces[0]["run"].generation) == ("complete", 2)
    assert spaces[1]["action"].shape == spaces[1]["policy"].low.shape
    assert {"theta_es", "Adam's moments"} <= {*spaces[2]["second"].start["taken"]}
    assert spaces[6]["run"].config.seed == 2
    (tmp_path / "seeds.py").write_text(blocks[5])
    subprocess.run(
        [sys.executable, "seeds.py"],
        env=environment(),
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert {f"seed{seed}" for seed in range(4)} <= {
        path.name for path in (tmp_path / "runs").iterdir()
    }


def test_the_package_loads_nothing_before_it_is_asked():
    code = (
        "import sys, esac_mpi; {}; print(*sorted({{n.split('.')[0] for n in sys.modules}} & "
        "{{'numpy', 'mpi4py', 'torch'}}))"
    )
    for asked, loads in (
        ("pass", ""),
        ("from esac_mpi import Config, Policy, Run, train", "numpy"),
    ):
        line = [sys.executable, "-c", code.format(asked)]
        done = subprocess.run(line, env=environment(), capture_output=True, text=True, check=True)
        assert done.stdout.strip() == loads
    assert esac_mpi.Config is Config
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = esac_mpi.trian


@pytest.mark.parametrize(("text", "number"), [("2,1", 2), (" 3 ", 3), ("auto", 0), ("", 0)])
def test_the_number_of_threads_may_be_a_list_or_none(text, number, monkeypatch):
    """OpenMP has one for each level."""
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    with threads.one_each():
        assert os.environ["OMP_NUM_THREADS"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == text
    assert threads.first_number(text) == number
