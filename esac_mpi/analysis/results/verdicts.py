"""Whether one variant beats another on a task, by the interval of the difference of their means."""

from collections.abc import Collection, Iterator

import numpy as np

from esac_mpi.analysis.intervals import DRAWS, LEVEL
from esac_mpi.analysis.messages import note
from esac_mpi.analysis.results.traces import WALL, Sections, Trace, Wall, by_variant, reach, values
from esac_mpi.analysis.tables import markdown
from esac_mpi.host.log import compact


def difference(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Bootstrap the 95 % interval of mean(ours) - mean(theirs), each [seeds]."""
    random = np.random.default_rng(0)
    drawn = [random.choice(seeds, (DRAWS, len(seeds))).mean(axis=1) for seeds in (ours, theirs)]
    low, high = np.quantile(drawn[0] - drawn[1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def verdict(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Tell whether the first seeds have the greater mean, yes, no or not separated, and the gap."""
    without = int(np.isnan(ours).sum() + np.isnan(theirs).sum())
    ours, theirs = ours[np.isfinite(ours)], theirs[np.isfinite(theirs)]
    if not len(ours) or not len(theirs):
        return "no value by then"
    gap = float(ours.mean() - theirs.mean())
    tail = f", {without} seed{'s' * (without > 1)} without a value by then" if without else ""
    if min(len(ours), len(theirs)) < 2:
        return f"not separated: {gap:+,.4g}, one seed has no interval{tail}"
    low, high = difference(ours, theirs)
    said = "yes" if low > 0 else "no" if high < 0 else "not separated"
    return f"{said}: {gap:+,.4g} [{low:,.4g}, {high:,.4g}]{tail}"


def champion_of(labels: Collection[str], name: str) -> str:
    """Return the label of a variant by its name in any case; note a missing one and return ""."""
    for label in labels:
        if label.lower() == name.lower():
            return label
    note(
        f"--of '{name}': no such variant, so that none is compared with the others;"
        f" there are {'; '.join(labels)}"
    )
    return ""


def word_verdict(
    ours: list[Trace], theirs: list[Trace], axis: str, unit: str, y: str, wall: Wall
) -> str:
    """Word the verdict on two variants at the most that all their runs have reached."""
    both = [*ours, *theirs]
    limit = wall.limit(both, y) if axis == WALL else reach(both, axis, y)
    ended = [run for run in both if axis == WALL and run.ended_before(limit)]
    said = f"none, ended before: {by_variant(ended)}"
    if not ended:
        said = verdict(*(values(runs, axis, limit, y) for runs in (ours, theirs)))
    return f"{said} (at {compact(limit)} {unit})"


def verdicts(found: Sections, y: str, champion: str, wall: Wall) -> Iterator[str]:
    """Yield for every task whether a variant beats each other one; nothing of single seeds."""
    axes = {"env_steps": "steps", "nominal_steps": "nominal", WALL: "s"}
    rows, repeated = [], False
    pairs = [(title, a, b) for title, labels in found.items() for a in labels for b in labels]
    for title, name, other in pairs:
        if name.lower() == champion.lower() and other != name:
            both = found[title][name], found[title][other]
            repeated |= min(map(len, both)) > 1
            said = [word_verdict(*both, *axis, y, wall) for axis in axes.items()]
            rows.append([title, f"{name} > {other}?", *said])
    if rows and not repeated:
        yield "No verdicts: a single seed has no interval."
    elif rows:
        yield from ("## Verdicts", "")
        yield (
            "Difference of the means over seeds and its 95 % bootstrap interval:"
            ' "yes" if that is above 0, "no" if it is below.'
        )
        most = (
            "true and nominal steps" if wall.seconds else "true steps, nominal steps and wall time"
        )
        yield f"Each pair is compared at the most {most} that all runs of the two have reached."
        yield "Equal variants get yes or no in 20 % of verdicts of three seeds, 12 % of five."
        yield ""
        heads = ["at equal true steps", "at equal nominal steps", f"at equal wall time{wall.where}"]
        yield from markdown([["task", "question", *heads], *rows])
