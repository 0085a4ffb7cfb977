"""The race: its competitors, records and picture; who has reached a return, and how it stands."""

import json
import math
import re
import sys
import time
from collections import Counter, defaultdict
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError
from unittest.mock import Mock

import numpy as np
import pytest
from conftest import PATIENCE, ROOT

from esac_mpi import envs
from esac_mpi.analysis.colours import COLOURS
from esac_mpi.analysis.messages import Unusable
from esac_mpi.config import flatten, resolve
from esac_mpi.host.errors import INSTALL
from esac_mpi.operators.noise import Purpose, integer
from esac_mpi.operators.policy import Layout, Policy
from esac_mpi.play import rollout
from tools import processes
from tools.race import __main__ as race
from tools.race import field, peers, rows, running, standings
from tools.race.running import Look, Plan, Teller

INF = math.inf


def plan_of(folder, **changes) -> Plan:
    """Return a plan whose files are in a folder, 50 s long, of two episodes an evaluation."""
    made = Plan("ES", "ours", "", "Pendulum-v1", 100.0, 0, 50.0, 2, 1, {}, "v", "k", str(folder))
    return replace(made, **changes)


def row(task: str, name: str, seed: int, seconds: float, **changes) -> rows.Row:
    """Return a row of a run that took so long, in time below 180 s."""
    outcome = rows.REACHED if seconds < 180 else rows.LATE
    steps, about = 10 * int(seconds), (2, "cpu", "v", "c" * 40, "d")
    made = rows.Row(
        "k", task, 100.0, name, seed, outcome, seconds, 2.0, steps, 1.0, 3, 1.5, 180.0, *about
    )
    return replace(made, **changes)


def raced(times: dict[tuple[str, str], tuple[float, ...]]) -> standings.Standings:
    """Return the standings of {(task, name): seconds by seed}."""
    return standings.Standings(
        [row(*who, seed, s) for who, each in times.items() for seed, s in enumerate(each)]
    )


@pytest.fixture
def looking(tmp_path, monkeypatch):
    """A teller whose evaluations take 3 s each.

    They give what `scores` has for a policy's first and second episodes.
    """
    clock, scores = [0.0], {}
    teller = Teller(plan_of(tmp_path), lambda: clock[0])

    def mean(act, first):
        clock[0] += 3.0
        return scores[act][first > 0]

    monkeypatch.setattr(teller, "_mean", mean)
    return teller, clock, scores


def test_all_are_evaluated_on_the_same_episodes(tmp_path, monkeypatch):
    returns = Mock(side_effect=[np.full(2, mean) for mean in (100.0, 99.0, 100.0, 100.0)])
    monkeypatch.setattr(running, "returns", returns)
    teller = Teller(plan_of(tmp_path, started=time.monotonic()))
    assert [teller.look({"": None}, steps) for steps in (7, 8)] == [False, True]
    blocks = (0, 1), (2, 3), (0, 1), (4, 5)
    seen = [call.args[2] for call in returns.call_args_list]
    assert seen == [[integer(0, Purpose.EVALUATION, 0, block=i) for i in block] for block in blocks]


def test_evaluations_are_off_the_clock(looking):
    teller, clock, scores = looking
    scores["a"] = 10.0, 0.0
    clock[0] = 4.0
    assert not teller.look({"p": "a"}, 50)
    assert (clock[0], teller.seconds) == (7.0, 4.0)
    scores["a"] = 120.0, 100.0
    clock[0] += 6.0
    assert teller.look({"p": "a"}, 90)
    expected = [Look(4.0, 50, "p", 10.0, None, 3.0), Look(10.0, 90, "p", 120.0, 100.0, 9.0)]
    assert race.read_looks(teller.plan.looks) == (None, expected)


def test_a_goal_is_reached_where_other_episodes_confirm_it(looking):
    teller, _, scores = looking
    scores.update(a=(130.0, 90.0), b=(110.0, 101.0))
    assert not teller.look({"sac": "a"}, 1)
    assert teller.look({"theta_es": "b", "sac": "a"}, 2)  # a second policy has its own chance
    seen = [(look.policy, look.mean, look.again) for look in race.read_looks(teller.plan.looks)[1]]
    assert seen == [("sac", 130.0, 90.0), ("theta_es", 110.0, 101.0)]


