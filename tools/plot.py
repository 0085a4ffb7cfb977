"""Draw learning curves of runs, or their training returns, mutation rate, fitness, losses, or the timeline of their ranks.

    python tools/plot.py RUN [RUN ...] [--what return|training|sigma|fitness|losses|timeline]
                         [--x env_steps|nominal_steps|training_episodes|wall|generation] [--policy better|theta_es|sac]
                         [--seeds] [--out NAME]

Several runs: runs of one task, algorithm and settings are seeds of one group. A line is their interquartile mean, its band the
95 % bootstrap interval; a panel per task; --seeds adds each run as a thin line. A group is drawn as far as its shortest run.
One run: both policies with the band from worst to best episode, and mean and maximum of the noisy population; for fitness the
quartiles and extremes of the members; for timeline every rank. Returns are of noise-free evaluations, of the better of theta_es
and the SAC mean each time, or of --policy; training is the moving average over 50 training episodes, against their number (Figure
2 left of the ESAC paper). Steps are those of population and learner; evaluation steps are not on the axis.
Writes NAME.png and NAME.pdf, or NAME alone if it ends in one of them. Needs matplotlib. Cost: 2 s, and 0.1 s a run.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from esac_mpi.analysis.command import Unusable, ended, note, opened, some
from esac_mpi.analysis.curves import AXES, POLICIES, RIVALS, WINDOW, column, column_curve, per_generation, return_curve, training_curve
from esac_mpi.analysis.figures import Figure, headline, save
from esac_mpi.analysis.grids import Quantity, grid
from esac_mpi.analysis.groups import grouped
from esac_mpi.analysis.single import draw_alone
from esac_mpi.analysis.timeline import draw as draw_timeline
from esac_mpi.analysis.timeline import idle_share

from esac_mpi.record import RunFiles

BETTER = "the better of theta_es and the SAC mean"
LOSSES = {
    "critic_loss": "critic loss",
    "actor_loss": "actor loss",
    "value_loss": "value loss",
    "mean_q": "mean Q",
    "entropy": "entropy",
}


def of_column(name: str) -> Quantity:
    """Return the quantity that a column of scalars holds."""
    return lambda run, x: column_curve(run, x, column(run, name))


def of_members(statistic: Callable[..., np.ndarray]) -> Quantity:
    """Return a statistic of the population's returns in each generation."""
    return lambda run, x: column_curve(run, x, per_generation(run, statistic))


def quantities(what: str, policy: str) -> dict[str, Quantity]:
    """Return what is drawn, by the name of the vertical axis: a row of panels each."""
    if what == "return":
        return {"episodic return": lambda run, x: return_curve(run, x, policy)}
    if what == "training":
        return {"training return": training_curve}
    if what == "sigma":
        return {r"mutation rate $\sigma$": of_column("metrics/sigma")}
    if what == "fitness":
        rows: dict[str, Callable[..., np.ndarray]] = {
            "fitness, mean": np.nanmean,
            "fitness, maximum": np.nanmax,
            "fitness, standard deviation": np.nanstd,
        }
        return {name: of_members(statistic) for name, statistic in rows.items()}
    if what == "losses":
        return {name: of_column(f"metrics/sac_{key}") for key, name in LOSSES.items()}
    return {"idle share of the ranks' time": lambda run, x: column_curve(run, x, idle_share(run))}


def figure(runs: list[RunFiles], options: argparse.Namespace) -> Figure:
    """Return what the options ask for. Raises Unusable."""
    what = options.what
    x = options.x or ("training_episodes" if what == "training" else "env_steps")
    if young := [run.path.name for run in runs if not column(run, "metrics/generation").size]:
        note(f"no generation is published yet in {some(young)}")
    runs = [run for run in runs if run.path.name not in young]
    if not runs:
        raise Unusable("nothing to draw yet: no generation is published in any run given")
    alone = len(runs) == 1
    if alone and what == "timeline":
        return draw_timeline(runs[0])
    if alone and (what == "return" or (what == "fitness" and column(runs[0], "metrics/fitness").size)):
        return draw_alone(runs[0], what, x)
    drawing = grid(grouped(runs), quantities(what, options.policy), x, options.seeds)
    if what == "return":
        shown = BETTER if options.policy == "better" else options.policy
        headline(drawing, f"Noise-free evaluations of {shown}; interquartile mean and 95 % interval over seeds")
    if what == "training":
        headline(drawing, f"Moving average over {WINDOW} training episodes; interquartile mean and 95 % interval over seeds")
    return drawing


def pictures(options: argparse.Namespace) -> Iterator[Path]:
    """Draw what the options ask for; yield the files written."""
    runs = opened(options.runs)
    name = "learning_curve" if options.what == "return" else options.what
    yield from save(figure(runs, options), options.out or (options.runs[0] if len(runs) == 1 else Path()) / name)


def main(argv: list[str]) -> int:
    """Write the pictures and print their paths; return 2 if there is nothing to draw, 65 if a run cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--what", choices=("return", "training", "sigma", "fitness", "losses", "timeline"), default="return")
    parser.add_argument("--x", choices=AXES, help="horizontal axis; default: env_steps, training_episodes for training")
    parser.add_argument("--policy", choices=("better", *POLICIES, *RIVALS), default="better", help="whose returns")
    parser.add_argument("--seeds", action="store_true", help="each run as a thin line")
    parser.add_argument(
        "--out", type=Path, metavar="NAME", help="default: learning_curve, or what is drawn; in the run if it is one"
    )
    options = parser.parse_args(argv)
    return ended(lambda: pictures(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
