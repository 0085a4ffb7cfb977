"""A training by a call from Python: results, callback, errors, and what it leaves behind."""

import json
import os
import re
import signal
import sys
import threading
from dataclasses import replace
from io import StringIO
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import own_envs
import pytest
import torch
from conftest import CYCLIC, CYCLIC_ES, ROOT, TINY_ES, finish, run
from short_runs import keeps_others_out
from whole_runs import assert_same_run

import esac_mpi
from esac_mpi import Config, NoCheckpoint, NotSaved, Run, RunError, WrongUsage
from esac_mpi.config import Budget, PolicyNetwork, Task, flatten, load
from esac_mpi.config.resolution import resolve_given
from esac_mpi.envs import make
from esac_mpi.host import log, process_state, threads
from esac_mpi.play.rollout import ThetaNotFinite
from esac_mpi.training import active_run, loop, set_up
from esac_mpi.training.task_set_up import resolve_by_task

pytestmark = pytest.mark.slow


def settings(words):
    """Return the settings that a command line's words are."""
    config = load([str(word) for word in words])[0]
    named = {str(word)[2:] for word in words if str(word).startswith("--")}
    return {name: value for name, value in flatten(config) if name in named}


TINY = {**settings(TINY_ES), "budget.generations": 3}


def tiny(path, callback=None, fresh=False, **more):
    given = {**TINY, **more}
    return esac_mpi.train(None, given, run_dir=path, callback=callback, fresh=fresh, quiet=True)


def test_settings_are_those_of_the_command_line(tmp_path):
    """Files, dotted names, tables, tuples, numbers of numpy, and a path."""
    file, where = tmp_path / "es.toml", tmp_path / "run"
    file.write_text('algorithm = "es"\n[es]\nsigma = 0.2\n[policy]\nhidden = [4]\n')
    given = {"task": {"id": "CyclicMDP-v0", "horizon": np.int64(9)}, "es.population_size": 4}
    given |= {"budget.generations": 1, "policy.hidden": (5,)}
    found = esac_mpi.train(file, given, run_dir=where, quiet=True)
    line = f"{file} --task.id CyclicMDP-v0 --task.horizon 9 --es.population_size 4"
    same, _ = load(f"{line} --budget.generations 1 --policy.hidden 5".split())
    assert found.config == resolve_by_task(same, make("CyclicMDP-v0"))[0]  # by the task
    assert found.config.budget == Budget(generations=1, nominal_steps=0)
    command = found.provenance["command"]
    assert command.startswith(f"esac_mpi.train {file} ")
    assert command.endswith(f"--policy.hidden 5 --run_dir {where}")


def test_keyword_arguments_of_a_task_join_and_a_table_replaces(tmp_path):
    """Those of a file or a config, as the command line has it."""
    file, rest = tmp_path / "x.toml", {"frame_skip": 2, "inner": {"a": 1}}
    file.write_text('[task]\nid = "Hopper-v5"\n[task.kwargs]\nframe_skip = 2\ninner = {a = 1}\n')
    for base in (file, load([str(file)])[0]):
        for given, kwargs in (
            ({"task.kwargs.b": np.int64(3)}, {**rest, "b": 3}),
            ({"task.kwargs": {"b": 3}, "task.kwargs.c": 4}, {"b": 3, "c": 4}),
            ({"task": {"kwargs": {}}}, {}),
            ({"seed": 1}, rest),
        ):
            assert resolve_given(base, given).task.kwargs == kwargs
    assert load([str(file)])[0].task.kwargs == rest


