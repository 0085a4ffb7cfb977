"""What the ranks of one run did when, from the recorded times; as a picture.

A generation is laid out as the program makes it: rank 0 writes the row before (the others begin at
once), all evaluate their members and wait for the last, update together, wait for the learner, play
the noise-free evaluation. Recorded are each rank's busy seconds and rank 0's seconds of every part;
pauses of a rank among its members are not, so its members are drawn without gaps. Under learner_lag
a phase runs on rank 0 beside the evaluation: its free time there counts as the learner's. Where
offspring are made, a rank's busy seconds are of members and of offspring: its bars have the shares
that all ranks' together have. A critic's lesson (CEM-RL) begins with a generation, beside its
members; when a rank waits for it is not recorded. Tasks without a barrier (AES-RL) have the moments
that were recorded of each. Of more than 64 ranks a generation's bars are those of rank 0 and of 63
others, which take turns.
"""

from typing import Any, NamedTuple

import numpy as np

from esac_mpi.analysis.clock import recorded
from esac_mpi.analysis.clock.recorded_tasks import has_tasks, individuals_and_turns
from esac_mpi.analysis.curves import position
from esac_mpi.analysis.figures import Axes, Figure, escape, figure_size, name_axis, plt
from esac_mpi.analysis.measures import PARTS, column, generation_seconds, read_busy, seconds
from esac_mpi.analysis.times import activities, population_of
from esac_mpi.record import RunFiles

ACTIVITIES = {
    "members": "#0072B2", "individuals' updates": "#0072B2", "episodes": "#F0E442",
    "offspring": "#E69F00", "learner": "#D55E00", "update": "#009E73",
    "noise-free evaluation": "#56B4E9", "writing": "#CC79A7", "decisions": "0.4", "idle": "0.88",
}  # fmt: skip
BINS = 60  # of the lower panel
SHOWN = 12  # generations in the upper panel, the last ones


class Bar(NamedTuple):
    """What a rank did; its lane is 1 high, around its number."""

    lane: float
    activity: str
    start: float  # [s]
    length: float  # [s]
    height: float = 1.0


def segments(run: RunFiles, generation: int) -> list[Bar]:
    """Lay out one row of the history; of more than 64 ranks, of those that it has."""
    if has_tasks(run):
        return tasks(run, generation)
    wall, spent = column(run, "timing/wall_seconds"), column(run, "timing/busy_seconds")[generation]
    part = {name: seconds(run, name)[generation] for name in PARTS}
    start = wall[generation - 1] if generation else 0.0
    begun = start + part["record"]
    planned = begun + part["evaluate"] + part["plan"]
    end = planned + part["offspring"] + part["learn"]
    there = np.flatnonzero(np.isfinite(spent)).tolist()
    phase = np.nan_to_num(recorded.phase_seconds(run))[generation]
    found = [Bar(0, "writing", start, part["record"])]
    lesson, late, upper = recorded.has_lessons(run), planned, 1.0
    if lesson:  # in rank 0's lower half, members in the upper
        found.append(Bar(0.25, "learner", begun if there[1:] else end - phase, phase, 0.5))
        upper = 0.5
    elif recorded.has_offspring(run) and there[1:]:
        found.append(Bar(0, "learner", planned, phase))
        late = planned + phase
    else:
        found.append(Bar(0, "learner", planned + part["offspring"], part["learn"]))
    if recorded.has_phase_beside(run)[generation] and not lesson:
        found.append(Bar(0, "learner", begun + spent[0], part["evaluate"] - spent[0]))
    for rank in there:
        if population_of(run):
            members, children = shares(run, generation, rank, float(spent[rank]))
            lane, height = (rank, 1.0) if rank else ((upper - 1) / 2, upper)
            found.append(Bar(lane, "members", start if rank else begun, members, height))
            found.append(Bar(rank, "offspring", planned if rank else late, children))
        elif rank:
            found.append(Bar(rank, "episodes", start, float(spent[rank])))
        found.append(Bar(rank, "update", end, part["update"]))
        found.append(Bar(rank, "noise-free evaluation", end + part["update"], part["evaluation"]))
    return found


def shares(run: RunFiles, generation: int, rank: int, spent: float) -> tuple[float, float]:
    """Split a rank's busy seconds into members' and offspring's; rank 0's are the learner's too."""
    if not recorded.has_offspring(run):
        return spent, 0.0
    members = np.nansum(column(run, "timing/member_seconds")[generation])
    born = np.nansum(recorded.offspring(run)[0][generation])
    alone = np.isfinite(column(run, "timing/busy_seconds")[generation]).sum() == 1
    left = spent if rank else max(0.0, spent - seconds(run, "learn")[generation])
    # beside others rank 0 has offspring only after its phase
    share = members / (members + born) if rank or alone else 1.0
    played = min(left * share, seconds(run, "evaluate")[generation])
    return played, left - played


