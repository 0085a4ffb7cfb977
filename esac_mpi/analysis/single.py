"""Returns of one run in full: its policies and the noisy population, or the spread of the population's members."""

import numpy as np

from esac_mpi.analysis.colours import COLOURS, looks
from esac_mpi.analysis.curves import column, column_curve, per_generation, position
from esac_mpi.analysis.evaluations import evaluations, policies
from esac_mpi.analysis.figures import Axes, Figure, legend_below, name_axis, panels
from esac_mpi.analysis.names import HALVES, POLICIES, legend
from esac_mpi.record import RunFiles

AXIS = {"return": "episodic return", "fitness": "fitness: episodic return of a member"}


def draw_one(axes: Axes, run: RunFiles, x: str) -> None:
    """Draw all returns of one run: its policies' evaluations, and mean and maximum of the population."""
    for statistic, name, style in ((np.nanmax, "maximum", ":"), (np.nanmean, "mean", "-")):
        curve = column_curve(run, x, per_generation(run, statistic))
        if len(curve.x):
            axes.plot(curve.x, curve.y, style, color="0.55", lw=0.7, label=f"population, {name}")
    of = {**dict(zip(POLICIES, HALVES, strict=True)), **{name: name for name in COLOURS}}
    look = looks({policy: of.get(policy, run.config.algorithm) for policy in policies(run)})
    for policy in policies(run):
        colour = look[policy].colour
        generations, returns = evaluations(run, policy)
        if not len(returns):
            continue
        where = np.interp(generations, column(run, "metrics/generation"), position(run, x))
        label = f"{legend(policy, run.config.algorithm)}: mean of {returns.shape[1]} episodes, band worst to best"
        axes.plot(where, returns.mean(axis=1), color=colour, lw=1.8, marker="o", ms=3, label=label)
        axes.fill_between(
            where,
            np.nanmin(returns, axis=1),
            np.nanmax(returns, axis=1),
            color=colour,
            alpha=0.18,
            lw=0,
        )


def draw_spread(axes: Axes, run: RunFiles, x: str) -> None:
    """Draw the members' returns of one run: median, quartiles and extremes."""
    parts = [
        column_curve(run, x, per_generation(run, lambda f, axis, q=q: np.nanquantile(f, q, axis)))
        for q in np.arange(5) / 4
    ]
    where, low = parts[0].x, parts[0].y
    colour = looks({"members": run.config.algorithm})["members"].colour
    axes.fill_between(
        where, low, parts[4].y, color=colour, alpha=0.12, lw=0, label="members, worst to best"
    )
    axes.fill_between(
        where, parts[1].y, parts[3].y, color=colour, alpha=0.35, lw=0, label="quartiles"
    )
    axes.plot(where, parts[2].y, color=colour, lw=1.2, label="median")


def draw_alone(run: RunFiles, what: str, x: str) -> Figure:
    """Return the figure of one run's returns, or of its members."""
    figure, axes = panels(1, 1, 5.5, 3.5)
    (draw_one if what == "return" else draw_spread)(axes[0, 0], run, x)
    axes[0, 0].set(
        title=f"{run.config.task.id}: {run.config.algorithm.upper()}, seed {run.config.seed}",
        ylabel=AXIS[what],
    )
    name_axis(axes[0, 0], x)
    legend_below(figure, axes)
    return figure
