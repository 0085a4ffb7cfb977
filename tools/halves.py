"""ESAC against its two halves: run ESAC (recommended and paper readings), ES and SAC, and print what came out.

Purpose: does ESAC beat both its halves, at equal true steps and at equal wall time? Small networks, configs/halves/.
Steps are those of population and learner; evaluations, equal for all, cost wall time but no steps here.
Cost: 4 variants x 3 tasks x 3 seeds x --seconds, two at a time: 50 minutes of two cores at the default.
Command: python tools/halves.py run && python tools/halves.py table
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from command import Unusable, ended, opened
from curves import POLICIES, Curve, last_before, return_curve

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


Curves = dict[str, dict[str, Curve]]  # {"env_steps" or "wall": {policy: its mean returns}}


def curves(run_dir: Path) -> Curves:
    """Return a run's evaluations of each policy against true steps and wall time [s]. Raises Unusable."""
    (run,) = opened([run_dir])
    found = {axis: {policy: return_curve(run, axis, policy) for policy in POLICIES} for axis in ("env_steps", "wall")}
    found = {axis: {policy: c for policy, c in by_policy.items() if len(c.x)} for axis, by_policy in found.items()}
    if not found["wall"]:
        raise Unusable(f"{run_dir}: nothing evaluated yet")
    return found


def ends(found: Curves, axis: str, which: int) -> float:
    """Return the first (0) or last (-1) place on an axis at which a run was evaluated."""
    return float(next(iter(found[axis].values())).x[which])


def steps_within(found: Curves, seconds: float) -> float:
    """Return the true steps of a run's last evaluation within a wall time."""
    steps, wall = (next(iter(found[axis].values())).x for axis in ("env_steps", "wall"))
    return float(steps[wall <= seconds][-1])


def table(tasks: list[str], seeds: int, seconds: float) -> Iterator[str]:
    """Yield, for every task, the last evaluation within equal true steps and within equal wall time, seed by seed.

    Steps are equal twice: the most that every run has evaluated, and the most that every run with a population has.
    """
    for task in tasks:
        variants = {v: [curves(directory(task, v, s)) for s in range(seeds)] for v in VARIANTS}
        runs = [c for found in variants.values() for c in found]
        every = max(max(ends(c, "env_steps", 0) for c in runs), min(ends(c, "env_steps", -1) for c in runs))
        evolving = max(every, min(ends(c, "env_steps", -1) for c in runs if "theta_es" in c["env_steps"]))
        limits = [("env_steps", s, f"{s / 1e3:,.0f}k true steps") for s in (every, evolving)] + [
            ("wall", seconds, f"{seconds:.0f} s")
        ]
        head = " | ".join(text for _, _, text in limits)
        yield f"\n**{task}**\n\n| variant | policy | {head} | true steps in {seconds:.0f} s |\n|---|---|---|---|---|---|"
        for variant, found in variants.items():
            taken = ", ".join(f"{steps_within(c, seconds) / 1e3:,.0f}k" for c in found)
            for policy in POLICIES:
                if policy in found[0]["wall"]:
                    cells = [[last_before(c[axis][policy], limit) for c in found] for axis, limit, _ in limits]
                    figures = " | ".join(f"**{np.mean(c):,.0f}** ({', '.join(f'{x:,.0f}' for x in c)})" for c in cells)
                    yield f"| {variant} | {policy} | {figures} | {taken} |"


def main(argv: list[str]) -> int:
    """Run or tabulate the comparison; return 2 if a run is missing, 65 if one cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "table"))
    parser.add_argument("--tasks", nargs="+", default=sorted(p.stem for p in (ROOT / "configs/halves").glob("*.toml")))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=160.0, help="wall time of a run [s]")
    parser.add_argument("--at-once", type=int, default=2, help="runs at the same time: one core each")
    options = parser.parse_args(argv)
    if options.action == "table":
        return ended(lambda: table(options.tasks, options.seeds, options.seconds))
    with ThreadPoolExecutor(options.at_once) as pool:
        runs = [(t, v, s) for s in range(options.seeds) for t in options.tasks for v in VARIANTS]
        for done in [pool.submit(train, *r, options.seconds) for r in runs]:
            done.result()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
