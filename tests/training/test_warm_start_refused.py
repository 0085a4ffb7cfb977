"""From what no run can begin, what --check says of it, and which seeds are spent."""

import errno
import gc
import os
import re
import shutil
import weakref

import in_process
import pytest
from in_process import checked
from warm_starts import Sources, options, started
from whole_runs import assert_same_run

from esac_mpi import learners
from esac_mpi.config import load
from esac_mpi.envs import make
from esac_mpi.play.params import make_layout
from esac_mpi.record import Run
from esac_mpi.training.check import cost, directory
from esac_mpi.training.warm_start import find

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return Sources(tmp_path_factory.mktemp("sources"))


def spoiled(path):
    for name in ("checkpoint.h5", "checkpoint_prev.h5"):
        (path / name).write_bytes(b"not HDF5")


REFUSED = [  # words, exit code, what is said
    (
        ["--seed", 0],
        2,
        "it was made with seed 0, whose noise and episodes would come again; choose another --seed",
    ),
    (["--policy.hidden", 7], 2, "its policies have policy.hidden = 6, this run's 7"),
    (["--policy.activation", "tanh"], 2, "policy.activation = relu, this run's tanh"),
    (["--policy.layer_norm", "true"], 2, "policy.layer_norm = false, this run's true"),
    (
        ["--task.id", "Pendulum-v1"],
        2,
        "its policies, for CyclicMDP-v0, are of 3 observations and 3 actions, this run's of 3 obs",
    ),
    (
        ["--es.observation_normalisation", "true"],
        2,
        "see plain observations: --es.observation_normalisation false",
    ),
]


@pytest.mark.parametrize(("words", "code", "said"), REFUSED)
def test_what_would_be_nonsense_is_refused_before_anything_is_made(
    sources, tmp_path, capfd, words, code, said
):
    words = [
        *options("es"),
        "--budget.generations",
        1,
        "--from",
        sources("es"),
        "--seed",
        1,
        *words,
    ]
    assert started(tmp_path / "run", *words) == code
    told = capfd.readouterr().err
    assert f"esac_mpi: --from {sources('es')}: " in told
    assert said in told
    assert len(told.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_all_obstacles_are_told_at_once(sources, tmp_path, capfd):
    other = ["--task.id", "own_envs:Steep-v0", "--policy.hidden", 5, "--policy.activation", "tanh"]
    source = sources("es", "standardised", observation_normalisation="true")
    assert in_process.started(*options("es"), *other, "--run-dir", source, "--from", source) == 2
    told = capfd.readouterr().err
    for said in ("directory of this run itself", "seed 0", "hidden = 6", "relu", "3 actions"):
        assert said in told
    assert "standardised observations: --es.observation_normalisation true" in told
    words = [*options("cem"), "--from", source, "--seed", 1]
    assert started(tmp_path / "run", *words) == 2
    assert "standardised observations: cem has plain ones alone" in capfd.readouterr().err


def test_bad_sources_are_refused_in_a_sentence(sources, tmp_path, capfd):
    words = [*options("es"), "--budget.generations", 1, "--seed", 1]
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/run.lock").touch()
    (tmp_path / "foreign.h5").write_text("x")
    shutil.copytree(sources("es"), tmp_path / "damaged")
    spoiled(tmp_path / "damaged")
    for name, code, said in (
        ("nowhere", 2, "no run directory of esac_mpi, and no policy.h5"),
        ("x" * 300, 2, "File name too long"),
        ("empty", 2, "no run directory of esac_mpi, and no policy.h5"),
        ("begun", 2, "this run has no checkpoint yet"),
        ("foreign.h5", 65, "foreign.h5: "),
        ("damaged", 65, "no readable checkpoint: "),
        ("damaged/config.toml", 65, "not a file of esac_mpi"),
        ("damaged/metrics.h5", 65, "a file of esac_mpi, but not a policy"),
    ):
        assert started(tmp_path / "run", *words, "--from", tmp_path / name) == code, name
        told = capfd.readouterr().err
        assert said in told
        assert len(told.strip().splitlines()) == 1
        assert not (tmp_path / "run").exists()
    shutil.copytree(sources("es"), tmp_path / "own")
    for source in ("own", "own/policy.h5"):
        assert started(tmp_path / "own", *words, "--fresh", "--from", tmp_path / source) == 2
        assert (
            "that is in the directory of this run itself; choose another --run-dir"
            in capfd.readouterr().err
        )
    assert not (tmp_path / "own.old-1").exists()


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(errno.EACCES, 2, "Permission denied"), (errno.ESTALE, 74, "system is away")],
)
def test_a_source_that_cannot_be_seen_is_a_sentence(
    sources, tmp_path, monkeypatch, capfd, number, code, said
):
    def unseen(path):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("esac_mpi.training.warm_start.source.is_run", unseen)
    assert started(tmp_path / "run", *options("es"), "--seed", 1, "--from", sources("es")) == code
    told = capfd.readouterr().err.strip()
    assert (said in told, len(told.splitlines()), (tmp_path / "run").exists()) == (True, 1, False)


