"""What `esac-mpi plot` draws: curves of runs by groups of seeds, or one run in full."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from esac_mpi.analysis import curves, figures
from esac_mpi.analysis.clock import describe_ranks
from esac_mpi.analysis.colours import COLOURS, looks
from esac_mpi.analysis.curves import Axis, per_generation
from esac_mpi.analysis.figures import Figure
from esac_mpi.analysis.grids import Quantity, draw
from esac_mpi.analysis.groups import Labelled, grouped, relabel
from esac_mpi.analysis.measures import column, select_begun
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.names import HALVES, POLICIES, describe_better, legend
from esac_mpi.analysis.outcomes import FATES, rate
from esac_mpi.analysis.returns import BETTER, WINDOW, evaluations, policies, require_policy
from esac_mpi.analysis.times import idle_share
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
TITLES = {
    "return": "Noise-free evaluations of {shown}",
    "training": f"Moving average over {WINDOW} training episodes",
    "sigma": "Mutation rate",
    "fitness": "Returns of the population",
    "losses": "What the learner reports",
    "fates": "What became of the learner's actor, of all selections so far",
    "updates": "Gradient updates so far",
    "waiting": "Share of the ranks' time in which they wait",
}
DEFAULT_X = "env_steps"


def make_quantity(values: Callable[[RunFiles], np.ndarray]) -> Quantity:
    """Make a quantity from a function of a run that returns values [generations]."""
    return lambda run, x: curves.column_curve(run, x, values(run))


def learner_column(run: RunFiles, key: str) -> np.ndarray:
    """Return metrics/<learner>_<key>, or metrics/<key> of a shared critic; [0] without."""
    names = [name for name in run.columns.scalars if re.fullmatch(f"metrics/(.*_)?{key}", name)]
    return column(run, names[0]) if names else np.zeros(0)


def counter_column(run: RunFiles, name: str) -> np.ndarray:
    """Return a counter, 0 where an older version did not count."""
    return np.maximum(column(run, f"metrics/{name}"), 0).astype(float)


def quantities(what: str, policy: str = BETTER) -> dict[str, Quantity]:
    """Return the quantities of a kind, by the name of the vertical axis: a row of panels each."""
    if what == "return":
        return {"episodic return": lambda run, x: curves.return_curve(run, x, policy)}
    if what == "training":
        return {"training return": curves.training_curve}
    found: dict[str, dict[str, Callable[[RunFiles], np.ndarray]]] = {
        "sigma": {r"mutation rate $\sigma$": partial(column, name="metrics/sigma")},
        "fitness": {name: partial(per_generation, statistic=f) for name, f in FITNESS.items()},
        "losses": {name: partial(learner_column, key=key) for key, name in LOSSES.items()},
        "fates": {f"learner's actor {fate} [%]": partial(rate, fate=fate) for fate in FATES},
        "updates": {
            "gradient updates": partial(counter_column, name="gradient_updates"),
            "gradient updates of members": partial(counter_column, name="member_updates"),
        },
        "waiting": {"idle share of the ranks' time": idle_share},
    }
    return {name: make_quantity(values) for name, values in found[what].items()}


def draw_alone(run: RunFiles, x: Axis = "env_steps") -> Figure:
    """Draw a run's returns: policies' evaluations, the population's mean and maximum."""
    figure, panels = figures.panels(1, 1, 5.5, 3.5)
    axes = panels[0, 0]
    for statistic, name, style in ((np.nanmax, "maximum", ":"), (np.nanmean, "mean", "-")):
        curve = curves.column_curve(run, x, per_generation(run, statistic))
        if len(curve.x):
            grey: dict[str, Any] = {"color": "0.55", "lw": 0.7, "marker": figures.dot(curve.x)}
            axes.plot(curve.x, curve.y, style, label=f"population, {name}", **grey)
    config = run.config
    of = {**dict(zip(POLICIES, HALVES, strict=True)), **{name: name for name in COLOURS}}
    look = looks({policy: of.get(policy, config.algorithm) for policy in policies(run)})
    for policy in policies(run):
        generations, returns = evaluations(run, policy)
        stable = np.isfinite(returns).all(axis=1)  # an evaluation with an unstable episode has none
        generations, returns = generations[stable], returns[stable]
        if not len(returns):
            continue
        colour, style, _ = look[policy]
        label = legend(policy, config.algorithm)
        where = np.interp(generations, column(run, "metrics/generation"), curves.position(run, x))
        how: dict[str, Any] = {"color": colour, "lw": 1.8, "marker": "o", "ms": 3, "label": label}
        axes.plot(where, returns.mean(axis=1), style, **how)
        ends = returns.min(axis=1), returns.max(axis=1)
        figures.band(axes, where, *ends, color=colour, alpha=0.18)
    if not axes.lines:
        raise Unusable(f"nothing to draw yet: {run.path} has no finite return")
    figures.name_panel(axes, f"{config.task.id}: {config.algorithm.upper()}, seed {config.seed}")
    axes.set_ylabel("episodic return")
    figures.name_axis(axes, x)
    figures.name_lines(figure)
    said = f"Policies: mean of {config.evaluation.episodes} noise-free episodes"
    figures.add_title(figure, f"{said}, band from worst to best. Grey: noisy episodes")
    return figure


def figure(
    runs: list[RunFiles],
    what: str,
    x: str | None = None,
    policy: str = BETTER,
    seeds: bool = False,
    ranks: int = 0,
    labels: Sequence[str] = (),
) -> Figure:
    """Draw one of TITLES against an axis of curves.AXES, or computed wall time. Raises Unusable."""
    if what not in TITLES:
        raise Unusable(f"figure {what!r}: there are {', '.join(TITLES)}")
    runs = select_begun(runs, "draw")
    if what == "return":
        require_policy(runs, policy)
    if len(runs) == 1 and not ranks and not labels and (what, policy) == ("return", BETTER):
        return draw_alone(runs[0], x or DEFAULT_X)
    rows = quantities(what, policy)
    if what == "updates" and not any(counter_column(run, "member_updates").any() for run in runs):
        del rows["gradient updates of members"]
    whose = describe_better(policies(*runs)) if policy == BETTER else policy
    return draw_curves(grouped(runs), what, rows, whose, x, seeds, ranks, labels)


def draw_curves(
    groups: Labelled,
    what: str,
    rows: dict[str, Quantity],
    whose: str,
    x: str | None = None,
    seeds: bool = False,
    ranks: int = 0,
    labels: Sequence[str] = (),
) -> Figure:
    """Draw rows of panels of runs, be they files or rows of results. Raises Unusable."""
    if ranks and x != "wall":
        raise Unusable("--ranks says what wall time is computed for: it needs --x wall")
    axis: Axis = ranks or x or ("training_episodes" if what == "training" else DEFAULT_X)
    title = TITLES[what].format(shown=whose)
    if ranks:
        title += f"; wall time {describe_ranks(ranks)}"
    groups = relabel(groups, labels) if labels else groups
    return draw(groups, rows, axis, title, seeds, counts=what == "updates")
