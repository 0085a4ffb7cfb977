"""Runs that begin where others stand: what they take, what not and why, and what is refused."""

import errno
import gc
import json
import re
import shutil
import weakref

import numpy as np
import pytest
from in_process import checked
from run_files import publish
from short_runs import failing
from warm_starts import Sources, first, options, refused, saved, started
from whole_runs import assert_same_run, science

from esac_mpi import learners
from esac_mpi.config import ALGORITHMS, load
from esac_mpi.envs import make
from esac_mpi.host import log
from esac_mpi.operators import evolution
from esac_mpi.operators.policy import Normaliser
from esac_mpi.record import Run, read
from esac_mpi.training.warm_start import find

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return Sources(tmp_path_factory.mktemp("sources"))


# fields of the state that begin anew
ANEW = """generation expected_length next_trial trials_won start_return learner_return adam_from
row arrived lengths critic critic_loss memories ages transitions trained drawn given told mean_told
mean_return length_of_mean time critic_ended counters best""".split()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_algorithm_takes_all_of_its_state(sources, tmp_path, algorithm):
    source = sources(algorithm)
    before, _ = saved(source)
    line = [*options(algorithm), "--from", source, "--seed", 1]
    after, start = first(tmp_path / "run", *line)
    names = {n for n in before if n.split("/")[0] in ("state", "learner", "replay_tail")}
    assert any(n.startswith("learner/") for n in names) == (algorithm not in ("es", "cem"))
    for name in sorted(names):
        field = name.partition("/")[2].split(".")[0]
        if field not in ANEW and not field.startswith(("task_", "episode_", "phase_", "replayed_")):
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    assert start["not_taken"] == (["memories"] if "state/ages" in names else [])
    assert (start["kind"], start["generation"], start["seed"], start["seeds"]) == ("run", 5, 0, [0])
    stepped = "env_steps_population"
    assert start["counters"][stepped] == before[f"state/counters.{stepped}"]
    assert not any(after[n].any() for n in after if n.startswith("state/counters."))
    assert after["state/best.episodic_return"] == -np.inf
    if algorithm in ("es", "esac"):
        assert after["state/adam_from"] == -5  # so that Adam's next step is its sixth
    if algorithm == "aes_rl":  # of the source's task, maybe another one
        assert np.isnan(after["state/mean_return"])
    assert started(tmp_path / "run", *line, "--budget.generations", 3) == 0
    assert science(tmp_path / "run")["metrics/generation"].tolist() == [1, 2, 3]


def test_adam_goes_on_where_it_was_with_the_rate_of_now(sources, tmp_path):
    line = [*options("es", lr_es=0.01, scaled_noise="false"), "--from", sources("es"), "--seed", 1]
    after, _ = first(tmp_path / "run", *line)
    now, _ = saved(tmp_path / "run")
    m, v = after["state/adam_m"], after["state/adam_v"]
    gradient = m + (now["state/adam_m"] - m) / np.float32(0.1)
    step = evolution.adam_step(gradient, m, v, 6, 0.01)
    moved = now["state/theta_es"] - after["state/theta_es"]
    np.testing.assert_allclose(moved, step, rtol=1e-3, atol=1e-7)


OF_ES = {"theta_es": "theta_es", "theta_sac": "theta_es", "adam_m": "adam_m"}
OF_SAC = {"theta_sac": "theta_sac", "theta_es": "theta_sac"}
DRAWN = {"mean": "mean", "variance": "variance"}
LEARNER, REPLAY, ELSE = "the learner", "the replay", "all else"
ACROSS = [  # source, target, {field: the source's}, what else is taken, what is not
    ("es", "esac", OF_ES, "moments", LEARNER),
    ("esac", "es", {"theta_es": "theta_es", "adam_v": "adam_v"}, "Adam's moments", ELSE),
    ("esac", "sac", {"theta_sac": "theta_sac"}, "the learner, the replay", ELSE),
    ("sac", "esac", OF_SAC, "the learner, the replay", ELSE),
    ("td3", "ddpg", {"theta": "theta"}, REPLAY, LEARNER),
    ("pderl", "td3", {"theta": "champion"}, REPLAY, LEARNER),
    ("cem", "cem_rl", {**DRAWN, "damp": "damp"}, "variance, damp", LEARNER),
    ("cem_rl", "aes_rl", DRAWN, "variance, the learner, the replay", ELSE),
    ("td3", "pderl", {"theta": "theta", "champion": "theta"}, REPLAY, LEARNER),
]


