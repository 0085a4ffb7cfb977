"""The results of runs as a table: mean, standard deviation and median over the seeds of a group."""

import numpy as np

from esac_mpi.analysis.command import tell_unfinished
from esac_mpi.analysis.evaluations import BETTER, policies_of, require_policy
from esac_mpi.analysis.fates import FATES
from esac_mpi.analysis.groups import grouped
from esac_mpi.analysis.messages import Unusable, note, some
from esac_mpi.analysis.names import better
from esac_mpi.analysis.outcomes import AT_THE_END, MEASURES, OF_POLICY, At, outcome
from esac_mpi.analysis.tables import Cell, Table
from esac_mpi.record import RunFiles


def cell(runs: list[RunFiles], measure: str, at: At = AT_THE_END, policy: str = BETTER) -> Cell | None:
    """Return the results of a group, as it stood there; None if no run of it has any."""
    limited = np.isfinite(at.limit)
    reached = [run for run in runs if not limited or at.end(run) >= at.limit]
    found = [(run, outcome(run, measure, at, policy)) for run in reached]
    seen = [(run, value) for run, value in found if np.isfinite(value)]
    if left := [run.path.name for run in runs if run not in [run for run, _ in seen]]:
        where = f" within the first {at.steps:,} steps" if at.steps else f" within {at}" if limited else ""
        note(f"left out, {'not that far or ' if where else ''}nothing to measure{where}: {some(left)}")
    if not seen:
        return None
    values = np.array([value for _, value in seen])
    std = float(values.std(ddof=1)) if len(values) > 1 else np.nan
    return Cell(float(values.mean()), std, float(np.median(values)), tuple(sorted(run.config.seed for run, _ in seen)))


def columns(groups: dict[str, list[RunFiles]], measure: str, at: At, policy: str) -> dict[str, Cell | None]:
    """Return the cells of a task: one for each group, or one for each of its fates."""
    if measure != "fates":
        return {name: cell(group, measure, at, policy) for name, group in groups.items()}
    return {f"{name}, {fate}": cell(group, fate, at) for name, group in groups.items() for fate in FATES}


def table_of(runs: list[RunFiles], measure: str = "best", at: At = AT_THE_END, policy: str = BETTER) -> Table:
    """Return the table of the runs. Raises Unusable if it would be empty, or no run has such a policy."""
    if measure in OF_POLICY:
        require_policy(runs, policy)
    made = {task: columns(found, measure, at, policy) for task, found in grouped(runs).items()}
    table = {task: {name: c for name, c in row.items() if c is not None} for task, row in made.items()}
    if not any(table.values()):
        raise Unusable(f"nothing to tabulate yet: no run given has {'fates' if measure == 'fates' else f'a {measure} return'}")
    tell_unfinished(runs)
    return {task: row for task, row in table.items() if row}


def described(runs: list[RunFiles], measure: str, at: At = AT_THE_END, policy: str = BETTER) -> str:
    """Return the sentence that stands above the table."""
    whose = better(policies_of(runs)) if policy == BETTER else policy
    what = f"{MEASURES[measure]}, {whose}" if measure in OF_POLICY else MEASURES[measure]
    when = f", at {at}" if np.isfinite(at.limit) else ""
    bold = "" if measure == "fates" else "; bold: best mean of a task"
    return f"Measure {measure}: {what}{when}. Mean ± std over seeds (median, n seeds){bold}."
