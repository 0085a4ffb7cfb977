"""The race: who counts as having reached a return, when, and how it stands; its records."""

import argparse
import json
import math
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from racing import plan_of, row

from esac_mpi.analysis.messages import Unusable
from esac_mpi.config import resolved
from esac_mpi.operators.noise import Purpose, integer
from tools.bench import __main__ as bench
from tools.bench.measurement import Measurement
from tools.bench.race import field, holding, plans, processes, rows, running, standings
from tools.bench.race.field import Course, Entry, Task
from tools.bench.race.running import Look, Teller
from tools.processes import alive, family

INF = math.inf


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def looking(tmp_path, monkeypatch):
    """A teller whose evaluations give what `scores` has for a policy's first and second episodes, and take 3 s each."""
    clock, scores = Clock(), {}
    teller = Teller(plan_of(tmp_path), clock)

    def mean(act, first):
        clock.now += 3.0
        return scores[act][first > 0]

    monkeypatch.setattr(teller, "_mean", mean)
    return teller, clock, scores


def test_everyone_is_evaluated_on_the_same_episodes_and_others_that_no_other_look_has_confirm(
    tmp_path, monkeypatch
):
    seen, means = [], iter([100.0, 99.0, 100.0, 100.0])
    monkeypatch.setattr(
        running, "returns", lambda places, act, seeds: seen.append(seeds) or np.full(2, next(means))
    )
    teller = Teller(plan_of(tmp_path, started=time.monotonic()))
    assert [teller.look({"": None}, steps) for steps in (7, 8)] == [False, True]
    blocks = (0, 1), (2, 3), (0, 1), (4, 5)
    assert seen == [[integer(0, Purpose.EVALUATION, 0, block=i) for i in block] for block in blocks]


def test_evaluations_are_off_the_clock(looking):
    teller, clock, scores = looking
    scores["a"] = 10.0, 0.0
    clock.now = 4.0
    assert not teller.look({"p": "a"}, 50)
    assert (clock.now, teller.seconds) == (7.0, 4.0)
    scores["a"] = 120.0, 100.0
    clock.now += 6.0
    assert teller.look({"p": "a"}, 90)
    found = processes.looked_at(teller.plan.looks)
    assert found.looks == [
        Look(4.0, 50, "p", 10.0, None, 3.0),
        Look(10.0, 90, "p", 120.0, 100.0, 9.0),
    ]
    assert found.reached(100.0)
    assert found.evaluating == 9.0


def test_a_goal_that_other_episodes_do_not_confirm_is_not_reached_and_a_second_policy_has_its_own_chance(
    looking,
):
    teller, _, scores = looking
    scores.update(a=(130.0, 90.0), b=(110.0, 101.0))
    assert not teller.look({"sac": "a"}, 1)
    assert teller.look({"theta_es": "b", "sac": "a"}, 2)
    assert [(look.policy, look.mean, look.again) for look in processes.looked_at(teller.plan.looks).looks] == [
        ("sac", 130.0, 90.0), ("theta_es", 110.0, 101.0),
    ]  # fmt: skip


def test_looks_are_due_after_a_second_then_a_twentieth_of_the_clock_and_at_the_limit(looking):
    teller, clock, scores = looking
    scores["a"] = 0.0, 0.0
    clock.now = 0.9
    assert not teller.due
    for at, following in ((1.0, 2.0), (2.5, 3.5), (40.0, 42.0), (48.5, 50.0)):
        clock.now = at + teller._evaluating
        assert teller.due
        teller.look({"": "a"}, 1)
        clock.now = following - 0.01 + teller._evaluating
        assert not teller.due
    clock.now += 0.02
    assert teller.due
    assert teller.look({"": "a"}, 1)  # over, and too late to be looked at
    assert len(processes.looked_at(teller.plan.looks).looks) == 4


def run_of(
    name: str = "ES", limit: float = 50.0, seed: int = 0, settings: dict | None = None
) -> plans.Run:
    entry = Entry(name, "ours", lambda course: {})
    return plans.Run(
        entry,
        Course(Task("Pendulum-v1", 100.0), (8,), limit, 2, 1),
        seed,
        settings or {},
        "v 1",
        "cpu",
    )


