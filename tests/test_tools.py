"""tools/summary.py, watch.py, compare.py and plot.py on runs whose numbers were worked out by hand."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from commands import command

from esac_mpi import config as configuration
from esac_mpi import record
from esac_mpi.config import Config, updated
from esac_mpi.record import Run, publish, read

ROOT = Path(__file__).parent.parent


def make(path, algorithm="esac", seed=0, generations=40, task="HalfCheetah-v5", status="complete", every=5, **provenance):
    """Leave a run behind whose returns grow to 30 * generations."""
    config = updated(Config(), {"algorithm": algorithm, "seed": seed, "task.id": task})
    run = Run.begin(path, config, {"ranks": 2, "hosts": "node1", **provenance})
    random = np.random.default_rng(seed)
    best = -np.inf
    for g in range(1, generations + 1):
        centre = 30 * g + 5 * seed
        row = {
            "generation": g, "env_steps_population": 5000 * g, "env_steps_learner": 100 * g,
            "env_steps_evaluation": 10 * (g // every), "nominal_steps": 1000 * g,
            "gradient_updates": 100 * g, "unstable_episodes": 0, "sigma": 0.005,
            "fitness": centre - 100 + 60 * random.standard_normal(10),
        }  # fmt: skip
        for policy, shift in {"theta_es": 0, "sac": 20}.items():
            if policy == "sac" and algorithm == "es":
                continue
            noise = 50 * random.standard_normal(10)
            returns = centre + shift + noise - noise.mean()
            row[f"evaluation_{policy}"] = returns if g % every == 0 else np.full(10, np.nan)
            best = max(best, row[f"evaluation_{policy}"].mean()) if g % every == 0 else best
        run.append(
            {**row, "best_return": best},
            {"wall_seconds": 60.0 * g, "busy_seconds": np.array([3.0, 1.0]), "seconds_evaluate": 4.0 if g % 2 else 2.0},
        )
    run.checkpoint(generations, {"theta_es": np.ones(3, np.float32)}, {})
    run.status(status, generations)
    return run


def tool(name, *arguments, **options):
    return subprocess.run(
        [sys.executable, ROOT / "tools" / f"{name}.py", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **options}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_summary(tmp_path):
    make(tmp_path / "a").close()
    result = json.loads(tool("summary", tmp_path / "a", "--json").stdout)
    expected = {
        "status": "complete", "algorithm": "esac", "task": "HalfCheetah-v5", "seed": 0, "ranks": 2, "generation": 40,
        "env_steps": {"population": 200_000, "learner": 4000, "evaluation": 80}, "nominal_steps": 40_000,
        "gradient_updates": 4000, "sigma": 0.005, "wall_seconds": 2400.0, "checkpoint_generation": 40,
        "parallel_efficiency": pytest.approx((4 / 8 + 4 / 6) / 2),  # wall 4 s, and 2 s although a rank was busy for 3 s
        "best_return": pytest.approx(1220), "final_return": pytest.approx(1220),
        "last_evaluation": {"generation": 40, "theta_es": pytest.approx(1200), "sac": pytest.approx(1220)},
        "env_steps_per_second": pytest.approx(204_080 / 2400),
        "time_percent": {"evaluate": 5.0, "other": 95.0},  # 20 * 4 s + 20 * 2 s of 2400 s
        "resume": None,
    }  # fmt: skip
    assert {key: result[key] for key in expected} == expected
    assert len(result["theta_sha256"]) == len(result["state_sha256"]) == 64


def test_evaluation_off_schedule_is_counted_and_final(tmp_path):
    run = make(tmp_path / "a", generations=42)
    columns = {"evaluation_theta_es": np.full(10, 1300.0), "evaluation_sac": np.full(10, 1250.0)}
    run.final({"generation": np.array(42), "env_steps_evaluation": np.array(7), **columns})
    run.close()
    result = json.loads(tool("summary", tmp_path / "a", "--json").stdout)
    assert result["final_return"] == result["best_return"] == 1300
    assert result["env_steps"]["evaluation"] == 87
    assert result["last_evaluation"] == {"generation": 42, "theta_es": 1300, "sac": 1250}


def test_summary_of_young_old_and_foreign_directories(tmp_path):
    young = Run.begin(tmp_path / "young", Config(), {})
    make(tmp_path / "stopped", "es", status="requeue").close()
    (tmp_path / "mine").mkdir()
    young.close()
    done = tool("summary", tmp_path / "young", tmp_path / "stopped", tmp_path / "mine", "--json")
    assert done.returncode == 2
    assert "mine: not a run directory" in done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["generation"] == 0
    assert first["best_return"] is None
    assert first["parallel_efficiency"] is None
    assert second["status"] == "requeue"
    assert second["final_return"] is None
    assert second["last_evaluation"]["sac"] is None
    assert second["sigma"] == 0.005


def test_the_table_is_sorted_aligned_and_counted(tmp_path):
    Run.begin(tmp_path / "young", Config(), {}).close()
    make(tmp_path / "b", "es", status="requeue").close()
    make(tmp_path / "a", seed=10).close()
    make(tmp_path / "c", seed=2, task="Ant-v5").close()
    done = tool("summary", *(tmp_path / name for name in ("young", "b", "a", "c", "nothing")))
    assert done.returncode == 2
    header, *rows, footer = done.stdout.splitlines()
    assert [Path(row.split()[-1]).name for row in rows] == ["c", "b", "young", "a"]  # by task, algorithm, seed as a number
    assert header.split()[:6] == ["status", "task", "algorithm", "seed", "ranks", "generation"]
    for column in ("seed", "steps", "final"):  # numbers end where their heading ends
        end = re.search(rf"\b{column}\b", header).end()
        assert all(row[end - 1] != " " and row[end] == " " for row in rows)
    assert rows[3].split()[:7] == ["complete", "HalfCheetah-v5", "esac", "10", "2", "40", "204k"]
    assert "evaluate 5 %" not in rows[3]  # the most went elsewhere
    assert "other 95 %" in rows[3]
    assert footer == "4 runs: 2 complete, 1 dead, 1 requeue; 1 could not be read"


def test_many_runs(tmp_path):
    make(tmp_path / "0", generations=5, status="failed").close()
    paths = [tmp_path / "0", *(tmp_path / f"{number}" for number in range(1, 20))]
    for path in paths[1:]:
        shutil.copytree(paths[0], path)
    done = tool("summary", *paths)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, footer = done.stdout.splitlines()
    assert [Path(line.split()[-1]) for line in lines[1:]] == sorted(paths, key=str)
    assert footer == "20 runs: 20 failed"
    shown = tool("watch", "--once", *paths, COLUMNS="160").stdout.splitlines()
    assert shown[0].strip() == "20 failed"
    assert len(shown) == 22


def test_a_single_run_says_where_time_went_and_how_to_resume(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = f"python -m esac_mpi --task.id CyclicMDP-v0 --fresh --run-dir {tmp_path / 'a b'}"
    make(tmp_path / "a b", status="requeue", command=command.replace(f"{tmp_path / 'a b'}", f"'{tmp_path / 'a b'}'")).close()
    *_, time, resume = tool("summary", tmp_path / "a b").stdout.splitlines()
    assert time == "time: evaluate 5 %, other 95 %"
    expected = f"mpirun -n 2 python -m esac_mpi --task.id CyclicMDP-v0 --run-dir '{tmp_path / 'a b'}'"
    assert resume == f"resume: {expected}"  # without --fresh, which would start over
    assert tool("summary", tmp_path / "a b", "--resume").stdout == f"{expected}\n"


def test_the_command_to_resume_comes_back_to_the_run_from_anywhere(tmp_path, monkeypatch):
    make(tmp_path / "runs/a", status="requeue", command="python -m esac_mpi x.toml --run-dir runs/a --seed 1").close()
    make(tmp_path / "runs/b", status="complete", command="python -m esac_mpi").close()
    monkeypatch.chdir(tmp_path)
    own = "mpirun -n 2 python -m esac_mpi runs/a/config.toml --run-dir runs/a\n"
    assert tool("summary", "runs/a", "runs/b", "--resume").stdout == own  # there is no x.toml
    (tmp_path / "x.toml").touch()
    said = "mpirun -n 2 python -m esac_mpi x.toml --run-dir runs/a --seed 1\n"
    assert tool("summary", "runs/a", "--resume").stdout == said
    (tmp_path / "runs/x.toml").touch()
    monkeypatch.chdir(tmp_path / "runs")  # where runs/a would be another directory
    assert tool("summary", "a", "--resume").stdout == own.replace("runs/a", "a")
    assert configuration.read_toml("a/config.toml")["seed"] == 0  # the resolved configuration is there to be run


def test_a_damaged_run_is_named(tmp_path):
    make(tmp_path / "a").close()
    for file in (tmp_path / "a").glob("*.h5"):
        file.write_bytes(file.read_bytes()[:-600])
    done = tool("summary", tmp_path / "a")
    assert done.returncode == 65
    assert "truncated" in done.stderr
    assert "Traceback" not in done.stderr


HIDE = """
import importlib, runpy, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("mpi4py", "torch", "mujoco", "gymnasium", "dm_control", "Box2D") or name == "esac_mpi.comm":
            raise ImportError(name + " is hidden")