@pytest.mark.parametrize(
    ("before", "now", "fields", "takes", "leaves"), ACROSS, ids=[f"{a}-{b}" for a, b, *_ in ACROSS]
)
def test_another_algorithm_takes_what_means_the_same(
    sources, tmp_path, before, now, fields, takes, leaves
):
    source, _ = saved(sources(before))
    after, start = first(tmp_path / "run", *options(now), "--from", sources(before), "--seed", 1)
    for name, origin in fields.items():
        found = after[f"state/{name}"]
        np.testing.assert_array_equal(found, source[f"state/{origin}"], err_msg=name)
    assert takes in ", ".join(start["taken"])
    assert re.search(leaves, "; ".join(start["not_taken"]))
    if "state/population" in after:  # every member begins as the policy
        assert (after["state/population"] == after["state/theta"]).all()


def test_in_discrete_tasks_ppo_and_others_refuse_each_other(tmp_path):
    """PPO's theta has its logits 2^-16 times as large: another's choices would be certain."""
    line = ["--task.id", "CartPole-v1", "--task.horizon", 12]
    ending = ["--budget.generations", 2]
    for name, other in (("es", "ppo"), ("ppo", "es")):
        assert started(tmp_path / name, *options(name), *line, *ending) == 0
        for source in (tmp_path / name, tmp_path / name / "policy.h5"):
            more = [*options(other), *line, "--from", source, "--seed", 1]
            assert "scales a last layer otherwise" in refused(tmp_path / f"{other}-2", *more)
    first(tmp_path / "again", *options("ppo"), *line, "--from", tmp_path / "ppo", "--seed", 1)


def test_what_ppo_is_set_anew_begins_anew(tmp_path):
    line = [*options("ppo"), "--task.id", "InvertedPendulum-v5"]
    assert started(tmp_path / "a", *line, "--budget.generations", 2) == 0
    for name, value in (("initial_std", 0.2), ("reward_normalisation", "true")):
        words = [*line, "--seed", 1, "--from", tmp_path / "a", f"--ppo.{name}", value]
        assert "the learner" in first(tmp_path / name, *words)[1]["not_taken"]


def test_critics_of_another_form_begin_anew(tmp_path):
    """Normalised, each of two critics has a gain and a shift more for each of 6 units."""
    normed, more = ["--td3.critic_layer_norm", "true"], ["--seed", 1, "--from", tmp_path / "a"]
    assert started(tmp_path / "a", *options("td3"), *normed, "--budget.generations", 2) == 0
    was = saved(tmp_path / "a")[0]["learner/critic_values"]
    kept, _ = first(tmp_path / "same", *options("td3"), *normed, *more)
    np.testing.assert_array_equal(kept["learner/critic_values"], was)
    _, begun = first(tmp_path / "plain", *options("td3"), *more)
    assert begun["not_taken"] == ["the learner"]


def test_the_learner_acts_as_the_policy_that_it_begins_with(sources, tmp_path):
    after, _ = first(tmp_path / "run", *options("td3"), "--from", sources("es"), "--seed", 1)
    theta = saved(sources("es"))[0]["state/theta_es"]
    for name in ("state/theta", "learner/target_actor"):
        np.testing.assert_array_equal(after[name], theta)
    np.testing.assert_array_equal(after["learner/actor_values"], theta)
    assert not after["learner/actor_moment1"].any()


def test_a_changed_setting_goes_before_what_grew_out_of_it(sources, tmp_path):
    source = sources("esac", "tuned", amt_clip=0.01)
    tuned = saved(source)[0]["state/sigma"]
    assert tuned != 0.3
    more = {"amt_clip": 0.01}
    kept, _ = first(tmp_path / "kept", *options("esac", **more), "--from", source, "--seed", 1)
    assert kept["state/sigma"] == tuned
    assert kept["state/tuning_multiplier"] == pytest.approx(tuned / 0.3, rel=1e-12)
    more |= {"sigma": 0.1, "population_size": 8, "optimiser": "sgd"}
    line = [*options("esac", **more), "--from", source, "--seed", 1]
    changed, start = first(tmp_path / "changed", *line)
    set_anew = {"sigma": 0.1, "tuning_multiplier": 1, "adam_from": 0}
    assert {name: changed[f"state/{name}"] for name in set_anew} == set_anew
    anew = {"the population's children", "Adam's moments", "the tuned sigma"}
    assert {*start["not_taken"]} == anew