def test_a_run_that_reaches_the_goal_in_time_has_a_time_and_every_other_one_is_a_time_out():
    late, good = Look(30.0, 600, "", 90.0, None, 5.0), Look(40.0, 800, "", 120.0, 100.0, 8.0)
    reached = processes.result(run_of(), processes.Told(2.0, [late, good]), 60.0)
    assert (reached.outcome, reached.time, reached.steps, reached.start_up, reached.best) == (
        "reached",
        40.0,
        800,
        2.0,
        120.0,
    )
    missed = processes.result(run_of(), processes.Told(2.0, [late]), 56.0)
    assert (missed.outcome, missed.seconds, missed.time, missed.steps) == ("late", 51.0, INF, INF)
    spent = processes.result(run_of(), processes.Told(2.0, [late]), 50.0)
    assert (spent.outcome, spent.seconds, spent.time) == ("spent", 45.0, INF)
    killed = processes.result(run_of(), processes.Told(None, []), 170.0)
    assert (killed.outcome, killed.start_up, killed.time) == ("late", 170.0, INF)
    failed = processes.result(run_of(), processes.Told(None, []), 3.0, "exit code 1")
    assert (failed.outcome, failed.seconds, failed.time, failed.why) == (
        "failed",
        3.0,
        INF,
        "exit code 1",
    )


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", "exit code 1"),
        ("Killed\n\n", "exit code 1: Killed"),
        (
            "Traceback (most recent call last):\n  x\nA: a\nTraceback (most recent call last):\n  y\nB: b\n  = BAD =\n",
            "exit code 1: B: b",
        ),
    ],
)
def test_the_reason_of_a_failure_is_a_line(tmp_path, log, said):
    (tmp_path / "log.txt").write_text(log)
    assert processes.reason(1, tmp_path / "log.txt") == said


@pytest.mark.parametrize(
    ("limit", "code", "outcome", "why"), [(50.0, 0, "failed", "exit code 0"), (1e-9, 3, "late", "")]
)
def test_who_never_trains_has_failed_and_who_fails_after_the_limit_was_late(
    tmp_path, monkeypatch, limit, code, outcome, why
):
    monkeypatch.setattr(
        processes, "finished", lambda run, plan, file, log: log.touch() or (code, False)
    )
    found = processes.carried_out(run_of(limit=limit), tmp_path)
    assert (found.outcome, found.why) == (outcome, why)


def test_medians_of_runs_of_which_some_did_not_reach_the_goal():
    assert standings.spread([30.0, 10.0, 20.0])[:4] == (10.0, 20.0, 30.0, 3)
    assert standings.spread([30.0, INF, 20.0])[:4] == (20.0, 30.0, INF, 3)
    assert standings.spread([INF, 20.0, INF])[:4] == (20.0, INF, INF, 3)
    assert (
        standings.spread([10.0, 20.0, 30.0, INF]).median == 30.0
    )  # of two in the middle the later one
    assert standings.spread([30.0, INF, 20.0]).text("> 180") == "30 (20 to > 180)"
    assert standings.spread([INF] * 3).text("> 180") == "> 180"
    assert standings.spread([9.876, 123.4, 1234.5]).text("") == "123 (9.9 to 1,230)"


def test_a_ratio_with_a_time_out_is_a_bound():
    assert standings.ahead(20.0, 100.0, 180.0) == (5.0, "5")
    assert standings.ahead(20.0, INF, 180.0) == (9.0, "> 9")
    assert standings.ahead(INF, 90.0, 180.0) == (0.0, "< 0.5")
    assert math.isnan(standings.ahead(INF, INF, 180.0)[0])


def race() -> standings.Standings:
    """A: ESAC 20 s, the best peer 60. B: ESAC 30, no peer. C: ESAC not, ES first with 50, a peer 90. D: nobody.

    Seed by seed the peer takes 5, 3, more than 6 times as long on A; 5/3, more than 6 and at least 0 times on B; 1.6, 0, 0 on C.
    """
    times = {
        "A": {
            "ESAC": (10, 20, 30),
            "ES": (40, 50, 60),
            "SB3 SAC": (50, 60, 190),
            "SB3 PPO": (70, 71, 72),
        },
        "B": {"ESAC": (30, 30, 190), "SB3 SAC": (50, 190, 190)},
        "C": {"ESAC": (50, 190, 190), "ES": (40, 50, 60), "SB3 SAC": (80, 90, 100)},
        "D": {"ESAC": (190, 190, 190), "SB3 SAC": (190, 190, 190)},
    }
    made = [
        row(task, name, i, s)
        for task, own in times.items()
        for name, each in own.items()
        for i, s in enumerate(each)
    ]
    return standings.Standings(made)


