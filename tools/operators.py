"""Show what crossover and mutation do to policies of the ERL family: PDERL, Figures 1, 2 and 5-9.

    python -m tools.operators RUN [--what KIND] [--number N] [--episodes E] [--out NAME]

The parents are members of the newest checkpoint. The operators, memories and critic are those of
training; a run of erl has no memories, so n-point children and Gaussian mutants only. All are
played without noise, from equal start states, and their visited states compared as densities of two
dimensions of the state.
crossover   N random pairs of parents, the fitter first, and their children (Figures 1, 5, 6);
            with --epochs a distilled child of each pair for each of these
mutation    N random parents and their mutants (Figures 2, 7, 8)
magnitude   N random parents, and proximal mutants of several magnitudes (Figure 9)
Writes NAME.png (returns), NAME-visits.png and the table NAME.csv. Returns are divided by the first
parent's where that is positive. Needs torch and matplotlib.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy, as in training

import numpy as np

from esac_mpi import envs, learners
from esac_mpi.algorithms import ALGORITHMS, erl, erl_births, erl_state
from esac_mpi.analysis.command import count, opened, print_all, whole_number
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.tables import Row, render
from esac_mpi.config import amend
from esac_mpi.operators.noise import Purpose, generator, integer
from esac_mpi.operators.policy import Policy
from esac_mpi.operators.selection import Births, Kind
from esac_mpi.play import epsilon, state
from esac_mpi.play.params import Params, make_env, make_layout
from esac_mpi.play.rollout import play
from esac_mpi.record import replays
from esac_mpi.training.memory import Counter
from tools import parser

MAGNITUDES = (0.0, 0.01, 0.05, 0.1, 0.2)  # public code
CELLS = 128  # of a density, in each dimension
OUTLYING = 0.001  # share of the states beyond each end of a grid; they count in its outermost cells
BEYOND = 3.0  # room around the others [bandwidths]
UNIFORM = 1e-6  # share of a uniform density in what is compared, so that no cell is empty
LEVELS = np.geomspace(0.02, 0.95, 7)  # contours, in parts of the highest density


# ---- densities


class Grid(NamedTuple):
    """Cells that densities are compared on; bandwidths are Scott's rule (1992, eq. 6.42)."""

    edges: np.ndarray  # float64 [2, CELLS + 1]
    bandwidth: np.ndarray  # float64 [2]

    @property
    def middles(self) -> np.ndarray:
        """Middles of the cells in both dimensions, float64 [2, CELLS]."""
        return (self.edges[:, 1:] + self.edges[:, :-1]) / 2


def grid(samples: Sequence[np.ndarray]) -> Grid:
    """Lay a grid over samples of states, each [n, 2]; the bandwidths are those of the first."""
    first = samples[0]
    bandwidth = np.maximum(first.std(axis=0), 1e-9) * len(first) ** (-1 / 6)
    ends = np.array([np.quantile(sample, (OUTLYING, 1 - OUTLYING), axis=0) for sample in samples])
    low = ends[:, 0].min(axis=0) - BEYOND * bandwidth
    high = ends[:, 1].max(axis=0) + BEYOND * bandwidth
    return Grid(np.linspace(low, high, CELLS + 1).T, bandwidth)


def density(states: np.ndarray, cells: Grid) -> np.ndarray:
    """Estimate the density of states [n, 2]: a histogram, smoothed by a Gaussian kernel, sum 1."""
    inside = np.clip(states, cells.edges[:, 0], cells.edges[:, -1])
    smoothed = np.histogram2d(inside[:, 0], inside[:, 1], bins=list(cells.edges))[0]
    for axis, (middles, bandwidth) in enumerate(zip(cells.middles, cells.bandwidth, strict=True)):
        kernel = np.exp(-0.5 * np.square(np.subtract.outer(middles, middles) / bandwidth))
        smoothed = np.moveaxis(np.tensordot(kernel, smoothed, (1, axis)), 0, axis)
    return smoothed / smoothed.sum()


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    """Compute KL(p || q) [nats], both mixed with UNIFORM of a uniform density."""
    p, q = ((1 - UNIFORM) * one + UNIFORM / one.size for one in (p, q))
    return float((p * np.log(p / q)).sum())