def test_another_task_of_equal_sizes_takes_all_but_experience(sources, tmp_path):
    more = ["--from", sources("td3"), "--seed", 1]
    task = ["--task.id", "CyclicMDPRepo-v0"]
    other, start = first(tmp_path / "other", *options("td3"), *task, *more)
    assert start["not_taken"] == ["the replay (task.id was CyclicMDP-v0)"]
    assert start["taken"] == ["theta", "the learner"]
    assert other["replay_tail/reward"].size == 0
    longer, start = first(tmp_path / "longer", *options("td3"), "--task.horizon", 20, *more)
    assert start["not_taken"] == []
    assert longer["replay_tail/reward"].size == 40


@pytest.mark.parametrize(("capacity", "held"), [(16, 16), (40, 40), (90, 40)])
def test_a_replay_of_another_size_has_the_newest_transitions(sources, tmp_path, capacity, held):
    """The source had 120 transitions and kept 40; they are numbered anew."""
    source, _ = saved(sources("td3"))
    line = [*options("td3", replay_capacity=capacity), "--from", sources("td3"), "--seed", 1]
    after, _ = first(tmp_path / "run", *line)
    names = [name for name in source if name.startswith("replay_tail/")]
    assert len(names) == 5
    for name in names:
        np.testing.assert_array_equal(after[name], source[name][-held:])
    attributes = saved(tmp_path / "run", previous=True)[1]
    assert json.loads(attributes["replay"])["bounds"] == [0, held]


@pytest.mark.parametrize("target", ["es", "esac", "cem", "pderl", "td3"])
def test_a_policy_alone_is_what_all_policies_begin_with(sources, tmp_path, target):
    path = sources("sac") / "policy.h5"
    theta, about = read(path)
    after, start = first(tmp_path / "run", *options(target), "--from", path)
    policies = ("theta", "theta_es", "theta_sac", "mean", "champion")
    thetas = [array for name, array in after.items() if name.split("/")[1] in policies]
    assert thetas
    assert all((found == theta["theta"]).all() for found in thetas)
    assert (start["kind"], start["policy"]) == ("policy", "sac")
    assert start["generation"] == about["generation"]
    assert start["not_taken"][-1] == "all else, as it is a policy alone"


def test_what_a_policy_saw_comes_along_with_it(tmp_path):
    line = [*options("es"), "--es.observation_normalisation", "true"]
    seen = tmp_path / "seen"
    assert started(seen, *line, "--budget.generations", 2) == 0
    arrays, _ = read(seen / "policy.h5")
    after, start = first(tmp_path / "run", *line, "--from", seen / "policy.h5", "--seed", 1)
    found = Normaliser.of(after["state/observation_sums"])
    np.testing.assert_allclose(found.mean, arrays["normaliser_mean"], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.std, arrays["normaliser_std"], rtol=1e-6)
    assert start["taken"] == ["theta_es", "sums over observations"]
    whole, _ = first(tmp_path / "whole", *line, "--from", seen, "--seed", 1)
    sums = saved(seen)[0]["state/observation_sums"]
    np.testing.assert_array_equal(whole["state/observation_sums"], sums)


def test_a_run_goes_on_without_its_source_and_with_no_other(sources, tmp_path, capfd, monkeypatch):
    said, source, place = [], tmp_path / "source", tmp_path / "run"
    monkeypatch.setattr(log, "say", said.append)
    shutil.copytree(sources("es"), source)
    line = [*options("es"), "--seed", 1, "--budget.generations"]
    assert started(place, *line, 3, "--from", source) == 0
    assert started(tmp_path / "straight", *line, 5, "--from", source) == 0
    shutil.rmtree(source)
    began = Run.open(place).start
    for other in (["--from", tmp_path / "another"], []):
        assert started(place, *line, 4, *other) == 2
        assert "start_from: " in capfd.readouterr().err
    assert started(place, *line, 4, "--from", source) == 0
    begun = f"  begun from {source}, generation 5: theta_es, "
    assert [text.startswith(begun) for text in said].count(True) == 3
    assert started(place, place / "config.toml", "--budget.generations", 5) == 0
    assert Run.open(place).start == began
    assert_same_run(tmp_path / "straight", place)