def test_a_failure_counts_like_a_time_out_and_is_told_apart():
    """Of three seeds one is late: the median is beyond the limit. Nobody is ahead of a peer whose median failed."""
    bad = {"outcome": rows.FAILED, "why": "exit code 1: E: e"}
    fine = [row("A", "ESAC", seed, 20.0) for seed in range(3)]
    mixed = [row("A", "ES", 0, 30.0), row("A", "ES", 1, 190.0), row("A", "ES", 2, 9.0, **bad)]
    peer = [
        row("A", "SB3 SAC", 0, 40.0),
        *(row("A", "SB3 SAC", seed, 9.0, **bad) for seed in (1, 2)),
    ]
    found = standings.Standings([*fine, *mixed, *peer])
    assert found.spread("A", "ES") == (30.0, INF, INF, 3, 1)
    assert found.spread("A", "SB3 SAC").is_failed == (False, True, True)
    assert (found.best_peer("A"), found.ratio("A")) == (None, None)
    text = found.markdown()
    assert "| ES | > 180 (30 to failed) |\n| SB3 SAC | failed (40 to failed) |" in text
    assert "| ES | - (300 to failed) |\n| SB3 SAC | failed (400 to failed) |" in text
    assert "makes again: A, ES, seed 2 (exit code 1: E: e); A, SB3 SAC, seed 1 (" in text
    assert [(m.figure, m.median) for m in found.measurements() if m.unit == "runs"] == [
        ("runs that failed, ES", 1), ("runs that failed, SB3 SAC", 2),
    ]  # fmt: skip


def test_who_is_first_and_how_far_ahead():
    found = race()
    assert [found.first(task) for task in found.tasks] == ["ESAC", "ESAC", "ES", ""]
    assert found.best_peer("A") == ("SB3 SAC", 60.0)
    assert [found.ratio(task)[0] for task in "ABC"] == [5.0, 50 / 30, 0.0]
    assert math.isnan(found.ratio("D")[0])
    two = standings.Standings([one for one in found.rows if one.seed < 2])
    assert [two.ratio(task)[0] for task in "ABC"] == [3.0, 50 / 30, 0.0]  # the lesser one
    text = found.markdown()
    assert (
        "Of it until training begins, medians: ESAC 2 s, ES 2 s, SB3 SAC 2 s, SB3 PPO 2 s." in text
    )
    assert (
        "| ESAC | **20 (10 to 30)** | **30 (30 to > 180)** | > 180 (50 to > 180) | > 180 |" in text
    )
    assert "| ESAC | 200 (100 to 300) | 300 (300 to -) | - (500 to -) | - |" in text
    assert (
        "ESAC is first on 2 of 4 tasks. The best peer's time over its own is 1.7 at least on the median of 3."
        in text
    )


def test_measurements_have_null_for_what_nobody_waited_for():
    found = {(m.case, m.figure): m for m in race().measurements()}
    least = found["B", "s to the goal, SB3 SAC"]
    assert (least.min, least.median, least.max, least.rounds) == (50, INF, INF, 3)
    assert least.plain() == {
        "benchmark": "race", "case": "B", "figure": "s to the goal, SB3 SAC", "unit": "s", "min": 50, "median": None, "max": None,
        "rounds": 3, "simulation": False,
    }  # fmt: skip
    assert found["A", "best peer / ESAC, at least"].median == 5.0
    assert isinstance(Measurement.of("x", "", "", "", [1.0]).plain()["max"], float)


@pytest.mark.parametrize(
    "change", [{"limit": 51.0}, {"name": "TD3"}, {"settings": {"esac.sigma": 0.1}}]
)
def test_a_row_is_known_by_all_that_decides_it_but_the_seed(change):
    assert run_of().made_with == run_of(seed=1).made_with
    assert run_of().made_with != run_of(**change).made_with
    assert run_of().made_with != replace(run_of(), versions="v 2").made_with


def test_a_row_of_ours_is_known_by_the_fields_it_reads_defaults_too(monkeypatch):
    assert (
        run_of().made_with
        == run_of(
            settings={"es.sigma": 0.1, "esac.lr_es": field.effective({})["esac.lr_es"]}
        ).made_with
    )
    before = run_of().made_with
    monkeypatch.setattr(field, "resolved", lambda file, named: resolved({"esac.lr_es": 0.5}, named))
    assert run_of().made_with != before


def options(out, **changes) -> argparse.Namespace:
    return argparse.Namespace(
        **{"out": out, "quick": True, "task": [], "only": [], "rounds": 2, "limit": 0, **changes}
    )


@pytest.fixture
def quickly(monkeypatch):
    """Two competitors that need no process: "ESAC" reaches the goal after 2 s, "ES" fails. Gives the runs that were made."""
    made = []

    def finished(run, plan, file, log):
        made.append((run.entry.name, run.seed))
        told = [{"start_up": 1.0}, {**Look(2.0, 500, "", 150.0, 140.0, 0.5).__dict__}]
        plan.looks.write_text(
            "".join(
                json.dumps(entry) + "\n" for entry in told[: 1 if run.entry.name == "ES" else 2]
            )
        )
        log.write_text("no room\n")
        return (3 if run.entry.name == "ES" else 0), False

    monkeypatch.setattr(processes, "finished", finished)
    monkeypatch.setattr(
        field, "ENTRIES", tuple(entry for entry in field.ENTRIES if entry.name in ("ESAC", "ES"))
    )
    return made