def test_looks_are_due_after_a_twentieth_of_the_clock(looking):
    teller, clock, scores = looking
    scores["a"] = 0.0, 0.0
    clock[0] = 0.9
    assert not teller.due
    for at, following in ((1.0, 2.0), (2.5, 3.5), (40.0, 42.0), (48.5, 50.0)):
        clock[0] = at + teller._evaluating
        assert teller.due
        teller.look({"": "a"}, 1)
        clock[0] = following - 0.01 + teller._evaluating
        assert not teller.due
    clock[0] += 0.02
    assert teller.due
    assert teller.look({"": "a"}, 1)  # over, and too late to be looked at
    assert len(race.read_looks(teller.plan.looks)[1]) == 4


LATE, GOOD = Look(30.0, 600, "", 90.0, None, 5.0), Look(40.0, 800, "", 120.0, 100.0, 8.0)


@pytest.mark.parametrize(
    ("looks", "code", "lasted", "outcome", "seconds", "steps"),
    [
        ([LATE, GOOD], 0, 60.0, "reached", 40.0, 800),
        ([LATE], 0, 56.0, "late", 51.0, INF),
        ([LATE], 0, 50.0, "late", 45.0, INF),  # with all its own budget
        ([LATE], 1, 56.0, "late", 51.0, INF),
        ([LATE, GOOD], 1, 60.0, "reached", 40.0, 800),
        ([], None, 170.0, "late", 170.0, INF),
    ],
)
def test_who_reaches_the_goal_in_time_has_a_time(
    tmp_path, looks, code, lasted, outcome, seconds, steps
):
    plan = plan_of(tmp_path)
    told = [{"start_up": 2.0}, *map(asdict, looks)]
    plan.looks.write_text("".join(f"{json.dumps(entry)}\n" for entry in told) + '{"cut')
    found = race.result(plan, code, lasted, ["Killed"])
    assert (found.outcome, found.seconds, found.steps) == (outcome, seconds, steps)
    assert found.time == (seconds if outcome == "reached" else INF)


def test_who_never_trains_or_ends_with_an_error_has_failed(tmp_path):
    log = "Traceback (most\n  x\nA: a\nTraceback (most\n  y\nB: b\n  = BAD =\n"
    for code, said, why in ((0, [], "exit code 0"), (1, log.splitlines(), "exit code 1: B: b")):
        with pytest.raises(race.Failed, match=f"^{why}$"):
            race.result(plan_of(tmp_path), code, 3.0, said)


@pytest.mark.parametrize(
    ("times", "spread", "text"),
    [
        ([30.0, 10.0, 20.0], (10.0, 20.0, 30.0), "20 (10 to 30)"),
        ([30.0, INF, 20.0], (20.0, 30.0, INF), "30 (20 to > 180)"),
        ([INF, 20.0, INF], (20.0, INF, INF), "> 180 (20 to > 180)"),
        ([INF] * 3, (INF, INF, INF), "> 180"),
        # of two in the middle the later one
        ([10.0, 20.0, 30.0, INF], (10.0, 30.0, INF), "30 (10 to > 180)"),
        ([9.876, 123.4, 1234.5], (9.876, 123.4, 1234.5), "123 (9.9 to 1,230)"),
    ],
)
def test_medians_of_runs_of_which_some_did_not_reach_the_goal(times, spread, text):
    found = standings.spread(times)
    assert (found, found.text("> 180")) == (spread, text)


