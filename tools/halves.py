"""ESAC against its two halves: run ESAC (recommended and paper readings), ES and SAC, and print what came out.

Purpose: does ESAC beat both its halves, at equal true steps and at equal wall time? Small networks, configs/halves/.
Steps are those of population and learner; evaluations, equal for all, cost wall time but no steps here.
Cost: 4 variants x 3 tasks x 3 seeds x --seconds, two at a time: 50 minutes of two cores at the default.
Command: python tools/halves.py run && python tools/halves.py table
"""

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from esac_mpi.record import Run

ROOT = Path(__file__).parent.parent
VARIANTS = {
    "ESAC": [],
    "ESAC (paper)": ["--esac.reading", "paper"],
    "ES": ["--algorithm", "es"],
    "SAC": ["--algorithm", "sac"],
}


def directory(task: str, variant: str, seed: int) -> Path:
    """Return where a run of the comparison lives."""
    return Path("runs/halves") / f"{task}-{variant.translate(str.maketrans('', '', '() ')).lower()}-seed{seed}"


def train(task: str, variant: str, seed: int, seconds: float) -> None:
    """Train one run on one rank for a wall time; a run that has been trained is left alone."""
    run_dir = directory(task, variant, seed)
    if (run_dir / "status.json").exists() and Run.open(run_dir).status["status"] in ("requeue", "complete"):
        return
    settings = [ROOT / "configs/halves" / f"{task}.toml", *VARIANTS[variant], "--seed", seed, "--run-dir", run_dir]
    process = subprocess.Popen([sys.executable, "-m", "esac_mpi", *map(str, settings)], stdout=subprocess.DEVNULL)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
    print(f"{run_dir}: exit {process.returncode}", flush=True)


def curve(run_dir: Path) -> dict[str, np.ndarray]:
    """Return a run's evaluations: true steps, wall time [s], and the mean return of each policy, each [evaluations]."""
    history = Run.open(run_dir).columns
    names = [name for name in history if name.startswith("metrics/evaluation_")]
    returns = {name.removeprefix("metrics/evaluation_"): history[name].mean(axis=1) for name in names}
    seen = np.isfinite(next(iter(returns.values())))
    kinds = ("population", "learner")
    steps = np.sum([history[f"metrics/env_steps_{kind}"] for kind in kinds], axis=0)
    return {name: x[seen] for name, x in {"steps": steps, "wall": history["timing/wall_seconds"], **returns}.items()}


def at(curve: dict[str, np.ndarray], policy: str, axis: str, limit: float) -> float:
    """Return a policy's last evaluation at or before `limit` on an axis; nan if it has none."""
    before = np.flatnonzero(curve[axis] <= limit)
    return float(curve[policy][before[-1]]) if policy in curve and before.size else np.nan


def table(tasks: list[str], seeds: int, seconds: float) -> None:
    """Print, for every task, the last evaluation within equal true steps and within equal wall time, seed by seed.

    Steps are equal twice: the most that every run has evaluated, and the most that every run with a population has.
    """
    for task in tasks:
        curves = {v: [curve(directory(task, v, s)) for s in range(seeds)] for v in VARIANTS}
        first = max(c["steps"][0] for v in curves.values() for c in v)
        every = max(first, min(c["steps"][-1] for v in curves.values() for c in v))
        evolving = max(every, min(c["steps"][-1] for v in curves.values() for c in v if "theta_es" in c))
        limits = [("steps", s, f"{s / 1e3:,.0f}k true steps") for s in (every, evolving)] + [
            ("wall", seconds, f"{seconds:.0f} s")
        ]
        print(
            f"\n**{task}**\n\n| variant | policy | {' | '.join(text for _, _, text in limits)} | true steps in {seconds:.0f} s |"
        )
        print("|---|---|---|---|---|---|")
        for variant, found in curves.items():
            taken = ", ".join(f"{c['steps'][c['wall'] <= seconds][-1] / 1e3:,.0f}k" for c in found)
            for policy in ("theta_es", "sac"):
                if policy in found[0]:
                    cells = [[at(c, policy, axis, limit) for c in found] for axis, limit, _ in limits]
                    figures = " | ".join(f"**{np.mean(c):,.0f}** ({', '.join(f'{x:,.0f}' for x in c)})" for c in cells)
                    print(f"| {variant} | {policy} | {figures} | {taken} |")


def main() -> None:
    """Run or tabulate the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "table"))
    parser.add_argument("--tasks", nargs="+", default=sorted(p.stem for p in (ROOT / "configs/halves").glob("*.toml")))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=160.0, help="wall time of a run [s]")
    parser.add_argument("--at-once", type=int, default=2, help="runs at the same time: one core each")
    options = parser.parse_args()
    if options.action == "table":
        table(options.tasks, options.seeds, options.seconds)
        return
    with ThreadPoolExecutor(options.at_once) as pool:
        runs = [(t, v, s) for s in range(options.seeds) for t in options.tasks for v in VARIANTS]
        for done in [pool.submit(train, *r, options.seconds) for r in runs]:
            done.result()


if __name__ == "__main__":
    main()
