"""What one parameter does: a measure against a field's values, from run files or from rows."""

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np

from esac_mpi.analysis.command import tell_unfinished
from esac_mpi.analysis.evaluations import BETTER, require_policy
from esac_mpi.analysis.groups import grouped, refuse_twins, settings, shown
from esac_mpi.analysis.messages import Unusable, note, some
from esac_mpi.analysis.outcomes import OF_POLICY, At, outcome
from esac_mpi.analysis.tables import Row
from esac_mpi.config import table_of
from esac_mpi.config.names import meant
from esac_mpi.config.renamed import RENAMED
from esac_mpi.record import RunFiles

Line = dict[Any, np.ndarray]  # {value of the field: measures [runs]}
Panels = dict[str, dict[str, Line]]  # {title: {label: line}}


@dataclass(frozen=True)
class Point:
    """What one run measured at its value of the field; nan: nothing yet."""

    panel: str
    label: str
    value: Any
    measure: float
    name: str  # of the run, in a sentence


def lines(points: list[Point], field: str) -> Panels:
    """Sort measures into lines, values ascending; name the runs that have none.

    Raises Unusable where fewer than two values of the field were measured.
    """
    if missing := [point.name for point in points if not np.isfinite(point.measure)]:
        note(f"left out, nothing to measure, or not that far: {some(missing)}")
    measured = [point for point in points if np.isfinite(point.measure)]
    if len(values := {point.value for point in measured}) < 2:
        there = f"is {shown(*values)} in every run" if values else "has no measured run"
        raise Unusable(f"--field {field} {there}: a sweep needs two values or more")
    mixed = len({isinstance(point.value, str) for point in measured}) == 2
    found: Panels = {}
    for point in measured:
        line = found.setdefault(point.panel, {}).setdefault(point.label, {})
        value = str(point.value) if mixed else point.value  # numbers among words are words
        line[value] = np.append(line.get(value, np.zeros(0)), point.measure)
    return {
        title: {label: dict(sorted(line.items())) for label, line in row.items()}
        for title, row in found.items()
    }


def values_of(found: Panels) -> list[Any]:
    """Return the values of the field that were measured, ascending."""
    return sorted({value for row in found.values() for line in row.values() for value in line})


def full_name(run: RunFiles, field: str) -> str:
    """Return the field's dotted name in a run. Raises Unusable with the one like it."""
    there = settings(run)
    own = f"{table_of(run.config.algorithm)}.{field}"
    if now := RENAMED.get(field) or RENAMED.get(own):
        raise Unusable(f"--field {field}: is called --field {now} now")
    name = field if field in there else own
    if name not in there:
        like = meant(field, there, "config.toml has those that there are")
        raise Unusable(
            f"--field {field}: no setting of {run.config.algorithm} that results depend on; {like}"
        )
    return name


def of_runs(
    runs: list[RunFiles],
    field: str,
    measure: str = "final",
    at_steps: int = 0,
    policy: str = BETTER,
) -> Panels:
    """Measure a swept field: a panel a task, a line for other settings. Raises Unusable."""
    if measure in OF_POLICY:
        require_policy(runs, policy)
    names = {full_name(run, field) for run in runs}
    points = []
    for task, row in grouped(runs, names).items():
        for label, group in row.items():
            by_value: dict[Any, list[RunFiles]] = {}
            for run in group:
                value = settings(run)[full_name(run, field)]
                by_value.setdefault(value, []).append(run)
                found = outcome(run, measure, At(at_steps or np.inf), policy)
                points.append(Point(task, label, value, found, run.path.name))
            for twins in by_value.values():
                refuse_twins(twins)
    return lines(points, field)


def of_options(runs: list[RunFiles], options: argparse.Namespace) -> Panels:
    """Return the lines that a command line asks for. Raises Unusable."""
    if not options.field:
        raise Unusable("--what sensitivity needs --field: the parameter that varies")
    if options.measure == "fates":
        raise Unusable("--measure fates is of tables of results")
    found = of_runs(runs, options.field, options.measure, options.at_steps, options.policy)
    tell_unfinished(runs)
    return found


def normalised(found: Panels) -> Panels:
    """Divide each line by the size of its best mean."""

    def scaled(line: Line) -> Line:
        best = abs(max(measures.mean() for measures in line.values())) or 1.0
        return {value: measures / best for value, measures in line.items()}

    return {
        title: {label: scaled(line) for label, line in row.items()} for title, row in found.items()
    }


def rows(found: Panels, field: str) -> list[Row]:
    """Return a row for each task, line and value."""
    return [
        {
            "task": task,
            "run": label,
            field: shown(value),
            "mean": float(measures.mean()),
            "std": float(measures.std(ddof=1)) if len(measures) > 1 else np.nan,
            "seeds": len(measures),
        }
        for task, row in found.items()
        for label, line in row.items()
        for value, measures in line.items()
    ]
