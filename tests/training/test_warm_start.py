"""Runs that begin where others stand: what they take, what not and why; the promises hold."""

import json
import re
import shutil

import numpy as np
import pytest
from hdf5_files import publish
from warm_starts import Sources, first, options, saved, started
from whole_runs import assert_same_run, science

from esac_mpi.config import ALGORITHMS
from esac_mpi.host import log
from esac_mpi.operators import evolution
from esac_mpi.operators.policy import Normaliser
from esac_mpi.record import Run, read

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return Sources(tmp_path_factory.mktemp("sources"))


ANEW = {  # fields of the state that begin anew
    *(
        "generation",
        "expected_length",
        "next_trial",
        "trials_won",
        "start_return",
        "learner_return",
        "adam_from",
    ),
    *("row", "arrived", "lengths", "critic", "critic_loss", "memories", "ages", "transitions"),
    *("trained", "drawn", "given", "told", "mean_told", "time", "critic_ended"),
    *("counters", "best"),
}


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
    assert started(tmp_path / "run", *line, "--budget.generations", 3) == 0
    assert science(tmp_path / "run")["metrics/generation"].tolist() == [1, 2, 3]


def test_adam_goes_on_where_it_was_with_the_rate_of_now(sources, tmp_path):
    line = [*options("es", lr_es=0.01), "--from", sources("es"), "--seed", 1]
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
            assert started(tmp_path / f"{other}-2", *more) == 2
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


def test_what_a_policy_saw_comes_along_with_it(sources, tmp_path):
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
    assert started(tmp_path / "other", *line, "--task.id", "Pendulum-v1") == 2