def tasks(run: RunFiles, generation: int) -> list[Bar]:
    """Lay out the tasks reported in one row of the history, and the ranks' other work.

    Rank 0 has its individuals in the upper half of its lane, and the critic's turns, between which
    and these it shares its time, in the lower one.
    """
    wall, record = column(run, "timing/wall_seconds"), seconds(run, "record")[generation]
    begun = wall[generation - 1] if generation else 0.0
    names = ("rank", "start", "end", "busy", "updating")
    rows = np.array([run.columns[f"timing/task_{name}"][generation] for name in names])
    there = np.isfinite(run.columns["timing/task_worker"][generation])
    critic = individuals_and_turns(run)[1][generation, there]
    bars = []
    reported = zip(critic, rows.T[there].tolist(), strict=True)
    for of_critic, (rank, start, end, spent, updating) in reported:
        length, start = end - start, start + begun + record
        first = length * updating / spent if spent else 0.0
        lane, height = rank, 1.0
        if rank == 0:
            lane, height = (0.25 if of_critic else -0.25), 0.5
        if of_critic:
            bars.append(Bar(lane, "learner", start, length, height))
            continue
        bars.append(Bar(lane, "individuals' updates", start, first, height))
        bars.append(Bar(lane, "episodes", start + first, length - first, height))
    lasted = seconds(run, "evaluation")[generation]
    for one in range(int(read_busy(run).ranks[generation])):
        bars.append(Bar(one, "noise-free evaluation", wall[generation] - lasted, lasted))
    return [*bars, Bar(0, "writing", begun, record)]


def count_lanes(run: RunFiles) -> np.ndarray:
    """Count the ranks that each generation has drawn [generations]."""
    return np.minimum(read_busy(run).ranks, column(run, "timing/busy_seconds").shape[1])


def draw_ranks(axes: Axes, run: RunFiles) -> None:
    """Draw what each rank did in the last generations, one lane a rank."""
    wall, there = column(run, "timing/wall_seconds"), count_lanes(run)
    lasted, ranks = generation_seconds(run), int(there[-SHOWN:].max())
    rows = range(max(0, len(wall) - SHOWN), len(wall))
    bars: dict[tuple[float, float, str], list[tuple[float, float]]] = {}
    for row in rows:
        for bar in segments(run, row):
            spans = bars.setdefault((bar.lane, bar.height, bar.activity), [])
            spans.append((bar.start, max(bar.length, 0)))
    begin = wall[rows[0]] - lasted[rows[0]]
    height = 0.84 if ranks <= 40 else 1.0
    for rank in range(ranks):
        spans = [(wall[row] - lasted[row], lasted[row]) for row in rows if rank < there[row]]
        axes.broken_barh(spans, (rank - height / 2, height), color=ACTIVITIES["idle"], lw=0)
    for (lane, part, activity), spans in bars.items():
        low = round(lane) + height * (lane - round(lane)) - part * height / 2
        axes.broken_barh(spans, (low, part * height), color=ACTIVITIES[activity], lw=0)
    for row in rows:
        axes.axvline(wall[row], color="0.3", lw=0.5)
    some = read_busy(run).ranks[-1] > np.isfinite(column(run, "timing/busy_seconds")[-1]).sum()
    axes.set(ylabel="rank 0, others in turn" if some else "rank")
    axes.set(xlim=(begin, wall[-1]), ylim=(ranks - 0.5, -0.5))
    axes.set_title(f"generations {rows[0] + 1} to {rows[-1] + 1}; a line ends each")
    axes.set_yticks(range(0, ranks, -(-ranks // 16)))
    axes.grid(False)
    name_axis(axes, "wall")


def draw_shares(axes: Axes, run: RunFiles) -> None:
    """Draw the activities' shares of the ranks' time, in bins of equal numbers of generations."""
    found, wall = activities(run), position(run, "wall")
    edges = np.unique(np.linspace(0, len(wall), min(BINS, len(wall)) + 1).astype(int))
    sums = np.array([np.add.reduceat(values, edges[:-1]) for values in found.values()])
    ends = np.concatenate([[0.0], wall[edges[1:] - 1]])
    below = np.zeros(sums.shape[1])
    for name, share in zip(found, np.nan_to_num(sums / sums.sum(axis=0)), strict=True):
        overall = found[name].sum() / max(sums.sum(), 1e-12)
        label = f"{name} {100 * overall:.0f} %" if overall >= 0.005 else f"{name} < 1 %"
        top = below + share
        how: dict[str, Any] = {"color": ACTIVITIES[name], "label": label if overall else None}
        axes.stairs(top, ends, baseline=below, fill=True, **how)
        below = top
    axes.set(ylabel="share of the ranks' time", xlim=(0, ends[-1]), ylim=(0, 1), title="whole run")
    axes.grid(False)
    name_axis(axes, "wall")


def draw(run: RunFiles) -> Figure:
    """Draw the last generations rank by rank, and the whole run's shares."""
    ranks, drawn = read_busy(run).ranks, int(count_lanes(run)[-SHOWN:].max())
    few, many = ranks.min(), ranks.max()
    sizes = f"{few} to {many} ranks" if few < many else f"{many} rank{'s' if many > 1 else ''}"
    size = figure_size(7.5, 4.4 + min(0.25 * drawn, 5))
    ratios = [1 + min(0.2 * drawn, 3), 1.4]
    figure, (above, below) = plt.subplots(
        2, 1, figsize=size, layout="constrained", height_ratios=ratios
    )
    draw_ranks(above, run)
    draw_shares(below, run)
    config = run.config
    lag = getattr(config.own, "learner_lag", 0)
    later = f", learner_lag {lag}" if lag else ""
    about = f"{config.task.id}: {config.algorithm.upper()}{later}, seed {config.seed}"
    figure.suptitle(escape(f"{about}, {sizes}"), fontsize=11)
    figure.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