def test_who_is_first_and_how_far_ahead():
    """A: ESAC 20 s, the best peer 60. B: ESAC 30, no peer. C: ES 50, a peer 90. D: nobody.

    Seed by seed the peer takes 5, 3, more than 6 times as long on A; 5/3, more than 6 and at least
    0 times on B; 1.6, 0, 0 on C.
    """
    found = raced({
        ("A", "ESAC"): (10, 20, 30), ("A", "ES"): (40, 50, 60),
        ("A", "SB3 SAC"): (50, 60, 190), ("A", "SB3 PPO"): (70, 71, 72),
        ("B", "ESAC"): (30, 30, 190), ("B", "SB3 SAC"): (50, 190, 190),
        ("C", "ESAC"): (50, 190, 190), ("C", "ES"): (40, 50, 60), ("C", "SB3 SAC"): (80, 90, 100),
        ("D", "ESAC"): (190, 190, 190), ("D", "SB3 SAC"): (190, 190, 190),
    })  # fmt: skip
    assert [found.first(task) for task in found.tasks] == ["ESAC", "ESAC", "ES", ""]
    assert found.best_peer("A") == ("SB3 SAC", 60.0)
    assert [found.ratio(task)[0] for task in "ABC"] == [5.0, 50 / 30, 0.0]
    assert math.isnan(found.ratio("D")[0])
    two = standings.Standings([one for one in found.rows if one.seed < 2])
    assert [two.ratio(task)[0] for task in "ABC"] == [3.0, 50 / 30, 0.0]  # the lesser one
    text = found.markdown()
    assert "| ESAC | **20 (10 to 30)** | **30 (30 to > 180)** | > 180 (50 to > 180) |" in text
    assert "ESAC is first on 2 of 4 tasks. The best peer's time over its own is 1.7" in text


def test_a_seed_that_not_everyone_has_run_yet_does_not_count():
    made = [row("A", "ESAC", 0, 20.0), row("A", "ESAC", 1, 50.0), row("A", "SB3 PPO", 0, 40.0)]
    found = standings.Standings(made)
    assert found.medians("A") == {"ESAC": 20.0, "SB3 PPO": 40.0}
    assert found.ratio("A") == (2.0, "2")
    # no seed in common
    assert standings.Standings(made[1:]).medians("A") == {"ESAC": 50.0, "SB3 PPO": 40.0}
    both = standings.Standings([*made, row("A", "SB3 PPO", 1, 30.0)])
    assert "the later of 2 seeds (least to most)" in both.markdown()


def test_of_peers_whose_median_is_late_the_best_is_who_came_in():
    times = {"ESAC": (40, 30), "SB3 SAC": (190, 190), "SB3 PPO": (44, 190)}
    found = raced({("A", who): each for who, each in times.items()})
    assert found.best_peer("A") == ("SB3 PPO", INF)
    assert found.ratio("A") == (1.1, "1.1")


def test_rows_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "race.csv"
    made = [row("A", "ESAC", 0, 12.5), row("A", "SB3 SAC, 4 envs", 1, 190.0, best=-INF)]
    assert rows.read(path) == []
    for each in made:
        rows.append(path, each)
    assert rows.read(path) == made
    for content in (path.read_bytes() + b"k,A,100,ES\n", b"generation,return\n1,2\n", b"a\n\xff"):
        path.write_bytes(content)
        with pytest.raises(Unusable) as raised:
            rows.read(path)
        assert raised.value.code == 65


def test_a_row_is_known_by_all_that_decides_it_but_the_seed(tmp_path):
    plan, other = plan_of(tmp_path), plan_of(tmp_path, seed=1)
    assert race.digest(plan) == race.digest(other)
    for change in ({"limit": 51.0}, {"settings": {"esac.sigma": 0.1}}, {"versions": "v 2"}):
        assert race.digest(replace(plan, **change)) != race.digest(plan)


@pytest.fixture
def quickly(monkeypatch):
    """Competitors that need no process: "ESAC" reaches the goal after 2 s, "ES" fails.

    Gives the runs that were made.
    """
    made = []

    def run_competitor(plan, folder):
        made.append((plan.competitor, plan.seed))
        if plan.competitor == "ES":
            raise race.Failed("no room")
        about = {"made_with": plan.made_with, "cpu": "here"}
        return row(plan.task, plan.competitor, plan.seed, 2.0, **about)

    monkeypatch.setattr(race, "run_competitor", run_competitor)
    monkeypatch.setattr(race.provenance, "cpu", lambda: "here")
    return made


