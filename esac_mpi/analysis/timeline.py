"""What the ranks of one run did when, from the recorded times; as a picture.

A generation is laid out as the program makes it: rank 0 writes the row before (the others begin at once), all evaluate their
members and wait for the last, update together, wait for the learner, play the noise-free evaluation. Recorded are each
rank's busy seconds and rank 0's seconds of every part; pauses of a rank among its members are not, so its members are drawn
without gaps. Under learner_lag a phase runs on rank 0 beside the evaluation: its free time there counts as the learner's. Where
offspring are made, a rank's busy seconds are of members and of offspring: its bars have the shares that all ranks' together have.
A critic's lessons (CEM-RL) begin with a generation, beside its members, of whom those play first that nothing trains. Tasks
without a barrier (AES-RL) have the moments that were recorded of each (task_times.py).
Of more than 64 ranks a generation's bars are those of rank 0 and of 63 others, which take turns.
"""

import numpy as np

from esac_mpi.analysis import task_times
from esac_mpi.analysis.activities import activities, has_members
from esac_mpi.analysis.busy import busy
from esac_mpi.analysis.clock.recorded import (
    bears_offspring,
    has_serial_lessons,
    offspring,
    phase_seconds,
    running,
    seconds,
    teaches,
    trained_members,
)
from esac_mpi.analysis.clock.recorded_tasks import has_tasks
from esac_mpi.analysis.curves import column, position
from esac_mpi.analysis.figures import Axes, Figure, name_axis, plt
from esac_mpi.record import RunFiles

ACTIVITIES = {
    "members": "#0072B2", "individuals' updates": "#0072B2", "episodes": "#F0E442", "offspring": "#E69F00",
    "learner": "#D55E00", "update": "#009E73", "noise-free evaluation": "#56B4E9", "writing": "#CC79A7", "decisions": "0.4",
    "idle": "0.88",
}  # fmt: skip
BINS = 60  # of the lower panel
SHOWN = 12  # generations in the upper panel, the last ones


def segments(run: RunFiles, generation: int) -> list[tuple[int, str, float, float]]:
    """Return (rank, activity, start, length) [s] of one row of the history; of more than 64 ranks, of those that it has."""
    wall, spent = column(run, "timing/wall_seconds"), column(run, "timing/busy_seconds")[generation]
    names = ("evaluate", "plan", "offspring", "update", "learn", "evaluation", "record")
    part = {name: seconds(run, name)[generation] for name in names}
    start = wall[generation - 1] if generation else 0.0
    if teaches(run):
        return taught_segments(run, generation, start, part)
    ends = np.cumsum(
        [
            start + part["record"],
            part["evaluate"] + part["plan"],
            part["offspring"],
            part["learn"],
            part["update"],
        ]
    )
    own, there = has_members(run), np.flatnonzero(np.isfinite(spent)).tolist()
    beside = bears_offspring(run) and len(there) > 1
    learner = (ends[1], phase_seconds(run)[generation]) if beside else (ends[2], part["learn"])
    found = [(0, "writing", start, part["record"]), (0, "learner", *learner)]
    if running(run)[generation]:
        found.append((0, "learner", ends[0] + spent[0], part["evaluate"] - spent[0]))
    for rank in there:
        members, born = shares(run, generation, rank, float(spent[rank] * own))
        found.append((rank, "members", start if rank else ends[0], members))
        found.append((rank, "episodes", start, float(spent[rank]) * (not own and rank > 0)))
        found.append((rank, "offspring", sum(learner) if beside and rank == 0 else ends[1], born))
        found.append((rank, "update", ends[3], part["update"]))
        found.append((rank, "noise-free evaluation", ends[4], part["evaluation"]))
    return found


def taught_segments(
    run: RunFiles, generation: int, start: float, part: dict[str, float]
) -> list[tuple[int, str, float, float]]:
    """Return the same of a generation with a critic's lessons, beside which those play that nothing trains, then the others."""
    members, first = column(run, "timing/member_seconds")[generation], trained_members(run)
    spent, lesson = (
        column(run, "timing/busy_seconds")[generation],
        np.nan_to_num(phase_seconds(run))[generation],
    )
    there, begun = np.flatnonzero(np.isfinite(spent)).tolist(), start + part["record"]
    drawn = np.nansum(members[first:]) / max(
        np.nansum(members), 1e-12
    )  # share of the members' time
    serial, alone = has_serial_lessons(run), len(there) == 1
    end = begun + part["evaluate"] + part["learn"]
    second = (
        begun + part["evaluate"] * drawn + part["learn"] * (serial and alone)
    )  # when those begin that are trained
    second = max(second, begun + lesson) if serial and not alone else second
    taught = begun if not alone else begun + part["evaluate"] * drawn if serial else end - lesson
    found = [(0, "writing", start, part["record"]), (0, "learner", taught, lesson)]
    for rank in there:
        last = (
            float(spent[rank])
            if rank == 0 and not alone and lesson
            else float(spent[rank]) * (1 - drawn)
        )
        late = max(second, begun + lesson) if rank == 0 and not alone else second
        found.append((rank, "members", start if rank else begun, float(spent[rank]) - last))
        found.append((rank, "members", late, last))
        found.append((rank, "update", end, part["update"]))
        found.append((rank, "noise-free evaluation", end + part["update"], part["evaluation"]))
    return found