sys.meta_path.insert(0, Hidden())
from esac_mpi.analysis import measures, plots, views
sys.argv = {argv!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("line", [["summary", "a"], ["summary", "a", "--json"], ["watch", "a", "--once"], ["compare", "a", "a"]])
def test_the_tools_run_without_mpi_torch_and_simulators(tmp_path, line):
    make(tmp_path / "a", generations=10).close()
    argv = [str(ROOT / "tools" / f"{line[0]}.py"), *line[1:]]
    code = HIDE.format(argv=argv)
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "HalfCheetah-v5" in done.stdout or line[0] == "compare"


# watch.py


def figures(shown):
    """Return the view of one run as {label: text}."""
    return {line[:15].strip(): line[15:].strip() for line in shown.splitlines()}


def test_watch_shows_one_run(tmp_path):
    make(tmp_path / "a", status="requeue", command="python -m esac_mpi").close()
    done = tool("watch", tmp_path / "a", "--once", COLUMNS="200")
    assert (done.returncode, done.stderr) == (0, "")
    shown = figures(done.stdout)
    assert shown["job"] == "esac on HalfCheetah-v5, seed 0"
    assert shown["ranks"] == "2 on node1"
    assert shown["status"].startswith("requeue; go on with: mpirun -n 2 python -m esac_mpi ")
    assert shown["generation"] == "40, 4 % of the budget"  # 40,000 of 1,000,000 nominal steps
    assert shown["return"] == "1,220.0  ▁▂▃▄▅▆▇█  best 1,220.0"  # at every fifth generation: 170, 320, ... 1,220
    assert shown["last evaluation"] == "theta_es 1,200.0, sac 1,220.0"
    assert shown["sigma"] == f"0.005  {'▁' * 24}"
    assert shown["speed"] == "85 steps/s"
    assert shown["idle"] == "42 % of the ranks' time"  # 1 - (4 / 8 + 4 / 6) / 2
    assert shown["time"] == "40m00s so far, - left"
    assert re.fullmatch(r"\d+s ago", shown["last row"])
    assert re.fullmatch(r"\d+s ago", shown["last checkpoint"])


def test_watch_shows_several_runs_and_names_the_bad_ones(tmp_path):
    make(tmp_path / "done").close()
    make(tmp_path / "killed", status="running").close()
    status = json.loads((tmp_path / "killed/status.json").read_text())
    (tmp_path / "killed/status.json").write_text(json.dumps({**status, "pid": 2**22 + 1}))
    held = make(tmp_path / "held", status="running")
    os.utime(tmp_path / "held/metrics.h5", (0, 0))
    done = tool("watch", *(tmp_path / name for name in ("done", "killed", "held", "nothing")), "--once", COLUMNS="200")
    held.close()
    assert done.returncode == 2
    assert "nothing: not a run directory" in done.stderr
    title, header, *rows = done.stdout.splitlines()
    assert sorted(title.strip().split(", ")) == ["1 complete", "1 dead", "1 running"]
    assert " ".join(header.split()) == "run status gen budget return best returns sigma steps/s idle left row checkpoint"
    assert [row.split()[:5] for row in rows] == [
        ["held", "running", "40", "4", "%"], ["killed", "dead", "40", "4", "%"], ["done", "complete", "40", "4", "%"],
    ]  # fmt: skip
    assert "16h00m" in rows[0]  # 960,000 nominal steps at 1,000 a minute
    assert re.search(r"\d{5}d\d\dh +\d+s$", rows[0].strip())  # its rows are of 1970, its checkpoint is not
    assert "16h00m" not in rows[1]


def live(*arguments):
    """Start watch.py on a terminal of its own; return the process and a function that reads what was shown by its end."""
    terminal, end = pty.openpty()
    line = [sys.executable, ROOT / "tools/watch.py", "--every", "0.2", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"}
    heard = signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background job may have it ignored, and its children with it
    process = subprocess.Popen(line, env=environment, stdin=end, stdout=end, stderr=end)
    signal.signal(signal.SIGINT, heard)
    os.close(end)

    def read(until=None):
        shown = b""
        with suppress(OSError):  # of a terminal whose other end is closed
            while until is None or until not in shown.decode(errors="replace"):
                assert select.select([terminal], [], [], 60)[0], f"{until} did not come after {shown}"
                piece = os.read(terminal, 65536)
                if not piece:
                    break
                shown += piece
        return shown.decode(errors="replace")

    return process, read


def test_watch_follows_a_run_to_its_end(tmp_path):
    run = make(tmp_path / "a", generations=4, status="running")
    process, read = live(tmp_path / "a")
    first = read(until="last checkpoint")
    assert "running" in first
    run.append({name: column[-1] + (name == "metrics/generation") for name, column in of(run, "metrics").items()}, of_last(run))
    run.publish_metrics(force=True)
    assert "5, 0 % of the budget" in read(until="5, 0 % of the budget")
    run.status("complete", 5)
    run.close()
    assert "complete" in read()
    assert process.wait(30) == 0


def of(run, group):
    return {name.removeprefix(f"{group}/"): column for name, column in run.tail.items() if name.startswith(f"{group}/")}


def of_last(run):
    return {name: column[-1] for name, column in of(run, "timing").items()}


def test_ctrl_c_leaves_the_terminal_clean(tmp_path):
    run = make(tmp_path / "a", status="running")
    process, read = live(tmp_path / "a")
    shown = read(until="last checkpoint")
    process.send_signal(signal.SIGINT)
    shown += read()
    assert process.wait(30) == 130
    run.close()
    assert "Traceback" not in shown
    assert "\x1b[?25l" not in shown.rpartition("\x1b[?25h")[2]  # the cursor is visible
    assert re.sub(r"\x1b\[\?25[hl]", "", shown).endswith("\n")  # and on a line of its own


# compare.py


def alter(path, generation, name, value, member=None):
    """Publish metrics.h5 with one number changed."""
    arrays, attributes = read(path / "metrics.h5")
    arrays[name][(generation - 1, *([] if member is None else [member]))] = value
    publish(path / "metrics.h5", arrays, attributes)


def test_compare_equal_runs(tmp_path):
    make(tmp_path / "a", ranks=1, cpu="one", versions="numpy 2.4.6, torch 2.13.0").close()
    make(tmp_path / "b", generations=43, ranks=3, cpu="two", versions="numpy 2.5.0, torch 2.13.0").close()
    alter(tmp_path / "b", 3, "metrics/evaluation_sac", np.copysign(np.nan, -1), 0)  # a nan of other bits
    done = tool("compare", tmp_path / "a", tmp_path / "b")
    assert (done.returncode, done.stderr) == (0, "")
    assert "equal for the 40 generations both have, in 12 datasets" in done.stdout  # nan equals nan
    assert "configuration:\n  equal\n" in done.stdout
    machine = done.stdout.partition("machine and versions:\n")[2].partition("\n\n")[0].splitlines()
    assert machine == ["  ranks: 1 -> 3", "  cpu: one -> two", "  numpy: 2.4.6 -> 2.5.0"]
    assert "the states" not in done.stdout  # their checkpoints are of different generations


def test_compare_finds_where_bits_part(tmp_path):
    make(tmp_path / "a").close()
    make(tmp_path / "b").close()
    value = read(tmp_path / "a/metrics.h5")[0]["metrics/fitness"][16, 3]
    alter(tmp_path / "b", 17, "metrics/fitness", np.nextafter(value, 2000), 3)  # the least change there is
    alter(tmp_path / "b", 30, "metrics/sigma", -0.0)
    done = tool("compare", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 1
    said = done.stdout.partition("bits of metrics/:\n")[2].splitlines()
    assert said == [
        "  equal before generation 17; 10 of 12 datasets are equal throughout",
        f"  generation 17  metrics/fitness  [3]: {value} -> {np.nextafter(value, 2000)} (1 of 10 differ)",
        "  generation 30  metrics/sigma  0.005 -> -0.0",
        "  the states (State, Learner, replay) of generation 40 are equal",
    ]


def test_compare_states(tmp_path):
    make(tmp_path / "a").close()
    make(tmp_path / "b").close()
    arrays, attributes = read(tmp_path / "b/metrics.h5")
    publish(tmp_path / "b/metrics.h5", arrays, {**attributes, "state_sha256": "0" * 64})
    done = tool("compare", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 1
    assert "equal for the 40 generations both have" in done.stdout
    assert "generation 40 differ\n" in done.stdout


def test_compare_runs_of_other_settings(tmp_path):
    make(tmp_path / "a", generations=7).close()
    make(tmp_path / "b", "es", seed=1, generations=7).close()
    done = tool("compare", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 1
    assert "  algorithm: 'esac' -> 'es'\n  seed: 0 -> 1\n" in done.stdout
    assert "apart from the first generation" in done.stdout
    assert "only in A: metrics/evaluation_sac\n" in done.stdout
    Run.begin(tmp_path / "young", Config(), {}).close()
    done = tool("compare", tmp_path / "a", tmp_path / "young")
    assert done.returncode == 0
    assert "no generation is published in both" in done.stdout


@pytest.mark.parametrize(("name", "code"), [("mine", 2), ("newer", 2), ("foreign", 65), ("short", 65)])
def test_bad_input_is_one_clear_sentence(tmp_path, monkeypatch, capsys, name, code):
    make(tmp_path / "good", generations=2).close()
    monkeypatch.setattr(record.files, "SCHEMA", 9 if name == "newer" else record.files.SCHEMA)
    make(tmp_path / "newer", generations=2).close()
    monkeypatch.undo()
    shutil.copytree(tmp_path / "good", tmp_path / "short")
    for file in (tmp_path / "short").glob("*.h5"):
        file.write_bytes(file.read_bytes()[:-600])
    (tmp_path / "mine").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/metrics.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    said = {"mine": "not a run", "newer": "schema 9, written by", "foreign": "not a file of esac_mpi", "short": "truncated"}
    for program, *before in (["summary"], ["watch", "--once"], ["compare", str(tmp_path / "good")]):
        assert command(program).main([*before, str(tmp_path / name)]) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert said[name] in err
        assert err.count("\n") == 1
