"""How the race stands: median times, the least and the most, and who is how far ahead.

A run that did not reach the goal took longer than its limit: its time is taken as infinite, so that
medians are right and never too small. "> 180" means more than the limit; of an even number of seeds
the later one in the middle counts. How far ahead our champion is, is asked of each seed by itself,
since its runs are of one machine and those of others may not be; the median of these counts, of two
in the middle the lesser one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from esac_mpi.analysis.messages import format_range
from esac_mpi.analysis.tables import markdown
from tools.race import field
from tools.race.rows import REACHED, Row

TITLE = "# A race: seconds to a good policy"
MARK = " °"  # beside a figure that a peer has with its own networks


class Spread(NamedTuple):
    """Least, median and most of what some runs took; inf: not within the limit."""

    least: float
    median: float
    most: float

    @property
    def order(self) -> tuple[float, ...]:
        """What it is compared by: the median, then the least."""
        return self.median, *self

    def text(self, beyond: str) -> str:
        """Return it in a table; beyond: what inf is called."""
        least, median, most = (as_text(value, beyond) for value in self)
        return median if least == most else f"{median} ({least} to {most})"


def as_text(value: float, beyond: str) -> str:
    """Return a number with the digits that count."""
    if math.isinf(value):
        return beyond
    if value < 9.95:
        return f"{value:.2g}"
    return f"{value:.0f}" if value < 999.5 else f"{float(f'{value:.3g}'):,.0f}"


def spread(values: Sequence[float]) -> Spread:
    """Return the spread of values, one a seed."""
    ordered = sorted(values)
    return Spread(ordered[0], ordered[len(ordered) // 2], ordered[-1])


def name_median(counts: Sequence[int]) -> str:
    """Name the figure in the middle: of an even number it is no median."""
    even, two = any(count % 2 == 0 for count in counts), max(counts) == 2
    return ("the later" if two else "median, or the later one in the middle,") if even else "median"


def compare_times(ours: float, theirs: float, limit: float) -> tuple[float, str]:
    """Return the least ratio of their time to ours, also in words; nan: nobody came in."""
    if math.isinf(ours) and math.isinf(theirs):
        return math.nan, "nobody"
    if math.isinf(ours):
        return 0.0, f"< {theirs / limit:.2g}"
    late = math.isinf(theirs)
    found = (limit if late else theirs) / ours
    return found, f"{'> ' if late else ''}{found:.2g}"


def in_words(row: Row) -> str:
    """Return a row in words."""
    ends = "reached" if row.outcome == REACHED else "not reached"
    start_up = f"{row.start_up:.1f} s of start-up"
    return f"{row.goal:,g} {ends} in {row.seconds:.1f} s ({start_up}), {row.env_steps:,} steps"


@dataclass(frozen=True)
class Standings:
    """The rows of a race, all of the same conditions."""

    rows: list[Row]

    @property
    def tasks(self) -> list[str]:
        """The tasks, in order."""
        return list(dict.fromkeys(row.task for row in self.rows))

    @property
    def names(self) -> list[str]:
        """The competitors that have a row, in order: ours first."""
        found = {row.competitor.removesuffix(field.OWN) for row in self.rows}
        return [entry.name for entry in field.ENTRIES if entry.name in found]

    def of(self, task: str, name: str) -> list[Row]:
        """Return a competitor's rows on a task, of the seeds that count there.

        They are those with the networks, ours or its own, that have the lower median.
        """
        here = [row for row in self.rows if row.task == task and row.seed in self._seeds[task]]
        either = [[row for row in here if row.competitor == name + end] for end in ("", field.OWN)]
        there = filter(None, either)
        return min(there, key=lambda rows: spread([row.time for row in rows]).order, default=[])

    @cached_property
    def _seeds(self) -> dict[str, set[int]]:
        """The seeds of each task that everyone there has run; all where there is none."""
        found = {}
        for task in self.tasks:
            here = [(row.competitor, row.seed) for row in self.rows if row.task == task]
            run = [{seed for other, seed in here if other == name} for name, _ in here]
            found[task] = set.intersection(*run) or set.union(*run)
        return found

    def has_own_networks(self, task: str, name: str) -> bool:
        """Tell whether a peer's own networks are the better ones for it on a task."""
        return any(row.competitor.endswith(field.OWN) for row in self.of(task, name))

    def spread(
        self, task: str, name: str, what: Callable[[Row], float] = lambda row: row.time
    ) -> Spread | None:
        """Return the spread of a competitor's times on a task, None where it has none."""
        found = self.of(task, name)
        return spread([what(row) for row in found]) if found else None

    def medians(self, task: str) -> dict[str, float]:
        """Return each competitor's median time on a task."""
        return {name: found.median for name in self.names if (found := self.spread(task, name))}

    def limit(self, task: str) -> float:
        """Return the limit of a task's runs [s]."""
        return next(row.limit for row in self.rows if row.task == task)

    def start_up(self, name: str) -> float:
        """Return a competitor's median time until it trained [s]."""
        mine = [row for row in self.rows if row.competitor.removesuffix(field.OWN) == name]
        return spread([row.start_up for row in mine]).median

    def first(self, task: str) -> str:
        """Return who is first on a task, "" where nobody's median reaches the goal."""
        medians = self.medians(task)
        best = min(medians, key=lambda name: medians[name])
        return best if math.isfinite(medians[best]) else ""

    def best_peer(self, task: str) -> tuple[str, float] | None:
        """Return the fastest peer and its median time."""
        spreads = {}
        for entry in field.ENTRIES:
            if entry.library and (found := self.spread(task, entry.name)):
                spreads[entry.name] = found
        if not spreads:
            return None
        best = min(spreads, key=lambda name: spreads[name].order)
        return best, spreads[best].median

    def ratio(self, task: str) -> tuple[float, str] | None:
        """Return how many times as long as our champion the best peer takes; None without either.

        That is the median over seeds; nan where nobody is there with any.
        """
        if (peer := self.best_peer(task)) is None:
            return None
        ours = {row.seed: row.time for row in self.of(task, field.CHAMPION)}
        theirs = {row.seed: row.time for row in self.of(task, peer[0])}
        found = [
            compare_times(ours[seed], theirs[seed], self.limit(task))
            for seed in ours.keys() & theirs.keys()
        ]
        if all(math.isnan(ratio) for ratio, _ in found):
            return found[0] if found else None
        ordered = sorted(
            (0.0, "0") if math.isnan(ratio) else (ratio, said) for ratio, said in found
        )
        return ordered[(len(ordered) - 1) // 2]

    def markdown(self) -> str:
        """Return the tables for people, and what they say."""
        times = "\n".join([*self.intro(), "", *markdown(self.cells(lambda row: row.time, True))])
        steps = "\n".join(markdown(self.cells(lambda row: row.steps, False)))
        about = "## True environment steps to the same return"
        first = "## First, and the best peer"
        return "\n\n".join([TITLE, times, about, steps, first, *self.verdict()])

    def describe_figure(self, each: str) -> str:
        """Say what a figure is of; each: what stands behind several seeds."""
        every = [self.of(task, name) for task in self.tasks for name in self.names]
        counts = sorted({len(found) for found in every if found})
        return (
            f"{name_median(counts)} of {format_range([counts[0], counts[-1]])} seeds{each}"
            if counts[-1] > 1
            else "one seed"
        )

    def intro(self) -> list[str]:
        """Fill the table's cells."""
        one, shows = self.rows[0], self.describe_figure(" (least to most)")
        machine = one.cpu.partition(" (")[0]
        said = (
            f"Seconds from the start of the process to a policy with the return: {shows}, "
            f"on {one.cores} core{'s' if one.cores > 1 else ''} of {machine}; "
            "> : not within the limit. Evaluations stop "
            f"everyone's clock. Commit {', '.join(sorted({row.commit[:10] for row in self.rows}))}."
        )
        if any(self.has_own_networks(task, name) for task in self.tasks for name in self.names):
            said += (
                f" Of a peer's two networks the better counts: its own ({MARK.strip()}) or ours."
            )
        starts = ", ".join(f"{name} {as_text(self.start_up(name), '')} s" for name in self.names)
        return [said, f"Of these, start-up until training begins, medians: {starts}."]

    def cells(self, what: Callable[[Row], float], timed: bool) -> list[list[str]]:
        """Return a table, competitors by tasks; timed: times, with a limit, the first in bold."""
        goals = {row.task: row.goal for row in self.rows}
        found = [["", *(f"{task}: {goals[task]:,g}" for task in self.tasks)]]
        for name in self.names:
            line = [name]
            for task in self.tasks:
                seen = self.spread(task, name, what)
                cell = seen.text(f"> {self.limit(task):,g}" if timed else "-") if seen else ""
                cell += MARK if self.has_own_networks(task, name) else ""
                line.append(f"**{cell}**" if timed and self.first(task) == name else cell)
            found.append(line)
        return found

    def verdict(self) -> list[str]:
        """Return who is first where, and how far our champion is ahead of the best peer."""
        lines, ratios = [], []
        for task in self.tasks:
            peer, ratio = self.best_peer(task), self.ratio(task)
            said = f"- {task}: first {self.first(task) or 'nobody'}"
            if peer and ratio and math.isfinite(ratio[0]):
                who = (
                    "best peer"
                    if math.isfinite(peer[1])
                    else "no peer's median within the limit, best"
                )
                said += f"; {who} {peer[0]}, its time over {field.CHAMPION}'s {ratio[1]}"
                ratios.append(ratio[0])
            lines.append(said)
        found = ["\n".join(lines)]
        if ratios:
            many = sum(self.first(task) == field.CHAMPION for task in self.tasks)
            found.append(
                f"{field.CHAMPION} is first on {many} of {len(self.tasks)} "
                f"task{'s' if len(self.tasks) > 1 else ''}. "
                "The best peer's time over its own is "
                f"{sorted(ratios)[(len(ratios) - 1) // 2]:.2g} "
                f"at least on the median of {len(ratios)}."
            )
        return found