def difference(p: np.ndarray, q: np.ndarray) -> float:
    """Compute the share of visits that differ: half the sum over cells of |p - q|, 0 to 1."""
    return float(np.abs(p - q).sum() / 2)


# ---- a run's population, and what its operators make of it


@dataclass(frozen=True)
class Population:
    """A run's population, where a generation has it; the critic is the learner's."""

    params: Params
    state: erl_state.State
    env: envs.Env


def load_newest(path: Path) -> Population:
    """Load the newest checkpoint as a restart does. Raises Unusable, Unreadable."""
    (run,) = opened([path])
    checkpoint = run.newest()
    if not ALGORITHMS[run.config.algorithm].DECLARES.offspring(run.config):
        raise Unusable(f"{path}: a run of {run.config.algorithm}, which has no genetic operators")
    if checkpoint is None:
        raise Unusable(f"{path}: no checkpoint yet")
    config, world = amend(checkpoint.config, {"learner.device": "cpu"}), Counter(1)
    env = make_env(config)
    layout = make_layout(config, env)
    operators = learners.load("offspring").GeneticOperators(config, layout)
    drawing = epsilon.make(None, config.seed, layout, world)
    params = Params(config, layout, env.horizon, drawing, operators)
    found, learning = erl.init(params, world), erl.DECLARES.learning
    assert learning is not None
    reserve = learning.reserve(config, env.horizon)
    learner = learners.make(learning.learner(config), config, layout, found.theta, reserve)
    replays.fill(learner.replay, run.path, checkpoint)
    learner.load(checkpoint.learner)
    state.load(found, checkpoint.state, replay=learner.replay)
    current = replace(
        found, next_memories=found.memories, next_ages=found.ages, critic=learner.critic_vector()
    )
    return Population(params, current, env)


def breed(population: Population, slots: np.ndarray, changes: dict[str, Any]) -> np.ndarray:
    """Make a child of each pair of slots [n, 2], or a mutant of each [n, 1], float32 [n, d]."""
    (n, parents), params = slots.shape, population.params
    pair, which = np.arange(n), np.zeros(n, np.int64)
    kind, mutated = (Kind.CHILD, False) if parents == 2 else (Kind.KEPT, True)
    births = Births(np.full(n, kind), slots[:, 0], slots[:, -1], pair, which, np.full(n, mutated))
    config = amend(params.config, changes)
    operators = learners.load("offspring").GeneticOperators(config, params.layout)
    changed = replace(params, config=config, operators=operators)
    now: Any = SimpleNamespace(params=changed, state=population.state, k=0)
    return np.stack([erl_births.make_member(now, births, i) for i in range(n)])


