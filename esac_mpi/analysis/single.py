"""Returns of one run in full: its policies and the noisy population."""

import numpy as np

from esac_mpi.analysis.colours import COLOURS, looks
from esac_mpi.analysis.curves import column, column_curve, per_generation, position
from esac_mpi.analysis.evaluations import evaluations, policies
from esac_mpi.analysis.figures import Axes, Figure, headline, name_axis, name_lines, panels
from esac_mpi.analysis.names import HALVES, POLICIES, legend
from esac_mpi.record import RunFiles


def draw_one(axes: Axes, run: RunFiles, x: str) -> None:
    """Draw all returns of one run: policies' evaluations, the population's mean and maximum."""
    for statistic, name, style in ((np.nanmax, "maximum", ":"), (np.nanmean, "mean", "-")):
        curve = column_curve(run, x, per_generation(run, statistic))
        if len(curve.x):
            axes.plot(curve.x, curve.y, style, color="0.55", lw=0.7, label=f"population, {name}")
    of = {**dict(zip(POLICIES, HALVES, strict=True)), **{name: name for name in COLOURS}}
    look = looks({policy: of.get(policy, run.config.algorithm) for policy in policies(run)})
    for policy in policies(run):
        generations, returns = evaluations(run, policy)
        if not len(returns):
            continue
        colour, label = look[policy].colour, legend(policy, run.config.algorithm)
        where = np.interp(generations, column(run, "metrics/generation"), position(run, x))
        axes.plot(where, returns.mean(axis=1), color=colour, lw=1.8, marker="o", ms=3, label=label)
        ends = np.nanmin(returns, axis=1), np.nanmax(returns, axis=1)
        axes.fill_between(where, *ends, color=colour, alpha=0.18, lw=0)


def draw_alone(run: RunFiles, x: str = "env_steps") -> Figure:
    """Draw one run's returns."""
    figure, axes = panels(1, 1, 5.5, 3.5)
    draw_one(axes[0, 0], run, x)
    title = f"{run.config.task.id}: {run.config.algorithm.upper()}, seed {run.config.seed}"
    axes[0, 0].set(title=title, ylabel="episodic return")
    name_axis(axes[0, 0], x)
    name_lines(figure, axes)
    episodes = f"{run.config.evaluation.episodes} noise-free episodes"
    headline(figure, f"Policies: mean of {episodes}, band from worst to best. Grey: noisy episodes")
    return figure