def test_ranks_and_restarts_leave_no_trace_in_a_warm_start(sources, tmp_path, together):
    """Phases run beside the evaluation, and one of the source's was in flight."""
    source, straight = sources("esac", "beside", learner_lag=1), tmp_path / "straight"
    assert saved(source)[0]["state/phase_begun"] > 0
    line = [*options("esac", learner_lag=1), "--esac.transfer", "means", "--seed", 1]
    line += ["--from", source, "--budget.generations"]
    assert started(straight, *line, 4) == 0
    for ranks in (2, 3):
        parts = tmp_path / f"{ranks}"
        together(ranks, *line, 2, "--run-dir", parts)
        together(5 - ranks, *line, 4, "--run-dir", parts)
        assert_same_run(straight, parts)
        assert Run.open(parts).start == Run.open(straight).start
    assert science(straight)["metrics/gradient_updates"][-1] > 0


def test_files_of_before_say_nothing_of_sizes_and_are_taken(sources, tmp_path):
    older = tmp_path / "older"
    shutil.copytree(sources("es"), older)
    arrays, attributes = read(older / "checkpoint.h5")
    arrays.pop("state/adam_from")
    for name in ("sizes", "discrete", "start"):
        attributes.pop(name)
    publish(older / "checkpoint.h5", arrays, attributes)
    line = [*options("es"), "--from", older, "--seed", 1]
    after, start = first(tmp_path / "run", *line)
    assert after["state/adam_from"] == -5
    assert start["not_taken"] == []
    assert "parameters, not" in refused(tmp_path / "other", *line, "--task.id", "Pendulum-v1")


def test_all_obstacles_are_told_at_once(sources, tmp_path):
    other = ["--task.id", "own_envs:Steep-v0", "--policy.hidden", 5, "--policy.activation", "tanh"]
    other += ["--policy.layer_norm", "true"]
    source, plain = sources("es", "standardised", observation_normalisation="true"), sources("es")
    told = refused(source, *options("es"), *other, "--from", source)
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
    shrinks = [*standardises[:-1], "shrink"]
    shrunk = sources("es", "shrunk", observation_normalisation="shrink")
    for line, origin, said in (
        (shrinks, source, "standardised observations: --es.observation_normalisation true"),
        (standardises, shrunk, "shrunk observations: --es.observation_normalisation shrink"),
        (options("td3"), shrunk, "shrunk observations: --td3.observation_normalisation shrink"),
        (options("cem"), source, "standardised observations: cem has plain ones alone"),
        (standardises, plain, "plain observations: --es.observation_normalisation false"),
    ):
        told = refused(tmp_path / "run", *line, "--from", origin, "--seed", 1)
        assert told.endswith(said)


def test_another_linear_path_is_refused(tmp_path):
    line = [*options("es"), "--budget.generations", 2, "--policy.linear", "true"]
    assert started(tmp_path / "source", *line, "--policy.linear_gain", 3.6) == 0
    for origin in ("source", "source/policy.h5"):
        again = [*line, "--seed", 1, "--from", tmp_path / origin]
        option = "--policy.linear_gain 3.6"
        told = refused(tmp_path / "run", *again)
        assert told.endswith(f"policy.linear_gain = 3.6, this run's 4.0: {option}")
        told = refused(tmp_path / "run", *again, "--policy.linear", "false")
        assert "policy.linear = true, this run's false" in told
        assert started(tmp_path / f"from_{origin[-2:]}", *again, *option.split()) == 0