def list_ways(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """List what is made of the parents: its name, and the settings that make it."""
    if options.what == "crossover":
        distilled = {"erl.crossover": "distillation"}
        several = {
            f"distilled child, {n} epochs": {**distilled, "erl.distillation_epochs": n}
            for n in options.epochs or ()
        }
        return {"n-point child": {"erl.crossover": "n_point"}} | (
            several or {"distilled child": distilled}
        )
    gaussian = {"Gaussian": {"erl.mutation": "gaussian"}}
    if options.what == "mutation":
        return {**gaussian, "proximal": {"erl.mutation": "proximal"}}
    proximal = {"erl.mutation": "proximal"}
    return gaussian | {
        f"proximal {m:g}": {**proximal, "erl.mutation_magnitude": m}
        for m in options.magnitude or MAGNITUDES
    }


@dataclass(frozen=True)
class Played:
    """A parent, or what was made of parents, and its episodes."""

    group: int  # of which pair, or which parent
    name: str
    slots: tuple[int, ...]  # of its parents; its own, of a parent
    returns: np.ndarray  # float64 [episodes], nan where unstable
    states: np.ndarray  # float32 [n, 2] that it visited, two of their dimensions

    @property
    def mean(self) -> float:
        """Mean return, nan where an episode was unstable."""
        return float(self.returns.mean())


def play_groups(population: Population, options: argparse.Namespace) -> list[list[Played]]:
    """Make and play groups: the parents, and what was made of them. Raises Unusable."""
    config, members = population.params.config, population.state.population
    distinct = np.sort(np.unique(members, axis=0, return_index=True)[1]).tolist()
    several = options.what == "crossover"
    groups = list(combinations(distinct, 2)) if several else [(slot,) for slot in distinct]
    if not groups:
        raise Unusable("all members of the population are the same network")
    order = generator(options.seed, Purpose.SELECTION).permutation(len(groups))
    slots = np.array([groups[i] for i in order[: options.number]])
    known = {
        slot: play_policy(population, members[slot], options) for slot in np.unique(slots).tolist()
    }
    if several:  # the fitter first
        fitness = np.array([[known[slot][0].mean() for slot in pair] for pair in slots.tolist()])
        slots = np.where(fitness[:, :1] < fitness[:, 1:], slots[:, ::-1], slots)
    names = ("parent 1", "parent 2") if several else ("parent",)
    found = [
        [Played(i, *named, *known[named[1][0]]) for named in zip(names, own, strict=True)]
        for i, own in enumerate(slots[:, :, None].tolist())
    ]
    for name, changes in list_ways(options).items():
        remembers = {"distillation", "proximal"} & set(map(str, changes.values()))
        if remembers and not erl_state.has_memories(config.erl):
            print(f"a run of {config.algorithm} keeps no memories: no {name}", file=sys.stderr)
            continue
        for i, theta in enumerate(breed(population, slots, {**changes, "seed": options.seed})):
            own = tuple(slots[i].tolist())
            found[i].append(Played(i, name, own, *play_policy(population, theta, options)))
    return found


def play_policy(
    population: Population, theta: np.ndarray, options: argparse.Namespace
) -> tuple[np.ndarray, np.ndarray]:
    """Play a policy's episodes; return returns [episodes] and what it visited, float32 [n, 2]."""
    env, params = population.env, population.params
    policy = Policy(params.layout, params.config.policy.activation, "tanh", env.low, env.high)
    policy.set(theta)
    returns, states = [], list[np.ndarray]()
    for number in range(options.episodes):
        seed = integer(options.seed, Purpose.EVALUATION, 0, block=number)
        episode = play(env, policy, seed, lambda seen: states.append(seen[options.dimensions]))
        returns.append(episode.episodic_return)
    return np.array(returns), np.array(states, np.float32)


# ---- table and pictures


def densities(group: list[Played]) -> tuple[Grid, list[np.ndarray], np.ndarray]:
    """Estimate where each of a group goes, and the mean of its parents."""
    cells = grid([one.states for one in group])
    found = [density(one.states, cells) for one in group]
    parents = [d for d, one in zip(found, group, strict=True) if one.name.startswith("parent")]
    return cells, found, np.mean(parents, axis=0)


def rows(group: list[Played]) -> Iterator[Row]:
    """Tabulate a group: returns, in parts of the first parent's, and KL(parents || policy)."""
    _, found, parents = densities(group)
    first = group[0].mean
    for one, own in zip(group, found, strict=True):
        numbers = {
            "mean": one.mean,
            "std": one.returns.std(ddof=1) if len(one.returns) > 1 else np.nan,
            "normalised": one.mean / first if first > 0 else np.nan,
            "kl": divergence(parents, own),
            "difference": difference(parents, own),
        }
        yield {
            "group": one.group,
            "policy": one.name,
            "slots": " ".join(map(str, one.slots)),
            "episodes": len(one.returns),
            "unstable": int(np.isnan(one.returns).sum()),
            **{name: float(f"{value:.6g}") for name, value in numbers.items()},
        }


def returns_of(groups: list[list[Played]]) -> Any:
    """Draw mean returns as bars, in parts of the first parent's where all of these are positive."""
    from esac_mpi.analysis.figures import legend_below, panels

    means = np.array([[one.mean for one in group] for group in groups])
    divided = bool((means[:, 0] > 0).all())
    means = means / means[:, :1] if divided else means
    drawing, axes = panels(1, 1, 1.5 + 0.75 * len(groups), 3.2)
    places, width = np.arange(len(groups)), 0.8 / means.shape[1]
    for i, (one, own) in enumerate(zip(groups[0], means.T, strict=True)):
        axes[0, 0].bar(places + (i - means.shape[1] / 2 + 0.5) * width, own, width, label=one.name)
    axes[0, 0].set_xticks(places, [", ".join(map(str, group[-1].slots)) for group in groups])
    axes[0, 0].set(xlabel="slots", ylabel="return / first parent's" if divided else "return")
    legend_below(drawing)
    return drawing


def visits_of(groups: list[list[Played]], differences: bool) -> Any:
    """Draw where each goes, a row a group; differences: red where a mutant goes more often."""
    from esac_mpi.analysis.figures import panels

    drawing, axes = panels(len(groups), len(groups[0]), 2.6, 2.3)
    for line, group in zip(axes, groups, strict=True):
        cells, found, parents = densities(group)
        for panel, one, own in zip(line, group, found, strict=True):
            shown, change = parents if differences else own, own - parents
            panel.contour(*cells.middles, shown.T, LEVELS * shown.max(), cmap="Blues")
            if differences and change.any():
                scaled, shades = change.T / np.abs(change).max(), np.linspace(0.1, 1, 7)
                for sign, colours in ((1, "Reds"), (-1, "Greens")):
                    panel.contourf(*cells.middles, sign * scaled, shades, cmap=colours, alpha=0.6)
            kl = f"return {one.mean:,.4g}, KL {divergence(parents, own):.2f}"
            panel.set_title(f"{one.name}\n{kl}", fontsize="small")
    return drawing


def write_files(options: argparse.Namespace) -> Iterator[Path]:
    """Study the run; yield the files written. Raises Unusable."""
    from esac_mpi.analysis.figures import save

    population = load_newest(options.run)
    last = population.env.observation_size - 1
    if max(options.dimensions) > last:
        raise Unusable(f"--dimensions are 0 to {last}")
    groups = play_groups(population, options)
    out = options.out or options.run / f"operators-{options.what}"
    table = out.with_name(f"{out.name}.csv")
    found = [row for group in groups for row in rows(group)]
    table.write_text(render(found, "csv") + "\n", encoding="utf-8")
    yield table
    yield from save(returns_of(groups), out.with_name(f"{out.name}.png"))
    visits = visits_of(groups, options.what != "crossover")
    yield from save(visits, out.with_name(f"{out.name}-visits.png"))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files and print their paths; return 2 with nothing to study, 65 without a run."""
    line = parser(__doc__)
    add = line.add_argument
    add("run", type=Path, metavar="RUN")
    add("--what", choices=("crossover", "mutation", "magnitude"), default="crossover")
    add("--number", type=count, default=10, metavar="N", help="pairs of parents, or parents (10)")
    add("--episodes", type=count, default=10, metavar="E", help="of each policy (10)")
    add("--dimensions", type=whole_number, nargs=2, default=[0, 1], help="of the state (0 1)")
    add("--epochs", type=count, nargs="+", help="of distillation; default: the run's, once")
    add("--magnitude", type=float, nargs="+", help=f"of what magnitude {MAGNITUDES}")
    add("--seed", type=whole_number, default=0)
    add("--out", type=Path, metavar="NAME", help="default: operators-<what>, in the run")
    options = line.parse_args(argv)
    for name, what in (("epochs", "crossover"), ("magnitude", "magnitude")):
        if getattr(options, name) and options.what != what:
            line.error(f"--{name} goes with --what {what}")
    return print_all(write_files(options))


if __name__ == "__main__":
    raise SystemExit(main())