def test_a_race_goes_on_where_it_stands_and_mixes_nothing_in(tmp_path, quickly, capsys):
    words = ["--task", "Hopper-v5", "--only", "ESAC", "ES", "--seeds", "2", "--out", str(tmp_path)]
    assert race.main(words) == 0
    assert quickly == [("ESAC", 0), ("ES", 0), ("ESAC", 1), ("ES", 1)]
    printed = capsys.readouterr()
    assert "2/4 Hopper-v5, ES, seed 0: failed: no room\n" in printed.err
    assert (tmp_path / "race.md").read_text() == printed.out
    quickly.clear()
    assert race.main(words) == 0
    assert quickly == [("ES", 0), ("ES", 1)]  # tried again
    quickly.clear()
    race.main([*words, "--limit", "7"])
    assert len(quickly) == 4
    assert len(rows.read(tmp_path / "race.csv")) == 4


def test_a_process_that_does_not_end_is_ended_and_timed_out(tmp_path, monkeypatch):
    (tmp_path / "mpirun").write_text("#!/bin/sh\necho begun\nsleep 600\n")
    (tmp_path / "mpirun").chmod(0o755)
    monkeypatch.setattr(race, "launcher", lambda ranks: [str(tmp_path / "mpirun")])
    monkeypatch.setattr(race, "SPARE", 5.0)  # in which the shell begins
    found = race.run_competitor(plan_of(tmp_path, limit=0.1, cores=2), tmp_path)
    assert (found.outcome, found.time) == ("late", INF)
    assert found.seconds < 500  # it would have slept for longer
    assert next((tmp_path / "logs").glob("*/log.txt")).read_text() == "begun\n"


def test_peers_that_are_not_installed_are_left_out_and_said(monkeypatch, capsys):
    def version(name: str) -> str:
        if name == "jax":
            raise PackageNotFoundError(name)
        return "7"

    monkeypatch.setattr(race, "version", version)
    found = race.plan_runs(["Hopper-v5"], ["ESAC", "SB3 TQC", "SBX SAC", "SBX TQC"], 1, 9.0)
    assert [plan.competitor for plan in found] == ["ESAC", "SB3 TQC", "SB3 TQC, own networks"]
    assert found[1].versions.endswith(", sb3_contrib 7, stable_baselines3 7")
    said = f"sbx is left out: jax is not installed: {INSTALL} '.[bench]'\n"
    assert capsys.readouterr().err == said


def test_a_task_has_its_own_limit_or_that_of_the_line():
    tasks = ["Hopper-v5", "Ant-v5"]
    for limit, limits in ((None, [120.0, 480.0]), (9.0, [9.0, 9.0])):
        found = race.plan_runs(tasks, ["ESAC"], 1, limit)
        assert [(plan.task, plan.limit) for plan in found] == list(zip(tasks, limits, strict=True))


