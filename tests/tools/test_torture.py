"""The stress tools, in small: random kills, and configurations that make no sense."""

import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import environment

from tools.stress import answers, runs


def tool(name: str, *options: object) -> str:
    """Return what a tool prints; it must end with 0."""
    line = [sys.executable, "-m", f"tools.stress.{name}", *map(str, options)]
    done = subprocess.run(
        line, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_killed_at_random_moments_nothing_is_lost():
    printed = tool(
        "torture", "--kills", 12, "--seed", 125
    )  # of which three to five of each victim, if all ranks have begun
    table, _, rest = printed.partition("\n12 kills in ")
    hits = np.array([line.split()[-3:] for line in table.splitlines()[1:]], int)
    assert hits.sum() == 12
    assert (hits.sum(axis=0) > 0).all()  # rank 0, another rank, everything
    assert "0 committed rows lost" in rest
    assert float(re.search(r"slowest end .*: ([\d.]+) s", rest)[1]) < 10


def test_torture_sees_what_differs():
    straight = {
        "metrics/sigma": np.array([0.1, 0.2, 0.3]),
        "theta_sha256": np.array("ab"),
        "metrics/nan": np.full(3, np.nan),
    }
    runs.compare(straight, straight, whole=True)
    runs.compare({"metrics/sigma": straight["metrics/sigma"][:2]}, straight, whole=False)
    for wrong in (
        {**straight, "metrics/sigma": np.array([0.1, 0.2, np.nextafter(0.3, 1)])},
        {**straight, "metrics/sigma": straight["metrics/sigma"][:2]},
        {**straight, "theta_sha256": np.array("ac")},
        {"metrics/sigma": straight["metrics/sigma"]},
    ):
        with pytest.raises(runs.Broken):
            runs.compare(wrong, straight, whole=True)
    with pytest.raises(runs.Broken):
        runs.compare({"metrics/sigma": np.array([0.2])}, straight, whole=False)


def test_torture_sees_rows_that_a_run_of_its_own_order_has_lost():
    before = {"metrics/generation": np.arange(1, 4), "metrics/worker": np.array([0, 1, 1])}
    after = {"metrics/generation": np.arange(1, 5), "metrics/worker": np.array([0, 1, 1, 0])}
    assert runs.longer({}, before) is runs.longer(before, {}) is before
    assert runs.longer(before, after) is runs.longer(after, before) is after
    with pytest.raises(runs.Broken, match="metrics/worker differs"):
        runs.longer(after, {**before, "metrics/worker": np.array([0, 1, 0])})


def test_torture_waits_for_a_run_that_goes_on_and_not_for_one_that_is_stuck(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(runs.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(runs.time, "sleep", lambda seconds: now.append(now.pop() + 1.0))
    monkeypatch.setattr(runs, "inode", lambda path: int(now[0]))
    going = SimpleNamespace(poll=lambda: None if now[0] < 3 * runs.PATIENCE else 0)
    runs.finish(runs.Job(going, tmp_path, 0))
    monkeypatch.setattr(runs, "inode", lambda path: 7)
    stuck = runs.Job(subprocess.Popen(["sleep", "600"], start_new_session=True), tmp_path, 0)
    with pytest.raises(runs.Broken, match="neither ended nor published for 60 s"):
        runs.finish(stuck)
    assert stuck.process.wait() == -9


def test_configurations_that_make_no_sense_give_one_message():
    printed = tool("fuzz_config", "--count", 170, "--run", 4)
    assert "170 configurations, 4 runs: 0 wrong answers" in printed
    counts = {name: int(count) for name, count in re.findall(r"(\w+): (\d+)", printed)}
    assert counts["accepted"] > 30
    assert counts["ConfigError"] > 30


def test_fuzzing_sees_a_wrong_answer(monkeypatch):
    def crash(_line):
        raise OverflowError("int too large")

    def silent(_line):
        raise SystemExit(2)

    for load, answer in ((crash, "crash"), (silent, "parser")):
        monkeypatch.setattr(answers.config, "load", load)
        found, problem = answers.verdict("0")
        assert found == answer
        assert problem.startswith("0: [")
