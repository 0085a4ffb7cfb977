"""esac-mpi summary on runs whose numbers were worked out by hand, and where two runs part."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT
from growing_runs import going, make
from run_files import publish, young

from esac_mpi import config as configuration
from esac_mpi.analysis.comparison import configurations
from esac_mpi.analysis.measures import PARTS
from esac_mpi.config import Config
from esac_mpi.record import read


def test_summary(tmp_path, call):
    result = json.loads(call("summary", make(tmp_path / "a"), "--json").out)
    expected = {
        "status": "complete", "algorithm": "esac", "task": "HalfCheetah-v5", "seed": 0,
        "ranks": 2, "generation": 40,
        "env_steps": {"population": 200_000, "learner": 4000, "evaluation": 80, "replayed": 0},
        "nominal_steps": 40_000,
        "gradient_updates": 4000, "member_updates": 0, "sigma": 0.005, "wall_seconds": 2400.0,
        "checkpoint_generation": 40,
        # wall 4 s, and 2 s although a rank was busy for 3 s
        "parallel_efficiency": pytest.approx((4 / 8 + 4 / 6) / 2),
        "best_return": pytest.approx(1220), "final_return": pytest.approx(1220),
        "last_evaluation": {
            "generation": 40, "theta_es": pytest.approx(1200), "sac": pytest.approx(1220)
        },
        "env_steps_per_second": pytest.approx(204_080 / 2400),
        "time_percent": {"evaluate": 5.0, "other": 95.0},  # 20 * 4 s + 20 * 2 s of 2400 s
        "resume": None,
    }  # fmt: skip
    assert {key: result[key] for key in expected} == expected
    assert len(result["theta_sha256"]) == len(result["state_sha256"]) == 64


def test_every_part_of_a_generation_is_told_by_its_name():
    schema = tomllib.loads((ROOT / "docs/reference/hdf5.toml").read_text(encoding="utf-8"))
    seconds = [name for name in schema["timing"] if name.startswith("seconds_")]
    # parts of these, or beside them
    within = {*"noise wait phase updates processor checkpoint lead".split()}
    assert {name.removeprefix("seconds_") for name in seconds} - within == {*PARTS}


def test_evaluation_off_schedule_is_counted_and_final(tmp_path, call):
    run = going(tmp_path / "a", generations=42)
    columns = {"evaluation_theta_es": np.full(10, 1300.0), "evaluation_sac": np.full(10, 1250.0)}
    run.final({"generation": np.array(42), "env_steps_evaluation": np.array(7), **columns})
    run.close()
    result = json.loads(call("summary", tmp_path / "a", "--json").out)
    assert result["final_return"] == result["best_return"] == 1300
    assert result["env_steps"]["evaluation"] == 87
    assert result["last_evaluation"] == {"generation": 42, "theta_es": 1300, "sac": 1250}


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "empty"), *[(text, "not a run's JSON object") for text in ("[]\n", '{"status": []}')]],
)
@pytest.mark.parametrize("command", ["summary", "watch --once"])
def test_what_is_wrong_with_a_status_is_said_once(tmp_path, call, caplog, text, said, command):
    make(tmp_path / "a")
    (tmp_path / "a/status.json").write_text(text)
    assert "unknown" in call(command, tmp_path / "a").out
    (told,) = caplog.messages
    assert told == f"{tmp_path}/a/status.json: {said}; going on without it"


def test_summary_of_young_old_and_foreign_directories(tmp_path, call):
    (tmp_path / "mine").mkdir()
    places = young(tmp_path / "young"), make(tmp_path / "stopped", "es", status="requeue")
    said = call("summary", *places, tmp_path / "mine", "--json", code=2)
    assert "mine: not a run directory" in said.err
    first, stopped = map(json.loads, said.out.splitlines())
    names = ("generation", "best_return", "parallel_efficiency")
    assert [first[name] for name in names] == [0, None, None]
    found = [stopped[name] for name in ("status", "final_return", "sigma")]
    assert found == ["requeue", None, 0.005]
    assert stopped["last_evaluation"]["sac"] is None


def test_the_table_is_sorted_aligned_and_counted(tmp_path, call):
    places = young(tmp_path / "young"), make(tmp_path / "b", "es", status="requeue")
    places += make(tmp_path / "a", seed=10), make(tmp_path / "c", seed=2, task="Ant-v5")
    places += (tmp_path / "nothing",)
    header, *rows, footer = call("summary", *places, code=2).out.splitlines()
    # by task, algorithm, seed as a number
    assert [Path(row.split()[-1]).name for row in rows] == ["c", "b", "young", "a"]
    assert header.split()[:6] == ["status", "task", "algorithm", "seed", "ranks", "gen"]
    for column in ("seed", "steps", "final"):  # numbers end where their heading ends
        end = re.search(rf"\b{column}\b", header).end()
        assert all(row[end - 1] != " " and row[end] == " " for row in rows)
    assert rows[3].split()[:9] == "complete HalfCheetah-v5 esac 10 2 40 4 % 204k".split()
    assert footer == "4 runs: 2 complete, 1 requeue, 1 running; 1 could not be read"


def test_many_runs(tmp_path, call, monkeypatch):
    first = make(tmp_path / "0", generations=5, status="failed")
    paths = [first, *(tmp_path / f"{number}" for number in range(1, 20))]
    for path in paths[1:]:
        shutil.copytree(first, path)
    (tmp_path / "link").symlink_to(paths[1])
    paths.append(tmp_path / "link")  # one of them once more
    *lines, footer = call("summary", *paths).out.splitlines()
    assert [Path(line.split()[-1]) for line in lines[1:]] == sorted(paths[:-1], key=str)
    assert footer == "20 runs: 20 failed"
    monkeypatch.setenv("COLUMNS", "160")
    shown = call("watch", "--once", *paths).out.splitlines()
    assert shown[0].strip() == "20 failed"
    assert len(shown) == 22


def test_a_single_run_says_where_time_went_and_how_to_resume(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    place = make(tmp_path / "a b", status="requeue")
    *_, time, resume = call("summary", place).out.splitlines()
    assert time == "time: evaluate 5 %, other 95 %"
    expected = f"mpirun -n 2 python -m esac_mpi '{place}/config.toml'"
    assert resume == f"resume: {expected}"
    assert call("summary", place, "--resume").out == f"{expected}\n"


def test_the_command_to_resume_continues_from_anywhere(tmp_path, monkeypatch, call):
    make(tmp_path / "runs/a", status="requeue")
    make(tmp_path / "runs/b", status="complete")
    monkeypatch.chdir(tmp_path)
    own = "mpirun -n 2 python -m esac_mpi runs/a/config.toml\n"
    assert call("summary", "runs/a", "runs/b", "--resume").out == own
    monkeypatch.chdir(tmp_path / "runs")
    assert call("summary", "a", "--resume").out == own.replace("runs/a", "a")
    # the resolved configuration is there to be run
    assert configuration.read_toml("a/config.toml")["seed"] == 0


@pytest.fixture
def compared(tmp_path, call):
    """Compare the runs a and b, or another two: exit code -> what is said."""

    def said(code, one="a", other="b"):
        return call("summary", tmp_path / one, tmp_path / other, "--compare", code=code).out

    return said


def alter(path, generation, name, value, member=None):
    arrays, attributes = read(path / "metrics.h5")
    arrays[name][(generation - 1, *([] if member is None else [member]))] = value
    publish(path / "metrics.h5", arrays, attributes)


def test_compare_equal_runs(tmp_path, compared):
    make(tmp_path / "a", ranks=1, cpu="one", versions="numpy 2.4.6, torch 2.13.0")
    about = {"ranks": 3, "cpu": "two", "versions": "numpy 2.5.0, torch 2.13.0"}
    make(tmp_path / "b", generations=43, **about)
    # a nan of other bits
    alter(tmp_path / "b", 3, "metrics/evaluation_sac", np.copysign(np.nan, -1), 0)
    said = compared(0)
    assert "equal for the 40 generations both have, in 12 datasets" in said  # nan equals nan
    assert "configuration:\n  equal\n" in said
    machine = said.partition("machine and versions:\n")[2].partition("\n\n")[0].splitlines()
    assert machine == ["  ranks: 1 -> 3", "  cpu: one -> two", "  numpy: 2.4.6 -> 2.5.0"]
    assert "the states" not in said  # their checkpoints are of different generations


def test_compare_finds_where_bits_part(tmp_path, compared):
    make(tmp_path / "a")
    make(tmp_path / "b")
    value = read(tmp_path / "a/metrics.h5")[0]["metrics/fitness"][16, 3]
    least = np.nextafter(value, 2000)  # the least change there is
    alter(tmp_path / "b", 17, "metrics/fitness", least, 3)
    alter(tmp_path / "b", 30, "metrics/sigma", -0.0)
    assert compared(1).partition("bits of metrics/:\n")[2].splitlines() == [
        "  equal before generation 17; 10 of 12 datasets are equal throughout",
        f"  generation 17  metrics/fitness  [3]: {value} -> {least} (1 of 10 differ)",
        "  generation 30  metrics/sigma  0.005 -> -0.0",
        "  the states (State, Learner, replay) of generation 40 are equal",
    ]


def test_compare_states(tmp_path, compared):
    make(tmp_path / "a")
    make(tmp_path / "b")
    arrays, attributes = read(tmp_path / "b/metrics.h5")
    publish(tmp_path / "b/metrics.h5", arrays, {**attributes, "state_sha256": "0" * 64})
    said = compared(1)
    assert "equal for the 40 generations both have" in said
    assert "generation 40 differ\n" in said


@pytest.mark.parametrize(("kernels", "free"), [("compiled", True), ("torch", False)])
def test_compare_marks_the_settings_that_decide_no_bits(kernels, free):
    one = configuration.amend(Config(), {"learner.kernels": kernels})
    changes = {"budget.minutes": 5.0, "learner.threads": 2, "esac.sigma": 0.5}
    runs = (SimpleNamespace(config=each) for each in (one, configuration.amend(one, changes)))
    found = {line.split(":")[0]: line.endswith("no bits)") for line in configurations(*runs)}
    assert found == {"budget.minutes": True, "learner.threads": free, "esac.sigma": False}


def test_compare_runs_of_other_settings(tmp_path, compared):
    make(tmp_path / "a", generations=7)
    make(tmp_path / "b", "es", seed=1, generations=7)
    said = compared(1)
    assert "  algorithm: esac -> es\n  seed: 0 -> 1\n" in said
    assert "different from the first generation on; " in said
    assert "only in A: metrics/evaluation_sac\n" in said
    young(tmp_path / "young")
    assert "no generation is published in both" in compared(2, other="young")