def shares(run: RunFiles, generation: int, rank: int, spent: float) -> tuple[float, float]:
    """Return which parts of a rank's busy seconds were of members and of offspring; rank 0's are of the learner too."""
    if not bears_offspring(run):
        return spent, 0.0
    members, born = (
        np.nansum(found[generation])
        for found in (column(run, "timing/member_seconds"), offspring(run)[0])
    )
    alone = np.isfinite(column(run, "timing/busy_seconds")[generation]).sum() == 1
    left = spent if rank else max(0.0, spent - seconds(run, "learn")[generation])
    share = (
        members / (members + born) if rank or alone else 1.0
    )  # beside others rank 0 has offspring only after its phase
    played = min(left * share, seconds(run, "evaluate")[generation])
    return played, left - played


def lanes(run: RunFiles, generation: int) -> list[tuple[float, float, str, float, float]]:
    """Return (middle, height, activity, start, length) [s] of the bars of one row; a rank's lane is 1 high."""
    if has_tasks(run):
        return task_times.segments(run, generation)
    return [
        (rank, 1.0, activity, start, length)
        for rank, activity, start, length in segments(run, generation)
    ]


def draw_ranks(axes: Axes, run: RunFiles, shown: int) -> None:
    """Draw what each rank did in the last generations, one bar a rank."""
    wall, ranks = column(run, "timing/wall_seconds"), column(run, "timing/busy_seconds").shape[1]
    rows = range(max(0, len(wall) - shown), len(wall))
    bars: dict[tuple[float, float, str], list[tuple[float, float]]] = {}
    for row in rows:
        for lane, part, activity, start, length in lanes(run, row):
            bars.setdefault((lane, part, activity), []).append((start, max(length, 0)))
    begin = wall[rows[0] - 1] if rows[0] else 0.0
    height = 0.84 if ranks <= 40 else 1.0
    for rank in range(ranks):
        axes.broken_barh(
            [(begin, wall[-1] - begin)], (rank - height / 2, height), color=ACTIVITIES["idle"], lw=0
        )
    for (lane, part, activity), spans in bars.items():
        middle = round(lane) + height * (lane - round(lane))
        axes.broken_barh(
            spans, (middle - part * height / 2, part * height), color=ACTIVITIES[activity], lw=0
        )
    for row in rows:
        axes.axvline(wall[row], color="0.3", lw=0.5)
    some = busy(run).ranks[-1] > np.isfinite(column(run, "timing/busy_seconds")[-1]).sum()
    axes.set(
        ylabel="rank 0, others in turn" if some else "rank",
        xlim=(begin, wall[-1]),
        ylim=(ranks - 0.5, -0.5),
    )
    axes.set_title(f"generations {rows[0] + 1} to {rows[-1] + 1}; a line ends each")
    axes.set_yticks(range(0, ranks, -(-ranks // 16)))
    axes.grid(False)
    name_axis(axes, "wall")


def draw_shares(axes: Axes, run: RunFiles) -> None:
    """Draw how the ranks' time was shared among the activities over the run, in bins of equal numbers of generations."""
    found, wall = activities(run), position(run, "wall")
    edges = np.unique(np.linspace(0, len(wall), min(BINS, len(wall)) + 1).astype(int))
    sums = np.array([np.add.reduceat(values, edges[:-1]) for values in found.values()])
    shares = np.nan_to_num(sums / sums.sum(axis=0))
    ends = np.concatenate([[0.0], wall[edges[1:] - 1]])
    below = np.zeros(shares.shape[1])
    for name, share in zip(found, shares, strict=True):
        overall = found[name].sum() / max(sums.sum(), 1e-12)
        label = (
            f"{name} {100 * overall:.0f} %"
            if overall >= 0.005
            else f"{name} < 1 %"
            if overall
            else None
        )
        axes.stairs(
            below + share, ends, baseline=below, fill=True, color=ACTIVITIES[name], label=label
        )
        below = below + share
    axes.set(ylabel="share of the ranks' time", xlim=(0, ends[-1]), ylim=(0, 1), title="whole run")
    axes.grid(False)
    name_axis(axes, "wall")


def draw(run: RunFiles, shown: int = SHOWN) -> Figure:
    """Return the figure: the last generations rank by rank, and the whole run's shares."""
    ranks, drawn = int(max(busy(run).ranks, default=0)), column(run, "timing/busy_seconds").shape[1]
    figure, (above, below) = plt.subplots(
        2,
        1,
        figsize=(7.5, 4.4 + min(0.25 * drawn, 5)),
        layout="constrained",
        height_ratios=[1 + min(0.2 * drawn, 3), 1.4],
    )
    draw_ranks(above, run, shown)
    draw_shares(below, run)
    config = run.config
    lag = getattr(run.config.own, "learner_lag", 0)
    later = f", learner_lag {lag}" if lag else ""
    about = f"{config.task.id}: {config.algorithm.upper()}{later}, seed {config.seed}, {ranks} rank{'s' * (ranks > 1)}"
    figure.suptitle(about, fontsize=11)
    figure.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