def test_unknown_tasks_competitors_and_folders_are_refused(tmp_path, capsys):
    for words in (["--task", "Hopper-v4"], ["--only", "sac"]):
        with pytest.raises(SystemExit) as end:
            race.main(words)
        assert end.value.code == 2
    (tmp_path / "out").write_text("")
    assert race.main(["--only", "SAC", "--out", str(tmp_path / "out")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_episodes_side_by_side_are_those_that_are_played_alone():
    env = envs.make("Pendulum-v1")
    layout = Layout((env.observation_size, 8, env.action_size))
    policy = Policy(layout, "relu", "tanh", env.low, env.high).set(layout.initial(0, 0))
    places = [envs.make("Pendulum-v1") for _ in range(3)]
    found = running.returns(places, lambda o: np.stack([policy(x).copy() for x in o]), [1, 2, 3])
    alone = [rollout.play(env, policy, seed).episodic_return for seed in (1, 2, 3)]
    np.testing.assert_array_equal(found, alone)


@pytest.mark.parametrize("entry", field.ENTRIES[:4], ids=lambda entry: entry.name)
def test_ours_have_the_program_s_defaults_on_a_task(entry):
    settings = entry.runs("Ant-v5")[entry.name]
    algorithm = entry.name.lower()
    found = dict(flatten(resolve({}, settings)))
    usual = dict(flatten(resolve({}, {"algorithm": algorithm, "task.id": "Ant-v5"})))
    differ = {name for name, value in usual.items() if found[name] != value}
    told = {name for name in differ if not name.startswith(("budget.", "evaluation."))}
    assert (found["algorithm"], told) == (algorithm, set())
    assert found["budget.nominal_steps"] == 0  # time alone ends it


def runs_of(task: str, name: str) -> dict[str, dict]:
    """Return the runs {name: settings} of a competitor on a task."""
    return next(entry for entry in field.ENTRIES if entry.name == name).runs(task)


def test_peers_have_their_zoo_s_settings():
    """Those of the task, of another that it names, or the default; and what a variant changes."""

    def on(task: str, name: str) -> dict:
        return next(reversed(runs_of(task, name).values()))

    arch = {"net_arch": [256, 256]}
    mujoco = {"n_timesteps": 1_000_000, "learning_starts": 10_000, **arch}
    zoo = mujoco | {"gamma": 0.999}
    assert on("Swimmer-v5", "SB3 SAC") == on("Swimmer-v5", "SB3 TQC") == zoo
    four = {"train_freq": 4, "gradient_steps": 4}
    assert on("Swimmer-v5", "SBX SAC") == on("Swimmer-v5", "SBX TQC") == zoo | four
    assert on("Ant-v5", "SB3 SAC") == on("Walker2d-v5", "SB3 TQC") == mujoco
    several = {"n_timesteps": 1_000_000, "n_envs": 4, "train_freq": 1, "gradient_steps": 2, **arch}
    assert on("dm_control/cheetah-run-v0", "SB3 SAC, 4 envs") == several
    assert on("Hopper-v5", "SB3 PPO, 8 envs")["n_steps"] == 64
    assert runs_of("Swimmer-v5", "SB3 PPO, 8 envs") == {}  # the zoo has four there


@pytest.mark.parametrize(
    ("task", "name", "own"),
    [
        ("Hopper-v5", "SB3 TD3", [400, 300]),
        ("Hopper-v5", "SBX CrossQ", {"pi": [256, 256], "qf": [2048, 2048]}),
        ("Walker2d-v5", "SB3 PPO", None),
    ],
)
def test_peers_run_with_our_networks_and_with_their_own(task, name, own):
    found = {each: settings["net_arch"] for each, settings in runs_of(task, name).items()}
    ours = {name: [64, 64]}
    assert found == (ours if own is None else ours | {f"{name}, own networks": own})


def test_a_peer_counts_with_the_better_of_its_networks():
    times = {
        "ESAC": (20, 20, 20), "SB3 SAC": (50, 60, 70), "SB3 SAC, own networks": (40, 50, 190),
        "SB3 TD3": (30, 80, 90), "SB3 TD3, own networks": (190, 190, 190),
    }  # fmt: skip
    found = raced({("A", name): each for name, each in times.items()})
    assert found.names == ["ESAC", "SB3 SAC", "SB3 TD3"]
    assert found.medians("A") == {"ESAC": 20.0, "SB3 SAC": 50.0, "SB3 TD3": 80.0}
    assert (found.best_peer("A"), found.ratio("A")) == (("SB3 SAC", 50.0), (2.5, "2.5"))
    text = found.markdown()
    assert "| SB3 SAC | 50 (40 to > 180) ° |" in text
    assert "| SB3 TD3 | 80 (30 to 90) |" in text
    assert "its own (°) or ours" in text


@pytest.mark.slow
def test_one_of_ours_is_looked_at_after_a_generation(tmp_path):
    settings = {
        "algorithm": "es", "task.id": "Pendulum-v1", "policy.hidden": [8],
        "es.population_size": 4, "budget.env_steps": 10**12,
        "evaluation.every": 10**12, "evaluation.episodes": 1,
    }  # fmt: skip
    plan = plan_of(tmp_path, goal=-1e9, settings=settings, started=time.monotonic() - 2.0)
    (tmp_path / "plan.json").write_text(json.dumps(asdict(plan)))
    line = [sys.executable, "-m", "tools.race.peers", tmp_path / "plan.json"]
    assert processes.follow(line, PATIENCE, print, processes.environ()) == 0
    start_up, looks = race.read_looks(plan.looks)
    assert start_up > 2.0
    seen = [(look.env_steps, look.policy, look.reached(-1e9)) for look in looks]
    assert seen == [(4 * 200, "theta_es", True)]


def test_a_learner_of_sb3_has_its_own_normalisation(tmp_path):
    pytest.importorskip("stable_baselines3")
    sizes = {"n_envs": 2, "n_steps": 8, "batch_size": 8, "net_arch": [8]}
    settings = {**sizes, "normalize": True, "gamma": 0.9, "learning_rate": "lin_1e-3"}
    plan = plan_of_a_peer(tmp_path, "SB3 PPO", "stable_baselines3", settings)
    peers.sb3(plan, Teller(plan))
    assert [look.env_steps for look in race.read_looks(plan.looks)[1]] == [2]
    model = peers.make_learner(plan, settings)
    assert (model.lr_schedule(0.5), model.n_envs, model.policy.net_arch) == (5e-4, 2, [8])
    assert model.get_vec_normalize_env().gamma == 0.9


def plan_of_a_peer(folder, name: str, library: str, settings: dict) -> Plan:
    """Return a plan of a peer of 100 steps whose goal is reached at once."""
    about = {"competitor": name, "library": library, "started": time.monotonic() - 2.0}
    settings = {"n_timesteps": 100, **settings}
    return plan_of(folder, goal=-1e9, limit=1e6, settings=settings, **about)


def test_wide_networks_with_large_batches_have_two_threads(tmp_path):
    names = "SB3 SAC", "SB3 SAC, own networks", "SB3 PPO, 8 envs, own networks"
    plans = [plan_of(tmp_path, competitor=name, cores=4) for name in names]
    assert [peers.threads(plan) for plan in plans] == [1, 2, 1]
    assert peers.threads(replace(plans[1], cores=1)) == 1


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("SB3 TQC, own networks", "sb3_contrib"),
        ("SBX SAC", "sbx"), ("SBX TQC", "sbx"), ("SBX CrossQ", "sbx"),
    ],
)  # fmt: skip
def test_libraries_with_sb3_s_interface_are_run_as_it_is(tmp_path, name, library):
    pytest.importorskip(library)
    arch = {"pi": [8], "qf": [16]}
    settings = {"net_arch": arch, "learning_rate": "lin_1e-3", "buffer_size": 100}
    plan = plan_of_a_peer(tmp_path, name, library, settings)
    peers.sb3(plan, Teller(plan))
    assert [look.env_steps for look in race.read_looks(plan.looks)[1]] == [1]
    model = peers.make_learner(plan, dict(settings))
    found = type(model).__module__.split(".")[0], type(model).__name__
    assert found == (library, plan.algorithm)
    critics = model.policy.net_arch_qf if library == "sbx" else model.policy.net_arch["qf"]
    assert (model.lr_schedule(0.5), critics) == (5e-4, [16])


