"""From what no run can begin, what --check says of it, and which seeds are spent."""

import errno
import gc
import re
import shutil
import weakref

import pytest
from in_process import checked
from short_runs import failing
from warm_starts import Sources, options, started
from whole_runs import assert_same_run

from esac_mpi import learners
from esac_mpi.config import load
from esac_mpi.envs import make
from esac_mpi.play.params import make_layout
from esac_mpi.record import Run
from esac_mpi.training.warm_start import find

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return Sources(tmp_path_factory.mktemp("sources"))


def sentence(capfd) -> str:
    """Return the one line that was said on stderr."""
    (line,) = capfd.readouterr().err.strip().splitlines()
    return line


def test_all_obstacles_are_told_at_once(sources, tmp_path, capfd):
    other = ["--task.id", "own_envs:Steep-v0", "--policy.hidden", 5, "--policy.activation", "tanh"]
    other += ["--policy.layer_norm", "true"]
    source, plain = sources("es", "standardised", observation_normalisation="true"), sources("es")
    assert started(source, *options("es"), *other, "--from", source) == 2
    told = sentence(capfd)
    for said in (
        "that is in the directory of this run itself",
        "it was made with seed 0, whose noise and episodes would come again",
        "its policies have policy.hidden = 6, this run's 5: --policy.hidden 6;",
        "policy.activation = relu, this run's tanh: --policy.activation relu;",
        "policy.layer_norm = false, this run's true: --policy.layer_norm false;",
        "CyclicMDP-v0, are of 3 observations and 3 actions, this run's of 3 observations and 2",
        "standardised observations: --es.observation_normalisation true",
    ):
        assert said in told
    standardises = [*options("es"), "--es.observation_normalisation", "true"]
    for line, origin, said in (
        (options("cem"), source, "standardised observations: cem has plain ones alone"),
        (standardises, plain, "plain observations: --es.observation_normalisation false"),
    ):
        assert started(tmp_path / "run", *line, "--from", origin, "--seed", 1) == 2
        assert sentence(capfd).endswith(said)
    assert not (tmp_path / "run").exists()


def test_another_linear_path_is_refused(tmp_path, capfd):
    line = [*options("es"), "--budget.generations", 2, "--policy.linear", "true"]
    assert started(tmp_path / "source", *line, "--policy.linear_gain", 3.6) == 0
    capfd.readouterr()
    for origin in ("source", "source/policy.h5"):
        again = [*line, "--seed", 1, "--from", tmp_path / origin]
        assert started(tmp_path / "run", *again) == 2
        option = "--policy.linear_gain 3.6"
        assert sentence(capfd).endswith(f"policy.linear_gain = 3.6, this run's 4.0: {option}")
        assert started(tmp_path / "run", *again, "--policy.linear", "false") == 2
        assert "policy.linear = true, this run's false" in sentence(capfd)
        assert started(tmp_path / f"from_{origin[-2:]}", *again, *option.split()) == 0
        capfd.readouterr()


def test_of_networks_without_hidden_layers_no_more_is_compared(tmp_path, capfd):
    bare = ["--task.id", "CyclicMDP-v0", "--budget.generations", 1, "--policy.hidden", "[]"]
    es = [*bare, "--algorithm", "es", "--es.observation_normalisation", "false"]
    assert started(tmp_path / "source", *es) == 0
    cem = [*bare, "--algorithm", "cem", "--seed", 1]  # its preset has tanh, and no path
    for origin in ("source", "source/policy.h5"):
        assert started(tmp_path / f"from_{origin[-2:]}", *cem, "--from", tmp_path / origin) == 0


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("nowhere", 2, "no run directory of esac_mpi, and no policy.h5"),
        ("x" * 300, 2, "File name too long"),
        ("empty", 2, "no run directory of esac_mpi, and no policy.h5"),
        ("begun", 2, "this run has no checkpoint yet"),
        ("foreign.h5", 65, "foreign.h5: "),
        ("damaged", 65, "no readable checkpoint: "),
        ("damaged/config.toml", 65, "not a file of esac_mpi"),
        ("damaged/metrics.h5", 65, "a file of esac_mpi, but not a policy"),
    ],
)
def test_a_bad_source_is_refused_in_a_sentence(sources, tmp_path, capfd, name, code, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/run.lock").touch()
    (tmp_path / "foreign.h5").write_text("x")
    shutil.copytree(sources("es"), tmp_path / "damaged")
    for file in ("checkpoint.h5", "checkpoint_prev.h5"):
        (tmp_path / "damaged" / file).write_bytes(b"not HDF5")
    line = [*options("es"), "--seed", 1, "--from", tmp_path / name]
    assert started(tmp_path / "run", *line) == code
    assert said in sentence(capfd)
    assert not (tmp_path / "run").exists()


def test_a_run_does_not_begin_from_its_own_directory(sources, tmp_path, capfd):
    shutil.copytree(sources("es"), tmp_path / "own")
    for source in ("own", "own/policy.h5"):
        line = [*options("es"), "--seed", 1, "--fresh", "--from", tmp_path / source]
        assert started(tmp_path / "own", *line) == 2
        assert "in the directory of this run itself" in capfd.readouterr().err
    assert not (tmp_path / "own.old-1").exists()


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(errno.EACCES, 2, "Permission denied"), (errno.ESTALE, 74, "system is away")],
)
def test_a_source_that_cannot_be_seen_is_a_sentence(
    sources, tmp_path, monkeypatch, capfd, number, code, said
):
    source = sources("es")
    monkeypatch.setattr("esac_mpi.training.warm_start.is_run", failing(number))
    assert started(tmp_path / "run", *options("es"), "--seed", 1, "--from", source) == code
    assert said in sentence(capfd)
    assert not (tmp_path / "run").exists()


