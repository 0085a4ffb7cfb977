"""tools/summary.py and tools/plot.py on a run whose numbers were worked out by hand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from esac_mpi.config import Config, updated
from esac_mpi.record import Run

ROOT = Path(__file__).parent.parent


def make(path, algorithm="esac", seed=0, generations=40, task="HalfCheetah-v5", status="complete", every=5):
    """Leave a run behind whose returns grow to 30 * generations."""
    config = updated(Config(), {"algorithm": algorithm, "seed": seed, "task.id": task})
    run = Run.begin(path, config, {"ranks": 2, "hosts": "node1"})
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
    header, *rows = tool("summary", tmp_path / "young", tmp_path / "stopped").stdout.splitlines()
    assert header.split()[0] == "status"
    assert len(rows) == 2
    assert "204,080" in rows[1]


def test_a_damaged_run_is_named(tmp_path):
    make(tmp_path / "a").close()
    for file in (tmp_path / "a").glob("*.h5"):
        file.write_bytes(file.read_bytes()[:-600])
    done = tool("summary", tmp_path / "a")
    assert done.returncode == 65
    assert "truncated" in done.stderr
    assert "Traceback" not in done.stderr


def test_tools_import_no_mpi_torch_or_simulator():
    code = f"""
import sys
sys.path.insert(0, {str(ROOT / "tools")!r})
import summary, plot
assert not sys.modules.keys() & {{"mpi4py", "torch", "mujoco", "gymnasium", "dm_control", "esac_mpi.comm"}}
"""
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


@pytest.mark.parametrize("x", ["env_steps", "wall"])
def test_plot_of_one_run(tmp_path, x):
    make(tmp_path / "läufe ü").close()
    done = tool("plot", tmp_path / "läufe ü", "--x", x)
    assert (done.returncode, done.stderr) == (0, "")
    picture = Path(done.stdout.strip())
    assert picture == tmp_path / "läufe ü" / "learning_curve.png"
    assert picture.stat().st_size > 20_000


def test_plot_of_several_runs(tmp_path):
    paths = []
    for algorithm, seed, task in (("esac", 0, "A-v0"), ("esac", 1, "A-v0"), ("es", 0, "A-v0"), ("esac", 0, "B-v0")):
        paths.append(tmp_path / f"{algorithm}{seed}{task}")
        make(paths[-1], algorithm, seed, task=task).close()
    done = tool("plot", *paths, "--x", "nominal_steps", "--out", tmp_path / "x.png")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path / 'x.png'}\n", "")
    assert (tmp_path / "x.png").stat().st_size > 20_000


def test_plot_without_matplotlib(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    done = tool("plot", tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 2
    assert done.stderr == "Plots need matplotlib: pip install esac_mpi[analysis]\n"


def test_plot_of_a_run_without_generations(tmp_path):
    Run.begin(tmp_path / "a", Config(), {}).close()
    done = tool("plot", tmp_path / "a")
    assert done.returncode == 2
    assert "no generation is published" in done.stderr