def test_a_config_built_by_hand_is_checked(tmp_path):
    task, policy = Task("CyclicMDP-v0", 9), PolicyNetwork((4,))
    config = Config(algorithm="es", task=task, policy=policy, budget=Budget(2, nominal_steps=0))
    es = replace(config.es, sigma=np.float64(0.3), population_size=4)
    strange = replace(config, seed=np.int64(0), es=es)
    found = esac_mpi.train(strange, run_dir=tmp_path / "run", quiet=True)
    assert "np." not in (tmp_path / "run/config.toml").read_text()
    assert found.config == resolve_by_task(strange, make("CyclicMDP-v0"))[0]  # by the task
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
        ({"task.kwargs": {"f": len}}, "task.kwargs"),
        ({"task.kwargs": {(0, 1): 2}}, "task.kwargs"),
    ],
)
def test_what_is_refused_is_an_exception_with_the_code(given, said, tmp_path, capfd):
    with pytest.raises(WrongUsage, match=re.escape(said)) as caught:
        esac_mpi.train(None, {**TINY, **given}, run_dir=tmp_path / "run")
    assert caught.value.code == 2
    assert isinstance(caught.value, RunError)
    assert capfd.readouterr().err == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"config": {"seed": 3}}, "not a dict; settings are the second one"),
        ({"config": "old"}, "'old' is a run's directory: old/config.toml goes on"),
        ({"config": ""}, "is a directory; name the configuration file in it"),
        ({"callback": 3}, "callback = 3: expected a function"),
        ({"given": "seed=3"}, "given = 'seed=3': expected settings by name"),
        ({"run_dir": 3}, "run_dir = 3: expected a path"),
        ({"start_from": Config()}, "start_from = Config(algorithm='esac'"),
        ({"fresh": "no"}, "fresh = 'no': expected True or False"),
        ({"quiet": 1}, "quiet = 1: expected True or False"),
        ({"given": {**TINY, "run_dir": "other"}}, "expected it here or in the settings"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    (tmp_path / "old/config.toml").touch()
    with pytest.raises(WrongUsage, match=re.escape(said)):
        esac_mpi.train(**{"given": TINY, "run_dir": "run", **arguments})
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_runs_of_other_settings_or_no_checkpoint_are_refused(tmp_path):
    tiny(tmp_path / "run")
    with pytest.raises(WrongUsage, match=r"es\.sigma: 0\.02 -> 0\.3"):
        tiny(tmp_path / "run", **{"es.sigma": 0.3})
    for name in ("checkpoint.h5", "checkpoint_prev.h5"):
        (tmp_path / "run" / name).write_bytes(b"not HDF5")
    with pytest.raises(NoCheckpoint) as caught:
        tiny(tmp_path / "run")
    assert caught.value.code == 65
    for number in (1, 2):
        assert tiny(tmp_path / "run", fresh=True).generation == 3
        assert (tmp_path / f"run.old-{number}").is_dir()


def test_a_callback_sees_every_row_and_ends_the_run_saved(tmp_path):
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


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_an_error_of_a_callback_lets_go_of_the_run(tmp_path, error):
    with pytest.raises(error, match="of the callback"):
        tiny(tmp_path / "run", Mock(side_effect=error("of the callback")))
    assert Run.open(tmp_path / "run").state == "failed"
    assert not keeps_others_out(tmp_path / "run")
    assert tiny(tmp_path / "run").generation == 3


def test_an_interrupt_as_a_run_is_taken_up_lets_go_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(set_up, "take_up", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        tiny(tmp_path / "run")
    assert "heartbeat" not in {thread.name for thread in threading.enumerate()}
    assert Run.open(tmp_path / "run").state == "failed"  # and not running, which nobody does


def test_a_set_up_may_last_for_half_an_hour_whatever_an_episode_may(tmp_path, monkeypatch):
    """On many ranks imports take minutes, and so may a replay, or the lock of the job before."""
    worlds, limits, honest = [], [], loop.set_up

    def look(*_):
        limits.append((worlds[0].watchdog.member_limit, worlds[0].watchdog.silence_limit))

    def set_up_watched(config, fresh, world, *more):
        worlds.append(world)
        look()
        return honest(config, fresh, world, *more)

    monkeypatch.setattr(loop, "set_up", set_up_watched)
    tiny(tmp_path / "run", look, **{"stop.member_minutes": 0.5, "stop.silent_minutes": 60})
    assert limits == [(1800, 3600), *[(30, 3600)] * 3]


DIVERGES = Mock(side_effect=ThetaNotFinite("theta_es is no longer finite"))


@pytest.mark.parametrize(
    ("place", "name", "fails", "kind", "said"),
    [
        (loop, "go_on", DIVERGES, RunError, "no longer finite"),
        (active_run, "save", lambda *given: False, NotSaved, "could not be saved"),
    ],
)
def test_what_ends_a_training_early_is_a_run_error(
    place, name, fails, kind, said, tmp_path, monkeypatch
):
    monkeypatch.setattr(place, name, fails)
    with pytest.raises(RunError, match=said) as caught:
        tiny(tmp_path / "run")
    assert type(caught.value) is kind


def test_a_callback_may_change_the_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    run = tiny("run", lambda row: os.chdir(tmp_path / "elsewhere"))
    assert run.columns["metrics/generation"].tolist() == [1, 2, 3]
    assert run.path == tmp_path / "run"


def test_one_training_at_a_time(tmp_path):
    def again(row):
        with pytest.raises(WrongUsage, match="another training goes on in this process"):
            tiny(tmp_path / "inner")

    assert tiny(tmp_path / "run", again).state == "complete"
    assert not (tmp_path / "inner").exists()
    assert tiny(tmp_path / "inner").state == "complete"


def test_tasks_are_let_go_of_however_a_training_ends(tmp_path, monkeypatch):
    closed, steep = [], {"task.id": "own_envs:Steep-v0"}
    monkeypatch.setattr(own_envs.Steep, "close", lambda env: closed.append(env))
    tiny(tmp_path / "run", **steep)
    tiny(tmp_path / "run", **steep)  # it is finished
    with pytest.raises(WrongUsage):
        tiny(tmp_path / "run", **steep, **{"es.sigma": 0.5})  # it has other settings
    with pytest.raises(KeyError):
        tiny(tmp_path / "other", lambda row: {}["x"], **steep)
    assert len(closed) == 4


def left_behind():
    """Return what a training must not change in its process."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM)
    return (
        [get() for _, get, _ in threads.openblas()],
        [signal.getsignal(number) for number in signals],
        sorted(thread.name for thread in threading.enumerate()),
        (log.logger.handlers[:], log.logger.propagate, log.logger.level),
        dict(os.environ),
        (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()),  # noqa: NPY002
        sys.stdout.errors,
    )


@pytest.mark.parametrize("ends", ["well", "in an error"])
def test_nothing_is_left_behind(tmp_path, ends):
    ppo = {name: value for name, value in TINY.items() if not name.startswith("es.")}
    ppo |= {"algorithm": "ppo", "ppo.steps_per_generation": 20, "ppo.batch_size": 10}
    esac_mpi.train(None, ppo, run_dir=tmp_path / "first", quiet=True)  # which imports
    torch.manual_seed(11)
    for _, _, put in threads.openblas():
        put(2)
    during = []

    def hears(row):
        during.append(left_behind())
        return {}["x"] if ends == "in an error" else None

    before = left_behind()
    try:
        tiny(tmp_path / "run", hears)
        esac_mpi.train(None, ppo, run_dir=tmp_path / "ppo", quiet=True)
    except KeyError:
        assert ends == "in an error"
    assert left_behind() == before
    assert set(during[0][0]) <= {1}
    assert during[0][1] != before[1]


def test_an_interrupt_ends_the_generation_and_a_third_the_run(tmp_path, monkeypatch):
    run = tiny(tmp_path / "run", lambda row: signal.raise_signal(signal.SIGINT))
    # the wish travels with the next exchange
    assert (run.status["status"], run.generation) == ("requeue", 2)
    monkeypatch.setattr("esac_mpi.host.stop.SAME", -1.0)

    def thrice(row):
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tiny(tmp_path / "other", thrice)
    assert Run.open(tmp_path / "other").state == "failed"  # and not running, which nobody does
    assert tiny(tmp_path / "other").generation == 3


def test_in_another_thread_a_training_hears_no_signals(tmp_path):
    handler, found = signal.getsignal(signal.SIGINT), []

    def trains():
        found.append(tiny(tmp_path / "run", lambda row: signal.getsignal(signal.SIGINT) != handler))

    thread = threading.Thread(target=trains)
    thread.start()
    thread.join(300)
    assert found[0].generation == 3


def test_in_another_thread_a_training_leaves_what_the_main_one_changes(tmp_path, monkeypatch):
    inside, changed = threading.Event(), threading.Event()

    def generation():
        with process_state.preserve_state(wholly=False):
            inside.set()
            changed.wait(60)

    thread = threading.Thread(target=generation)
    thread.start()
    inside.wait(60)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", printed := StringIO())
    changed.set()
    thread.join()
    assert (Path.cwd(), sys.stdout) == (tmp_path, printed)


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


def test_a_notebook_gives_the_bits_of_the_command_line(tmp_path, alone):
    """Of ESAC, and the second time of ES, in a process that has loaded numpy."""
    given = []
    for name, words in (("esac", CYCLIC), ("es", CYCLIC_ES)):
        alone(*words, "--budget.generations", 4, "--run-dir", tmp_path / name)
        more = {"budget.generations": 4, "run_dir": str(tmp_path / f"{name}-python")}
        given.append({**settings(words), **more})
    line = ["env", *(f"--unset={name}" for name in threads.VARIABLES), sys.executable]
    assert finish([*line, "-c", NOTEBOOK, json.dumps(given)]).stdout == ""
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
refused = []
for change in ({"es.sigma": 7.0}, {"seed": MPI.COMM_WORLD.rank}):
    try:
        train(None, {**given, **change}, run_dir=path, quiet=True)
    except WrongUsage as error:
        refused.append("rank 1 asks for other settings than rank 0" in str(error))
with open(f"{path}-{MPI.COMM_WORLD.rank}.json", "w") as file:  \
# lines that ranks print may run together
    json.dump([stopped, run and run.generation, refused], file)
"""


def test_all_ranks_make_the_same_call(tmp_path):
    (tmp_path / "study.py").write_text(SCRIPT)
    run(3, json.dumps(TINY), tmp_path / "ranks", program=(str(tmp_path / "study.py"),))
    answers = [json.loads((tmp_path / f"ranks-{rank}.json").read_text()) for rank in range(3)]
    refused = [False, True]
    assert answers == [[2, 3, refused], [None, None, refused], [None, None, refused]]
    tiny(tmp_path / "alone")
    assert_same_run(tmp_path / "alone", tmp_path / "ranks")


QUICKSTART = """
algorithm = "es"
task = {id = "CyclicMDP-v0", horizon = 9}
es = {population_size = 4}
policy = {hidden = [4]}
"""


def test_the_page_is_right(tmp_path, monkeypatch):
    """The examples of docs/start/python.md, one after the other; that for many ranks on one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/quickstart.toml").write_text(QUICKSTART)
    page = (ROOT / "docs/start/python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 7
    spaces = [{} for _ in blocks]
    for block, space in zip(blocks, spaces, strict=True):
        exec(block, space)
    assert (spaces[0]["run"].status["status"], spaces[0]["run"].generation) == ("complete", 2)
    assert spaces[1]["action"].shape == spaces[1]["policy"].low.shape
    assert {"theta_es", "Adam's moments"} <= {*spaces[2]["second"].start["taken"]}
    assert spaces[6]["run"].config.seed == 2
    (tmp_path / "seeds.py").write_text(blocks[5])
    finish([sys.executable, "seeds.py"])
    made = {path.name for path in (tmp_path / "runs").iterdir()}
    assert {f"seed{seed}" for seed in range(4)} <= made


def test_what_the_package_offers_loads_no_mpi_and_no_torch():
    code = "import sys; from esac_mpi import Config, Policy, Run, train; print(*sys.modules)"
    loaded = {*finish([sys.executable, "-c", code]).stdout.split()}
    assert loaded & {"h5py", "numpy", "mpi4py", "torch"} == {"h5py", "numpy"}


def test_what_the_package_has_not_is_an_attribute_error():
    assert esac_mpi.Config is Config
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = esac_mpi.trian


@pytest.mark.parametrize(("text", "number"), [("2,1", 2), (" 3 ", 3), ("auto", 0), ("", 0)])
def test_the_number_of_threads_may_be_a_list_or_none(text, number, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    with threads.single_threaded():
        assert os.environ["OMP_NUM_THREADS"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == text
    assert threads.first_number(text) == number
