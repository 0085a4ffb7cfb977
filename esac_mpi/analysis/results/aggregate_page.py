"""The aggregate of an experiment in Markdown: all tasks together, in pairs, then task by task."""

from collections.abc import Iterator

import numpy as np

from esac_mpi.analysis import intervals
from esac_mpi.analysis.messages import format_range
from esac_mpi.analysis.results.scores import Study, Task
from esac_mpi.analysis.results.standings import champion_of
from esac_mpi.analysis.results.traces import Wall, count_runs, span, two_figures
from esac_mpi.analysis.tables import Cell, digits, markdown
from esac_mpi.host.log import compact

STATISTICS: dict[str, intervals.Statistic] = {
    "IQM": intervals.iqm,
    "median of the tasks' means": intervals.median,
    "mean": intervals.mean,
}
NOTE = (
    "0 is the mean return of random actions, 1 the best evaluation that any run made by then."
    " IQM: interquartile mean of the runs' scores over all tasks; in square brackets its 95 %"
    ' bootstrap interval. docs/results/index.md, "How to read a record", says more.'
)


def describe_wall(wall: Wall) -> str:
    """Return the time at which runs are compared, and the machine, in words."""
    at = "at the most that all runs of a task have reached,"
    if wall.seconds:
        at = f"at {compact(wall.seconds)} s"
    return f"{at} of wall time{wall.where or ', as measured'}"


def document(study: Study, name: str, wall: Wall) -> str:
    """Write all tables; name: the variant that is compared with each other one."""
    champion = champion_of(study.variants, name)
    text = [f"Normalised returns {describe_wall(wall)}. {NOTE}", "", *describe_study(study)]
    text += ["", *tabulate_all(study)]
    if champion and len(study.variants) > 1:
        text += ["", *tabulate_pairs(study, champion)]
    return "\n".join([*text, "", *tabulate_tasks(study)])


def describe_study(study: Study) -> Iterator[str]:
    """Yield lines on the tasks and runs in the aggregate, and on those missing."""
    ends = format_range([min(study.counts), max(study.counts)])
    yield f"Tasks: {len(study.tasks)}; runs of a variant on a task: {ends}."
    if study.absent:
        absent = "; ".join(f"{title} ({why})" for title, why in study.absent.items())
        yield f"Not in the aggregate: {absent}."
    if study.unfinished:
        yield f"Runs without a score yet: {count_runs(study.unfinished)}."
    if study.short:
        yield (
            "Runs that ended before, so counted as they ended: "
            f"{count_runs(study.short)}, {span(study.short)}."
        )
    ages = ", ".join(f"{label} {two_figures(age)}" for label, age in study.ages.items())
    yield f"Oldest evaluation used [s before that time, or before the run's end]: {ages}."


def tabulate_all(study: Study) -> Iterator[str]:
    """Yield the table of all tasks together."""
    yield from ("## All tasks together", "")
    found = {
        label: [intervals.estimate(study.scores(label), of) for of in STATISTICS.values()]
        for label in study.variants
    }
    best = [max(estimates[i].value for estimates in found.values()) for i in range(len(STATISTICS))]
    rows = [["variant", "runs", *STATISTICS]]
    for label, estimates in found.items():
        bold = [len(found) > 1 and e.value == b for e, b in zip(estimates, best, strict=True)]
        cells = [interval(e, bold=b) for e, b in zip(estimates, bold, strict=True)]
        rows.append([label, str(sum(map(len, study.scores(label)))), *cells])
    yield from markdown(rows)


def tabulate_pairs(study: Study, champion: str) -> Iterator[str]:
    """Yield the table that compares a variant with each other one."""
    yield from (f"## {champion} against each", "")
    yield (
        f"P: the probability that a run of {champion} is ahead of one of the other on a random"
        " task; a tie counts 0.5."
    )
    yield ""
    rows = [["other", f"P({champion} > other)", "difference of the IQMs"]]
    ours = study.scores(champion)
    for other in (label for label in study.variants if label != champion):
        both = [*ours, *study.scores(other)]
        chance = intervals.estimate(both, intervals.improvement)
        gap = intervals.estimate(both, intervals.iqm_difference)
        rows.append([other, interval(chance), interval(gap, "+")])
    yield from markdown(rows)


def tabulate_tasks(study: Study) -> Iterator[str]:
    """Yield the table of every variant's mean score on every task."""
    yield from ("## Task by task", "")
    seeds = max(study.counts)
    fewer = f"; n: seeds where there are fewer than {seeds}" if len(study.counts) > 1 else ""
    yield f"Mean score over seeds, in round brackets the mean return{fewer}."
    yield ""
    rows = [["task", "random", "best", *study.variants]]
    for task in study.tasks:
        cells = [cell(task, label, seeds) for label in study.variants]
        rows.append([task.title, format_return(task.random), format_return(task.best), *cells])
    yield from markdown(rows)


def cell(task: Task, label: str, seeds: int) -> str:
    """Return a variant's mean score and return on a task, bold where it is the best of several."""
    returns = task.returns[label]
    score = f"{task.scores(label).mean():.2f}"
    fewer = f", n={len(returns)}" if len(returns) < seeds else ""
    best = max(each.mean() for each in task.returns.values())
    if len(task.returns) > 1 and returns.mean() == best:
        score = f"**{score}**"
    return f"{score} ({format_return(float(returns.mean()))}{fewer})"


def format_return(value: float) -> str:
    """Format a return in four figures."""
    return f"{value:,.{digits(Cell(value))}f}"


def interval(e: intervals.Estimate, sign: str = "", bold: bool = False) -> str:
    """Format an estimate, with its interval if it has one."""
    value = f"{e.value:{sign}.2f}"
    ends = f" [{e.low:{sign}.2f}, {e.high:{sign}.2f}]" if np.isfinite(e.low) else ""
    return f"{f'**{value}**' if bold else value}{ends}"