def test_a_race_goes_on_where_it_stands_and_mixes_nothing_in(tmp_path, quickly, capsys):
    found = list(holding.measurements(options(tmp_path)))
    assert quickly == [("ESAC", 0), ("ES", 0), ("ESAC", 1), ("ES", 1)]
    assert [(m.figure, m.median, m.rounds) for m in found] == [
        ("s to the goal, ESAC", 2.0, 2),
        ("steps to the goal, ESAC", 500, 2),
        ("s to the goal, ES", INF, 2),
        ("steps to the goal, ES", INF, 2),
        ("runs that failed, ES", 2, 1),
    ]
    assert (
        "InvertedPendulum-v5, ES, seed 0: failed after 0.0 s, exit code 3: no room"
        in capsys.readouterr().err
    )
    assert (
        "InvertedPendulum-v5, ES, seed 0 (exit code 3: no room)"
        in (tmp_path / "race.md").read_text()
    )
    quickly.clear()
    assert list(holding.measurements(options(tmp_path))) == found
    assert quickly == [("ES", 0), ("ES", 1)]  # tried again
    quickly.clear()
    list(holding.measurements(options(tmp_path, limit=7.0)))
    assert quickly == [("ESAC", 0), ("ES", 0), ("ESAC", 1), ("ES", 1)]
    assert "race.csv: 6 rows of other settings" in capsys.readouterr().err
    assert len(rows.read(tmp_path / "race.csv")) == 10


def test_a_second_race_in_a_folder_is_refused_and_the_first_one_is_not_disturbed(tmp_path, quickly):
    with holding.alone(tmp_path), pytest.raises(Unusable, match="a race is going on there"):
        list(holding.measurements(options(tmp_path)))
    assert not quickly
    assert not list(tmp_path.glob("race.*"))
    list(holding.measurements(options(tmp_path)))
    assert len(quickly) == 4


def test_what_is_interrupted_is_ended_and_what_there_is_is_published(
    tmp_path, quickly, monkeypatch
):
    def interrupted(run, folder):
        if quickly:
            raise KeyboardInterrupt
        return processes.carried_out(run, folder)

    monkeypatch.setattr(holding, "carried_out", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(holding.measurements(options(tmp_path)))
    assert "| ESAC | **2** |" in (tmp_path / "race.md").read_text()


def test_a_process_that_does_not_end_is_ended_and_timed_out(tmp_path, monkeypatch):
    monkeypatch.setattr(
        processes,
        "command",
        lambda run, file: [sys.executable, "-c", "import time; time.sleep(100)"],
    )
    monkeypatch.setattr(processes, "SPARE", 0.3)
    found = processes.carried_out(run_of(limit=0.1), tmp_path)
    assert (found.outcome, found.time) == ("late", INF)
    assert 0.5 < found.seconds < 100  # which it would have slept


def test_ranks_in_sessions_of_their_own_end_with_a_launcher_that_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "GRACE", 0.1)
    sleep = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    rank = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleep!r}], start_new_session=True); {sleep}"
    launcher = subprocess.Popen(
        [sys.executable, "-c", rank], stdout=subprocess.PIPE, start_new_session=True
    )
    with launcher.stdout as told:
        assert [told.readline() for _ in range(2)] == [b"1\n"] * 2
        ranks = family(launcher.pid)
        assert len(ranks) == 1
        processes.end(launcher)
    assert not any(map(alive, [launcher.pid, *ranks]))


def test_peers_that_are_not_installed_are_left_out_and_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert {run.entry.name for run in plans.planned(options(tmp_path))} == {
        "ESAC",
        "ES",
        "SAC",
        "TD3",
    }
    said = capsys.readouterr().err
    assert (
        said.count("stable_baselines3 is not installed and left out")
        == said.count("evotorch is not installed")
        == 1
    )


@pytest.mark.parametrize(("limit", "said"), [(-1.0, "-1"), (math.nan, "nan"), (INF, "inf")])
def test_a_race_of_no_time_is_refused(tmp_path, limit, said):
    with pytest.raises(
        Unusable, match=f"--limit {said}, --rounds 2: both must be positive and finite"
    ):
        plans.planned(options(tmp_path, limit=limit))


def test_a_task_that_a_toy_race_does_not_have_is_refused(tmp_path):
    with pytest.raises(Unusable, match="--quick has a task of its own, InvertedPendulum-v5"):
        plans.planned(options(tmp_path, task=["Hopper-v5"]))


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--task", "Hopper-v4"], "--task Hopper-v4"), (["--only", "sac"], "--only sac")],
)
def test_an_unknown_task_or_competitor_is_named(words, said, capsys):
    assert bench.main(["race", *words]) == 2
    assert f"{said}: not in the race; there are " in capsys.readouterr().err