def test_a_task_of_ours_in_gymnasium_s_terms_is_the_same_task():
    env, same = peers.adapt(envs.make("Pendulum-v1")), envs.make("Pendulum-v1")
    random = np.random.default_rng(3)
    first = same.reset(int(random.integers(2**31)))
    np.testing.assert_array_equal(env.reset(seed=3)[0], first)
    taken, action = env.step(np.array([0.5], np.float32)), same.step(np.array([0.5], np.float32))
    np.testing.assert_array_equal(taken[0], action[0])
    assert taken[1:4] == action[1:]
    another = same.reset(int(random.integers(2**31)))
    np.testing.assert_array_equal(env.reset()[0], another)
    assert (env.observation_space.shape, env.action_space.high.tolist()) == ((3,), [2.0])


MADE = rows.read(ROOT / "docs/results/race/race.csv")
DEFAULTS = rows.read(ROOT / "docs/results/race/defaults.csv")


def of_three_seeds(found):
    """Return the rows of who has three seeds, on tasks where a peer has."""
    seeds = Counter((row.task, row.competitor) for row in found)
    many = {key for key, count in seeds.items() if count == 3}
    tasks = {task for task, name in many if name != field.CHAMPION}
    return [row for row in found if row.task in tasks and (row.task, row.competitor) in many]