def test_the_seeds_of_all_that_a_run_came_from_are_spent(sources, tmp_path, capfd):
    words = [*options("es"), "--budget.generations", 1]
    assert started(tmp_path / "a", *words, "--seed", 1, "--from", sources("es")) == 0
    assert started(tmp_path / "b", *words, "--seed", 0, "--from", tmp_path / "a") == 2
    assert "it was made with seed 0" in capfd.readouterr().err
    assert started(tmp_path / "b", *words, "--seed", 2, "--from", tmp_path / "a") == 0
    assert Run.open(tmp_path / "b").start["seeds"] == [1, 0]


def test_the_check_says_what_would_be_taken(sources, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(directory, "WRITTEN", 2**20)

    def looked(*words):
        capfd.readouterr()
        code = checked(*words, "--run-dir", tmp_path / "run")
        return code, re.search(r"^  start  +(.*)", capfd.readouterr().out, re.M)

    source = sources("esac")
    code, line = looked(*options("sac"), "--from", source, "--seed", 1)
    assert code == 0
    assert f"from {source} (esac, generation 5, CyclicMDP-v0), takes theta_sac, " in line[1]
    assert "the learner, the replay" in line[1]
    assert line[1].endswith("NOTE: anew: all else, as sac is not esac")
    code, line = looked(*options("sac"), "--from", source)
    assert (code, "WRONG: --from" in line[1]) == (2, True)
    short = ["--es.noise", "table", "--es.noise_table_size", 5]
    code, line = looked(*options("es"), "--from", source, "--seed", 1, *short)
    assert (
        code,
        line[1].endswith(
            "theta alone has 45 parameters; 300 at least, "
            "for 256 pieces to draw a slot's noise from"
        ),
    ) == (2, True)
    assert looked(*options("sac"))[1] is None
    assert not (tmp_path / "run").exists()


def test_the_check_has_one_learner_at_a_time(sources, tmp_path, monkeypatch):
    """A device may have room for one; what a GPU's is made of holds it in a circle."""
    made, honest, source = [], learners.make, sources("td3")

    def make_one(*given, **more):
        assert all(learner() is None for learner in made)
        learner = honest(*given, **more)
        learner.circle = [learner]
        made.append(weakref.ref(learner))
        return learner

    monkeypatch.setattr(learners, "make", make_one)
    monkeypatch.setattr(directory, "WRITTEN", 2**20)
    monkeypatch.setattr(cost, "PLAYING", 0.01)
    monkeypatch.setattr(cost, "UPDATING", 0.01)
    words = [*options("td3"), "--from", source, "--seed", 1, "--run-dir", tmp_path / "run"]
    gc.disable()
    try:
        assert checked(*words) == 0
    finally:
        gc.enable()
    assert len(made) == 2


def test_a_run_is_made_again_only_from_what_it_began_from(sources, tmp_path, capfd):
    source, words = (
        tmp_path / "source",
        [*options("aes_rl"), "--aes_rl.order", "arrival", "--seed", 1, "--budget.generations", 2],
    )
    shutil.copytree(sources("aes_rl"), source)
    assert started(tmp_path / "run", *words, "--from", source) == 0
    again = [*words, "--from", source, "--aes_rl.replay", tmp_path / "run"]
    assert started(tmp_path / "same", *again) == 0
    assert_same_run(tmp_path / "run", tmp_path / "same")
    assert started(source, *options("aes_rl"), "--budget.generations", 6) == 0
    capfd.readouterr()
    assert started(tmp_path / "other", *again) == 2
    said = f"began from {source} as it was at generation 5, which is another now"
    assert said in capfd.readouterr().err
    assert not (tmp_path / "other").exists()


def test_sentences_about_another_task_have_its_keyword_arguments(sources, tmp_path, capfd):
    source, steep = (
        tmp_path / "source",
        ["--task.id", "own_envs:Steep-v0", "--budget.generations", 1],
    )
    assert started(source, *options("td3"), *steep, "--task.kwargs.slope", 0.5) == 0
    capfd.readouterr()
    here = 'own_envs:Steep-v0 with {"slope": 0.5}'
    for told in (source, source / "policy.h5"):
        assert (
            started(
                tmp_path / "run",
                *options("td3"),
                "--seed",
                1,
                "--budget.generations",
                1,
                "--from",
                told,
            )
            == 2
        )
        assert (
            f"its policies, for {here}, are of 3 observations and 2 actions, this run's of"
            in capfd.readouterr().err
        )
    more = [*options("td3"), *steep, "--seed", 1, "--from", source]
    assert started(tmp_path / "run", *more, "--task.kwargs.slope", 0.25) == 0
    start = Run.open(tmp_path / "run").start
    assert start["not_taken"] == ['the replay (task.kwargs was {"slope": 0.5})']
    assert (start["task"], start["task_kwargs"]) == ("own_envs:Steep-v0", {"slope": 0.5})
    env, config = make("own_envs:Steep-v0"), load([str(word) for word in more])[0]
    assert find(str(source), config, env, make_layout(config, env).d, tmp_path).words.endswith(
        f"generation 1, {here})"
    )
