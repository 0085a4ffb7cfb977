"""Who is ahead on a task, at equal steps, true and nominal, and at equal wall time, in Markdown.

Every figure is a run's last one at or before a limit, of the rows that a run has: where they leave
evaluations out it is older, and the page says by how much. A run that goes on and has not come to a
wall time has no figure there. One that ended before counts as it ended; the page says so, and makes
no verdict of it. Of fewer than four seeds the interquartile mean is their mean. A verdict, whether
one variant beats another on a task, is by the interval of the difference of their means.
"""

from collections.abc import Collection, Iterator

import numpy as np

from esac_mpi.analysis.intervals import LEVEL, interquartile_mean, interval
from esac_mpi.analysis.messages import Unusable, note, shorten
from esac_mpi.analysis.published import select_results
from esac_mpi.analysis.results import traces
from esac_mpi.analysis.results.traces import WALL, Sections, Trace, Wall, reach, values
from esac_mpi.analysis.returns import BETTER
from esac_mpi.analysis.tables import Cell, digits, four_digits, in_line, markdown
from esac_mpi.analysis.tables import format_cell as as_printed
from esac_mpi.host.log import compact

MEASURES = {
    "return": (
        "better",
        "mean return of a noise-free evaluation; of a run with two policies, the better one's (of"
        " ERL and its forms the champion's), then each policy's where its line differs",
    ),
    "updates": ("gradient_updates", "gradient updates so far"),
    "fitness": (
        "fitness_mean",
        "mean fitness of the noisy population, mean over generations so far",
    ),
}
RETURNS = {  # of a policy: the field that has them, and whose they are
    BETTER: ("better", "the better of a run's policies"),
    "theta_es": ("return_theta_es", "theta_es"),
    "learner": ("return_learner", "the learner's policy, of ERL and its forms the champion"),
}
NOTE = (
    "A cell is the interquartile mean over seeds (the mean, of fewer than four),"
    " [its 95 % bootstrap interval] and (every seed, - if it has none by then)."
    " Bold: the best of a column."
    ' More: docs/results/index.md, "How to read a record".'
)
DRAWS = 100_000  # of a difference: few, and its verdict depends on them and on who is asked
FURTHER = 1.05  # as far as all runs: from there on runs with a population have a column


def filter_by(labels: dict[str, list[Trace]], y: str) -> dict[str, list[Trace]]:
    """Keep the runs that have values of field y; note the others."""
    without = [run.name for runs in labels.values() for run in runs if not run.has(y)]
    if without:
        note(f"left out, nothing of this measure (yet): {shorten(without)}")
    found = {label: [run for run in runs if run.has(y)] for label, runs in labels.items()}
    return {label: runs for label, runs in found.items() if runs}


def list_columns(runs: list[Trace], y: str, wall: Wall) -> list[tuple[str, str, float]]:
    """List (head, axis, limit) of a table's columns: limits common to the runs, and their ends."""
    evolving = [run for run in runs if run.has("fitness_mean")]
    reached = {"every run": reach(runs, "env_steps", y)}
    if evolving and (further := reach(evolving, "env_steps", y)) > FURTHER * reached["every run"]:
        reached["every run with a population"] = further
    columns = [
        (f"at {compact(steps)} true steps, which {who} has reached", "env_steps", steps)
        for who, steps in reached.items()
    ]
    nominal, seconds = reach(runs, "nominal_steps", y), wall.limit(runs, y)
    return [
        *columns,
        (f"at {compact(nominal)} nominal steps (the papers' count)", "nominal_steps", nominal),
        (f"within {compact(seconds)} s{wall.where}", WALL, seconds),
        ("at its end", "env_steps", np.inf),
    ]


def statistic(seeds: np.ndarray) -> float:
    """Return the interquartile mean of the seeds that have a value, nan without any."""
    seen = seeds[np.isfinite(seeds)]
    return float(interquartile_mean(seen)) if len(seen) else np.nan


def iqm_all(seeds: np.ndarray) -> float:
    """Return the interquartile mean of seeds that all have a value, else nan."""
    return statistic(seeds) if np.isfinite(seeds).all() else np.nan


def cell(seeds: np.ndarray, bold: bool = False) -> str:
    """Format a cell: statistic, and of two seeds or more its interval and every seed."""
    seen, value = seeds[np.isfinite(seeds)], statistic(seeds)
    if not len(seen):
        return "-"
    spread = float(seen.std(ddof=1)) if len(seen) > 1 else np.nan
    whole = (seen == seen.round()).all() and value == round(value)
    form = ",.0f" if whole else f",.{digits(Cell(value, spread))}f"
    found = f"**{value:{form}}**" if bold else f"{value:{form}}"
    if len(seen) > 1:
        found += " [{}, {}]".format(*(f"{float(end):{form}}" for end in interval([seen])))
    if len(seeds) == 1:
        return found
    each = (f"{value:{form}}" if np.isfinite(value) else "-" for value in seeds.tolist())
    return f"{found} ({', '.join(each)})"