def test_of_networks_without_hidden_layers_no_more_is_compared(tmp_path):
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
def test_a_bad_source_is_refused_in_a_sentence(sources, tmp_path, name, code, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/run.lock").touch()
    (tmp_path / "foreign.h5").write_text("x")
    shutil.copytree(sources("es"), tmp_path / "damaged")
    for file in ("checkpoint.h5", "checkpoint_prev.h5"):
        (tmp_path / "damaged" / file).write_bytes(b"not HDF5")
    line = [*options("es"), "--seed", 1, "--from", tmp_path / name]
    assert said in refused(tmp_path / "run", *line, code=code)


def test_a_source_whose_checkpoints_are_gone_names_its_policy(sources, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(sources("es"), source)
    for file in source.glob("checkpoint*.h5"):
        file.unlink()
    line = [*options("es"), "--seed", 1, "--budget.generations", 1, "--from"]
    best = source / "policy.h5"
    told = refused(tmp_path / "run", *line, source, code=65)
    assert told.endswith(f"no checkpoint. Begin with its best policy, --from {best}")
    (tmp_path / "alone").mkdir()
    shutil.copy(best, tmp_path / "alone")
    assert started(tmp_path / "run", *line, tmp_path / "alone") == 0


def test_a_run_does_not_begin_from_its_own_directory(sources, tmp_path):
    shutil.copytree(sources("es"), tmp_path / "own")
    for source in ("own", "own/policy.h5"):
        line = [*options("es"), "--seed", 1, "--fresh", "--from", tmp_path / source]
        assert "in the directory of this run itself" in refused(tmp_path / "own", *line)
    assert not (tmp_path / "own.old-1").exists()


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(errno.EACCES, 2, "Permission denied"), (errno.ESTALE, 74, "system is away")],
)
def test_a_source_that_cannot_be_seen_is_a_sentence(
    sources, tmp_path, monkeypatch, number, code, said
):
    source = sources("es")
    monkeypatch.setattr("esac_mpi.training.warm_start.is_run", failing(number))
    line = [*options("es"), "--seed", 1, "--from", source]
    assert said in refused(tmp_path / "run", *line, code=code)


def test_the_seeds_of_all_that_a_run_came_from_are_spent(sources, tmp_path):
    words = [*options("es"), "--budget.generations", 1]
    assert started(tmp_path / "a", *words, "--seed", 1, "--from", sources("es")) == 0
    told = refused(tmp_path / "b", *words, "--seed", 0, "--from", tmp_path / "a")
    assert "it was made with seed 0" in told
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


def test_a_run_is_made_again_only_from_what_it_began_from(sources, tmp_path):
    source, same, other = (tmp_path / name for name in ("source", "same", "other"))
    shutil.copytree(sources("aes_rl"), source)
    line = [*options("aes_rl"), "--aes_rl.order", "arrival", "--seed", 1]
    line += ["--budget.generations", 2, "--from", source]
    assert started(tmp_path / "run", *line) == 0
    again = [*line, "--aes_rl.replay", tmp_path / "run"]
    assert started(same, *again) == 0
    assert_same_run(tmp_path / "run", same)
    assert started(source, *options("aes_rl"), "--budget.generations", 6) == 0
    said = f"began from {source} as it was at generation 5, which is another now"
    assert said in refused(other, *again)


def test_sentences_about_another_task_have_its_keyword_arguments(tmp_path):
    source, of_slope = tmp_path / "source", 'own_envs:Steep-v0 with {"slope": 0.5}'
    steep = ["--task.id", "own_envs:Steep-v0"]
    line = [*options("td3"), "--budget.generations", 1]
    assert started(source, *line, *steep, "--task.kwargs.slope", 0.5) == 0
    for origin in (source, source / "policy.h5"):
        told = refused(tmp_path / "run", *line, "--seed", 1, "--from", origin)
        assert f"its policies, for {of_slope}, are of 3 observations" in told
    more = [*line, *steep, "--seed", 1, "--from", source]
    assert started(tmp_path / "run", *more, "--task.kwargs.slope", 0.25) == 0
    start = Run.open(tmp_path / "run").start
    assert start["not_taken"] == ['the replay (task.kwargs was {"slope": 0.5})']
    assert (start["task"], start["task_kwargs"]) == ("own_envs:Steep-v0", {"slope": 0.5})
    env, config = make("own_envs:Steep-v0"), load([str(word) for word in more])[0]
    found = find(config, env)
    assert found.words.endswith(f"generation 1, {of_slope})")
