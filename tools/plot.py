"""Draw learning curves: the noise-free evaluations of theta_es and of the SAC mean, and the population's fitness.

    python tools/plot.py RUN [RUN ...] [--x env_steps|nominal_steps|generation|wall] [--out FILE.png]

One run: both policies, mean of the episodes in a band from the worst to the best episode; mean and maximum of the population
as thin lines. Several runs: one line per run, the better of its two policies at each evaluation; runs of one algorithm share a
colour, each task has a panel. env_steps are the true steps of population and learner; evaluation, which teaches nothing,
is not on the axis. Needs matplotlib. Cost: about 2 s.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from summary import evaluations

from esac_mpi.config import ConfigError
from esac_mpi.record import Refused, Run, RunFiles, Unreadable

try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter
except ImportError:
    print("Plots need matplotlib: pip install esac_mpi[analysis]", file=sys.stderr)
    sys.exit(2)

AXES = {
    "env_steps": "environment steps of population and learner",
    "nominal_steps": "nominal steps (the papers' count)",
    "generation": "generation",
    "wall": "wall time [h]",
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito: colour-blind safe
NAMES = {"theta_es": r"$\theta_{ES}$", "sac": "SAC's mean policy"}


def position(run: RunFiles, x: str) -> np.ndarray:
    """Return where the generations lie on the axis, float64 [generations]."""
    history = run.columns
    if x == "env_steps":
        kinds = [history[name] for kind in ("population", "learner") if (name := f"metrics/env_steps_{kind}") in history]
        return np.sum(kinds, axis=0, dtype=float)
    if x == "wall":
        return history["timing/wall_seconds"] / 3600
    return history[f"metrics/{x}"].astype(float)


def at(run: RunFiles, x: str, generations: np.ndarray) -> np.ndarray:
    """Return where these generations lie on the axis."""
    return np.interp(generations, run.columns["metrics/generation"], position(run, x))


def draw_one(axes: Axes, run: RunFiles, x: str) -> None:
    """Draw all curves of one run."""
    fitness = run.columns.get("metrics/fitness")
    if fitness is not None:
        finite = np.where(np.isfinite(fitness), fitness, np.nan)
        alive = np.isfinite(finite).any(axis=1)
        where = position(run, x)[alive]
        axes.plot(where, np.nanmax(finite[alive], axis=1), color="0.55", lw=0.7, ls=":", label="population, max")
        axes.plot(where, np.nanmean(finite[alive], axis=1), color="0.55", lw=0.7, label="population, mean")
    for (policy, name), colour in zip(NAMES.items(), COLOURS, strict=False):
        generations, returns = evaluations(run, policy)
        if not len(returns):
            continue
        where = at(run, x, generations)
        label = f"{name}: mean of {returns.shape[1]} episodes, band worst to best"
        axes.plot(where, returns.mean(axis=1), color=colour, lw=1.8, marker="o", ms=3, label=label)
        axes.fill_between(where, np.nanmin(returns, axis=1), np.nanmax(returns, axis=1), color=colour, alpha=0.18, lw=0)


def better(run: RunFiles) -> tuple[np.ndarray, np.ndarray]:
    """Return (generations [m], mean return [m] of the better policy) of a run's evaluations."""
    found: dict[int, float] = {}
    for policy in NAMES:
        for generation, returns in zip(*evaluations(run, policy), strict=True):
            if np.isfinite(returns).all():  # as the run does: a policy with an unstable episode is no candidate
                found[int(generation)] = max(found.get(int(generation), -np.inf), float(returns.mean()))
    return np.array(sorted(found)), np.array([found[generation] for generation in sorted(found)])


def draw_many(axes: Axes, runs: list[RunFiles], x: str, colours: dict[str, str]) -> None:
    """Draw one line per run, coloured by algorithm."""
    for name, colour in colours.items():
        group = [run for run in runs if run.config.algorithm == name]
        label = f"{name} ({len(group)} run{'s' * (len(group) > 1)})"
        for number, run in enumerate(group):
            generations, returns = better(run)
            where = at(run, x, generations)
            axes.plot(where, returns, color=colour, lw=1.2, marker=".", ms=4, alpha=0.8, label=None if number else label)


def figure(runs: list[RunFiles], x: str) -> Figure:
    """Return the figure of the runs."""
    tasks = sorted({run.config.task.id for run in runs})
    colours: dict[str, str] = dict(zip(sorted({run.config.algorithm for run in runs}), COLOURS, strict=False))
    drawing, panels = plt.subplots(1, len(tasks), figsize=(1.5 + 5.5 * len(tasks), 4.5), squeeze=False, layout="constrained")
    for axes, task in zip(panels[0], tasks, strict=True):
        if len(runs) == 1:
            draw_one(axes, runs[0], x)
            config = runs[0].config
            axes.set_title(f"{task}: {config.algorithm}, seed {config.seed}")
        else:
            draw_many(axes, [run for run in runs if run.config.task.id == task], x, colours)
            axes.set_title(f"{task}\nbetter of {NAMES['theta_es']} and {NAMES['sac']}, mean of an evaluation", fontsize="medium")
        axes.set(xlabel=AXES[x], ylabel="episodic return")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize="small", frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
        if x.endswith("steps"):
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return drawing


def main(argv: list[str]) -> int:
    """Write the picture and print its path; return 2 or 65 if a run cannot be drawn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--x", choices=AXES, default="env_steps", help="horizontal axis")
    parser.add_argument("--out", type=Path, help="picture; default: learning_curve.png in the run, or here for several runs")
    options = parser.parse_args(argv)
    try:
        runs = [Run.open(path) for path in options.runs]
    except (Refused, ConfigError, Unreadable) as error:
        print(error, file=sys.stderr)
        return 65 if isinstance(error, Unreadable) else 2
    if empty := [str(run.path) for run in runs if not len(run.columns.get("metrics/generation", ()))]:
        print(f"nothing to draw yet: no generation is published in {', '.join(empty)}", file=sys.stderr)
        return 2
    out = options.out or (options.runs[0] if len(runs) == 1 else Path()) / "learning_curve.png"
    figure(runs, options.x).savefig(out, dpi=150)
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