def lines(labels: dict[str, list[Trace]], measure: str) -> Iterator[tuple[str, list[Trace], str]]:
    """Yield (name, runs, field) of a task's lines: variants, and policies where there are two."""
    own = {name: y for name, (y, _) in RETURNS.items() if name != BETTER}
    for label, runs in labels.items():
        yield label, runs, MEASURES[measure][0]
        if measure == "return" and all(any(run.has(y) for run in runs) for y in own.values()):
            yield from ((f"{label}: {name}", runs, y) for name, y in own.items())


def task_table(
    title: str, labels: dict[str, list[Trace]], measure: str, papers: bool, wall: Wall
) -> Iterator[str]:
    """Yield the table of one task, line by line."""
    y = MEASURES[measure][0]
    runs = [run for mine in labels.values() for run in mine]
    columns, seconds = list_columns(runs, y, wall), wall.limit(runs, y)
    task = runs[0].rows[0].task
    printed = select_results(["esac"], [task])[0][task] if papers else {}
    heads = [head for head, _, _ in columns]
    last = f"steps, updates within {compact(seconds)} s"
    table = [["variant", *heads, last, *["the paper"] * papers]]
    best = [
        np.nanmax([-np.inf, *(iqm_all(values(m, axis, limit, y)) for m in labels.values())])
        for _, axis, limit in columns
    ]
    ranked = measure != "updates" and len(labels) > 1
    run_cells: list[str] = []
    for name, mine, field in lines(labels, measure):
        found = [values(mine, axis, limit, field) for _, axis, limit in columns]
        bold = [ranked and field == y and iqm_all(f) == b for f, b in zip(found, best, strict=True)]
        cells = list(map(cell, found, bold))
        if field != y and cells == run_cells:
            continue
        line = [name, *cells, ""]
        if field == y:
            run_cells = [text.replace("*", "") for text in cells]
            counts = (values(mine, WALL, seconds, of) for of in ("env_steps", "gradient_updates"))
            taken = [statistic(count) for count in counts]
            line[-1] = ", ".join(map(compact, taken)) if np.isfinite(taken).all() else "-"
        paper = printed.get(f"{name.upper()} [esac]")
        table.append([*line, *[as_printed(paper) if paper else "-"] * papers])
    yield from (f"## {in_line(title)}", "", *markdown(table))
    if told := list(remark_on_short(runs, y, wall)):
        yield from ("", " ".join(told))


def remark_on_short(runs: list[Trace], y: str, wall: Wall) -> Iterator[str]:
    """Yield remarks on runs that are not alike, or not at the compared time or their end."""
    limit = wall.limit(runs, y)
    at = f"{compact(limit)} s{wall.where}"
    if len(ways := traces.forms(runs)) > 1:
        yield f"In several forms of the task, whose returns do not compare: {'; '.join(ways)}."
    if going := traces.unfinished(runs):
        yield f"Not complete, so by their last row in place of an end: {traces.count_runs(going)}."
    if behind := [run for run in runs if not run.has_reached(limit)]:
        yield f"Not yet at {at}, so without a figure there: {traces.count_runs(behind)}."
    if ended := [run for run in runs if run.ended_before(limit)]:
        ends = f"{traces.count_runs(ended)}, {traces.span(ended)}"
        yield f"Ended before {at}, so counted as they ended: {ends}."
    if (age := traces.greatest_age(runs, limit, y)) > 0.05 * limit:
        before = f"{traces.two_figures(age)} s before that, or before its run's end"
        yield f"The oldest figure there is from {before}."


def difference(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Bootstrap the 95 % interval of mean(ours) - mean(theirs), each [seeds].

    The interval of mean(theirs) - mean(ours) is the same with the other sign.
    """
    random, both = np.random.default_rng(0), sorted((ours, theirs), key=tuple)
    drawn = [random.choice(seeds, (DRAWS, len(seeds))).mean(axis=1) for seeds in both]
    gap = drawn[0] - drawn[1] if both[0] is ours else drawn[1] - drawn[0]
    low, high = np.quantile(gap, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
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
        return f"not separated: {four_digits(gap, '+')}, one seed has no interval{tail}"
    low, high = difference(ours, theirs)
    said = "yes" if low > 0 else "no" if high < 0 else "not separated"
    return f"{said}: {four_digits(gap, '+')} [{four_digits(low)}, {four_digits(high)}]{tail}"


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
    said = f"none, ended before: {traces.by_variant(ended)}"
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


def document(sections: Sections, measure: str, papers: bool, champion: str, wall: Wall) -> str:
    """Write all tables. Raises Unusable where no run has the measure."""
    y, said = MEASURES[measure]
    found = {title: kept for title, labels in sections.items() if (kept := filter_by(labels, y))}
    if not found:
        raise Unusable(f"nothing to tabulate yet: no run has {measure} in its rows")
    text = [f"{said[0].upper()}{said[1:]}. {NOTE}"]
    for title, labels in found.items():
        text += ["", *task_table(title, labels, measure, papers, wall)]
    if measure != "updates" and (more := list(verdicts(found, y, champion, wall))):
        text += ["", *more]
    if papers:
        text += ["", *select_results(["esac"], [])[1]]
    return "\n".join(text)
