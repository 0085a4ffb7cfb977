"""What `esac-mpi plot` draws: curves of runs by groups of seeds, or one run in full."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from esac_mpi.analysis.activities import idle_share
from esac_mpi.analysis.clock import Machine, computed
from esac_mpi.analysis.curves import (
    WINDOW,
    Curve,
    column,
    column_curve,
    per_generation,
    position,
    return_curve,
    training_curve,
)
from esac_mpi.analysis.evaluations import BETTER, policies_of, require_policy
from esac_mpi.analysis.fates import FATES, rate
from esac_mpi.analysis.figures import COMPUTED, Figure, headline
from esac_mpi.analysis.grids import Quantity, grid, summary
from esac_mpi.analysis.groups import grouped, renamed
from esac_mpi.analysis.messages import Unusable, note, some
from esac_mpi.analysis.names import better
from esac_mpi.analysis.single import draw_alone
from esac_mpi.analysis.timeline import draw as draw_timeline
from esac_mpi.record import RunFiles

LOSSES = {  # the end of a column's name, which begins with the learner's
    "critic_loss": "critic loss",
    "actor_loss": "actor loss",
    "value_loss": "value loss",
    "mean_q": "mean Q",
    "entropy": "entropy",
}
FITNESS: dict[str, Callable[..., np.ndarray]] = {
    "fitness, mean": np.nanmean,
    "fitness, maximum": np.nanmax,
    "fitness, standard deviation": np.nanstd,
}


def of_column(name: str) -> Quantity:
    """Return the quantity that a column of scalars holds."""
    return lambda run, x: column_curve(run, x, column(run, name))


def of_learner(key: str) -> Quantity:
    """Return the quantity of a run's learner: of the column metrics/<learner>_<key>, or metrics/<key> of a shared critic."""

    def quantity(run: RunFiles, x: str) -> Any:
        names = [name for name in run.columns.scalars if re.fullmatch(f"metrics/(.*_)?{key}", name)]
        return column_curve(run, x, column(run, names[0]) if names else np.zeros(0))

    return quantity


def of_members(statistic: Callable[..., np.ndarray]) -> Quantity:
    """Return a statistic of the population's returns in each generation."""
    return lambda run, x: column_curve(run, x, per_generation(run, statistic))


def of_fate(fate: str) -> Quantity:
    """Return how often this was the fate of the learner's actor, so far [%]."""
    return lambda run, x: column_curve(run, x, rate(run, fate))


def quantities(what: str, policy: str = BETTER) -> dict[str, Quantity]:
    """Return what is drawn, by the name of the vertical axis: a row of panels each."""
    if what == "return":
        return {"episodic return": lambda run, x: return_curve(run, x, policy)}
    if what == "training":
        return {"training return": training_curve}
    if what == "sigma":
        return {r"mutation rate $\sigma$": of_column("metrics/sigma")}
    if what == "fitness":
        return {name: of_members(statistic) for name, statistic in FITNESS.items()}
    if what == "losses":
        return {name: of_learner(key) for key, name in LOSSES.items()}
    if what == "fates":
        return {f"learner's actor {fate} [%]": of_fate(fate) for fate in FATES}
    return {"idle share of the ranks' time": lambda run, x: column_curve(run, x, idle_share(run))}


def begun(runs: list[RunFiles]) -> list[RunFiles]:
    """Return the runs that have a generation; name the others. Raises Unusable if none has."""
    young = [run for run in runs if not column(run, "metrics/generation").size]
    if young:
        note(f"no generation is published yet in {some(run.path.name for run in young)}")
    if len(young) == len(runs):
        raise Unusable("nothing to draw yet: no generation is published in any run given")
    return [run for run in runs if run not in young]


def on_machine(quantity: Quantity, machine: Machine) -> Quantity:
    """Return the quantity against the wall time that a run would have taken on a machine."""

    def moved(run: RunFiles, _: str) -> Curve:
        curve = quantity(run, "wall")
        return replace(curve, x=np.interp(curve.x, position(run, "wall"), computed(run, machine)))

    return moved


def figure(
    runs: list[RunFiles],
    what: str,
    x: str | None = None,
    policy: str = BETTER,
    seeds: bool = False,
    machine: Machine | None = None,
    labels: Sequence[str] = (),
) -> Figure:
    """Return a figure: what is "return", "training", "sigma", "fitness", "losses", "fates" or "timeline". Raises Unusable.

    machine: what wall time is computed for; None: it is the measured one. labels: of the groups, in place of their own.
    """
    if machine and x != "wall":
        raise Unusable("--ranks says what wall time is computed for: it needs --x wall")
    runs = begun(runs)
    if what == "return":
        require_policy(runs, policy)
    alone = len(runs) == 1 and not machine and not labels
    if alone and what == "timeline" and x in (None, "wall"):
        return draw_timeline(runs[0])
    x = x or ("training_episodes" if what == "training" else "env_steps")
    whole = what == "return" and policy == BETTER
    if alone and (whole or (what == "fitness" and column(runs[0], "metrics/fitness").size)):
        return draw_alone(runs[0], what, x)
    groups, rows, where = grouped(runs), quantities(what, policy), ""
    groups = renamed(groups, labels) if labels else groups
    if machine:
        rows, x, where = (
            {name: on_machine(q, machine) for name, q in rows.items()},
            COMPUTED,
            f"; wall time {machine}",
        )
    if what == "return":
        shown = better(policies_of(runs)) if policy == BETTER else policy
        return summary(groups, rows, x, f"Noise-free evaluations of {shown}{where}", seeds)
    if what == "training":
        return summary(
            groups, rows, x, f"Moving average over {WINDOW} training episodes{where}", seeds
        )
    drawing = grid(groups, rows, x, seeds)
    if machine:
        headline(drawing, f"Wall time {machine}")
    return drawing


def counts(name: str) -> Quantity:
    """Return what a counter has come to."""
    return lambda run, x: column_curve(
        run, x, np.maximum(column(run, f"metrics/{name}"), 0).astype(float)
    )


def updates(
    runs: list[RunFiles], x: str = "env_steps", seeds: bool = False, labels: Sequence[str] = ()
) -> Figure:
    """Return the figure of gradient updates so far. Raises Unusable."""
    counted = {"gradient updates": counts("gradient_updates")}
    if any(
        (column(run, "metrics/member_updates") > 0).any() for run in runs
    ):  # less: not counted by an older version
        counted["gradient updates of members"] = counts("member_updates")
    groups = renamed(grouped(runs), labels) if labels else grouped(runs)
    return summary(groups, counted, x, "Gradient updates so far", seeds, counts=True)