@pytest.mark.parametrize(
    ("name", "found"),
    [("race", MADE), ("defaults", DEFAULTS), ("seeds", of_three_seeds(DEFAULTS))],
)
def test_the_tables_of_the_docs_come_from_their_rows(name, found):
    page = (ROOT / f"docs/results/race/{name}.md").read_text()
    assert standings.Standings(found).markdown() + "\n" == page


def test_the_seconds_of_three_seeds_on_the_page_are_those_of_rows():
    times = defaultdict(list)
    for row in of_three_seeds(DEFAULTS):
        took = standings.as_text(row.time, f"> {row.limit:g}")
        times[row.task.split("/")[-1].rsplit("-v", 1)[0], row.competitor].append(took)
    page = (ROOT / "docs/results/race.md").read_text()
    for (task, _), took in times.items():
        assert re.search(rf"^\| {task} \d.*[|;A-Za-z] {', '.join(took)}\b", page, re.MULTILINE)
    assert len(times) == 14


def test_what_ant_takes_with_larger_networks_is_in_its_record():
    found = rows.read(ROOT / "docs/results/race/ant.csv")
    page = " ".join((ROOT / "docs/results/race.md").read_text().split())
    plain, scaled, shrunk = found[:2], found[2:5], found[5:]
    took = [f"{row.seconds:.0f}" for row in found]
    assert f"it took {took[0]} and {took[1]} s (seeds 0 and 1)" in page
    assert f"a default after that, {took[2]}, {took[3]} and {took[4]} s (seeds 0, 1, 2)" in page
    assert f"present default, {took[5]}, {took[6]} and {took[7]} s (seeds 0, 1, 2)" in page
    assert {row.outcome for row in shrunk} == {"reached"}
    shares = [new.env_steps / old.env_steps for old, new in zip(plain, scaled[:2], strict=True)]
    assert f"in {shares[0]:.2f} and {shares[1]:.2f} of the steps" in page


def test_the_steps_of_learners_on_the_page_are_those_of_rows():
    found = {(row.task, row.competitor): row for row in MADE if row.seed == 0}

    def cell(row: rows.Row) -> str:
        if row.outcome == "reached":
            return f"{row.env_steps:,}"
        return f"- ({round(row.best):,} by {row.env_steps:,})"

    page = (ROOT / "docs/results/eight-tasks.md").read_text()
    names = ("SAC", "SB3 SAC", "SB3 SAC, 4 envs", "TD3", "SB3 TD3", "SB3 TD3, 4 envs")
    for task in dict.fromkeys(task for task, _ in found):
        cells = " | ".join(cell(found[task, name]) for name in names)
        assert f", {found[task, 'SAC'].goal:,g} | {cells} |\n" in page


def test_the_picture_names_its_rows_in_their_colours(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from esac_mpi.analysis.figures import save
    from tools.race import picture

    kept = []
    monkeypatch.setattr(picture, "save", lambda *drawn: kept.append(drawn[0]) or save(*drawn))
    found = standings.Standings(MADE)
    picture.draw(found, tmp_path / "race.png")
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")
    panels = [axes for axes in kept[0].axes if axes.axison]
    for task, axes in zip(found.tasks, panels, strict=True):
        assert axes.get_title().partition(":")[0] == task.removeprefix("dm_control/")
        named = [text.get_text() for text in axes.get_yticklabels()]
        assert named == [name for name in found.names if found.of(task, name)]
    look = picture.looks_of([entry.name for entry in field.ENTRIES])
    assert look["SB3 SAC"] == (COLOURS["sac"], "s")
    assert len(set(look.values())) == len(look)
