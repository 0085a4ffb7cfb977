"""Whether a variant is behind the better of ES and SAC, or ahead of both, task by task."""

from typing import NamedTuple

import numpy as np

from esac_mpi.analysis.names import HALVES
from esac_mpi.analysis.results.aggregates import ALIKE
from esac_mpi.analysis.results.scores import Study, Task
from esac_mpi.analysis.results.verdicts import difference

TENTH = 0.1  # of the range from random actions to the best: so far behind counts
ROUNDING = 1e-9
# YES, and NO of behind: with the whole interval
NO, UNSHOWN, MEAN, YES = ("no", "not in the mean", "in the mean", "yes")


class Verdict(NamedTuple):
    """How a variant compares with ES and SAC on a task, in normalised scores."""

    task: Task
    better: str  # of ES and SAC, the one with the greater mean
    gap: float  # to that one: difference of the means over seeds
    low: float  # ends of its 95 % interval, nan where one seed has none
    high: float
    behind: str  # by more than a tenth; no: the interval to either of them ends above that
    ahead: str  # of both by more than a hundredth, which at a task's most are digits of no weight


def halves(study: Study) -> list[str]:
    """Return the labels of ES and SAC, fewer where they were not run."""
    return [label for label in study.variants if label.lower() in HALVES]


def verdicts(study: Study, champion: str) -> list[Verdict]:
    """Return the verdicts on tasks where all three have runs; none without ES and SAC."""
    theirs = halves(study)
    if len(theirs) < len(HALVES) or champion in theirs:
        return []
    compared = [champion, *theirs]
    return [
        verdict(task, champion, theirs)
        for task in study.tasks
        if all(len(task.returns[label]) for label in compared)
    ]


def verdict(task: Task, champion: str, theirs: list[str]) -> Verdict:
    """Return how a variant stands on a task."""
    ours = task.normalised(champion)
    better = max(theirs, key=lambda label: task.returns[label].mean())
    found = {label: gap_of(ours, task.normalised(label)) for label in theirs}
    gap, low, high = found[better]
    least = np.min([ends[1] for ends in found.values()])  # of the intervals, nan where one has none
    behind = said(
        gap < -TENTH - ROUNDING,
        high < -TENTH - ROUNDING,
        NO if least >= -TENTH - ROUNDING else UNSHOWN,
    )
    return Verdict(task, better, gap, low, high, behind, said(gap > ALIKE, least > ALIKE))


def gap_of(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    """Return the difference of the means of scores [seeds], and the ends of its 95 % interval."""
    low, high = difference(ours, theirs) if min(len(ours), len(theirs)) > 1 else (np.nan, np.nan)
    return float(ours.mean() - theirs.mean()), low, high


def said(in_the_mean: bool, with_interval: bool, no: str = NO) -> str:
    """Word a cell; no: where it is not so in the mean."""
    return YES if in_the_mean and with_interval else MEAN if in_the_mean else no


def counted(found: list[Verdict], champion: str) -> str:
    """Return the sentence that counts verdicts on the tasks of the aggregate."""
    whole = [verdict for verdict in found if not verdict.task.why_not]

    def many(cells: list[str]) -> str:
        return f"{cells.count(MEAN) + cells.count(YES)} ({cells.count(YES)} by the whole interval)"

    behind = [verdict.behind for verdict in whole]
    return (
        f"Of {len(whole)} task{'s' * (len(whole) > 1)} of the aggregate, {champion} is behind the"
        f" better of ES and SAC by more than a tenth of the range on {many(behind)}."
        f" On {behind.count(NO)} the whole interval rules that out."
        f" It is ahead of both by more than a hundredth on"
        f" {many([verdict.ahead for verdict in whole])}."
    )