def test_the_seeds_of_all_that_a_run_came_from_are_spent(sources, tmp_path, capfd):
    words = [*options("es"), "--budget.generations", 1]
    assert started(tmp_path / "a", *words, "--seed", 1, "--from", sources("es")) == 0
    assert started(tmp_path / "b", *words, "--seed", 0, "--from", tmp_path / "a") == 2
    assert "it was made with seed 0" in capfd.readouterr().err
    assert started(tmp_path / "b", *words, "--seed", 2, "--from", tmp_path / "a") == 0
    assert Run.open(tmp_path / "b").start["seeds"] == [1, 0]


def test_the_check_says_what_would_be_taken(sources, tmp_path, capfd):
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
    assert code == 2
    assert "WRONG: --from" in line[1]
    short = ["--es.noise", "table", "--es.noise_table_size", 5]
    code, line = looked(*options("es"), "--from", source, "--seed", 1, *short)
    assert code == 2
    assert "theta alone has 45 parameters; 300 at least" in line[1]
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
    words = [*options("td3"), "--from", source, "--seed", 1, "--run-dir", tmp_path / "run"]
    gc.disable()
    try:
        assert checked(*words) == 0
    finally:
        gc.enable()
    assert len(made) >= 2  # and one of bf16, where the CPU has units for it


def test_a_run_is_made_again_only_from_what_it_began_from(sources, tmp_path, capfd):
    source, same, other = (tmp_path / name for name in ("source", "same", "other"))
    shutil.copytree(sources("aes_rl"), source)
    line = [*options("aes_rl"), "--aes_rl.order", "arrival", "--seed", 1]
    line += ["--budget.generations", 2, "--from", source]
    assert started(tmp_path / "run", *line) == 0
    again = [*line, "--aes_rl.replay", tmp_path / "run"]
    assert started(same, *again) == 0
    assert_same_run(tmp_path / "run", same)
    assert started(source, *options("aes_rl"), "--budget.generations", 6) == 0
    capfd.readouterr()
    assert started(other, *again) == 2
    said = f"began from {source} as it was at generation 5, which is another now"
    assert said in capfd.readouterr().err
    assert not other.exists()


def test_sentences_about_another_task_have_its_keyword_arguments(tmp_path, capfd):
    source, of_slope = tmp_path / "source", 'own_envs:Steep-v0 with {"slope": 0.5}'
    steep = ["--task.id", "own_envs:Steep-v0"]
    line = [*options("td3"), "--budget.generations", 1]
    assert started(source, *line, *steep, "--task.kwargs.slope", 0.5) == 0
    capfd.readouterr()
    for origin in (source, source / "policy.h5"):
        assert started(tmp_path / "run", *line, "--seed", 1, "--from", origin) == 2
        assert f"its policies, for {of_slope}, are of 3 observations" in capfd.readouterr().err
    more = [*line, *steep, "--seed", 1, "--from", source]
    assert started(tmp_path / "run", *more, "--task.kwargs.slope", 0.25) == 0
    start = Run.open(tmp_path / "run").start
    assert start["not_taken"] == ['the replay (task.kwargs was {"slope": 0.5})']
    assert (start["task"], start["task_kwargs"]) == ("own_envs:Steep-v0", {"slope": 0.5})
    env, config = make("own_envs:Steep-v0"), load([str(word) for word in more])[0]
    found = find(str(source), config, env, make_layout(config, env).d, tmp_path)
    assert found.words.endswith(f"generation 1, {of_slope})")
