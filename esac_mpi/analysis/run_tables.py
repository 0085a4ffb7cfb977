"""The results of runs as a table: mean, standard deviation and median over the seeds of a group."""

import numpy as np

from esac_mpi.analysis.command import tell_unfinished
from esac_mpi.analysis.groups import Groups, grouped
from esac_mpi.analysis.measures import final_return
from esac_mpi.analysis.messages import Unusable, note, shorten
from esac_mpi.analysis.names import APART, describe_better
from esac_mpi.analysis.outcomes import AT_THE_END, FATES, OF_POLICY, At, describe, outcome
from esac_mpi.analysis.returns import BETTER, policies, require_policy
from esac_mpi.analysis.tables import Cell, Table
from esac_mpi.config import flatten
from esac_mpi.record import RunFiles


def cell(
    runs: list[RunFiles], measure: str, at: At = AT_THE_END, policy: str = BETTER
) -> Cell | None:
    """Return the results of a group at a place; None if no run of it has any."""
    found = [(run, outcome(run, measure, at, policy)) for run in runs]
    seen = [(run, value) for run, value in found if np.isfinite(value)]
    left = [run.path.name for run, value in found if not np.isfinite(value)]
    if left and measure not in FATES[1:]:  # which lack what the first one lacks
        where = "nothing to measure"
        if at.limit < np.inf:
            where = f"not that far or nothing to measure within {at}"
        note(f"left out, {where}: {shorten(left)}")
    if not seen:
        return None
    values = np.array([value for _, value in seen])
    std = float(values.std(ddof=1)) if len(values) > 1 else np.nan
    seeds = tuple(sorted(run.config.seed for run, _ in seen))
    return Cell(float(values.mean()), std, float(np.median(values)), seeds)


def columns(
    groups: dict[str, list[RunFiles]], measure: str, at: At, policy: str
) -> dict[str, Cell]:
    """Return a task's cells: one for a group, a policy that is reported apart, or a fate."""
    found: dict[str, Cell | None] = {}
    for name, group in groups.items():
        if measure == "fates":
            found |= {f"{name}, {fate}": cell(group, fate, at) for fate in FATES}
        elif policy == BETTER and measure in OF_POLICY and set(APART) <= set(policies(*group)):
            found |= {f"{name} {own}": cell(group, measure, at, own) for own in APART}
        else:
            found[name] = cell(group, measure, at, policy)
    return {name: made for name, made in found.items() if made is not None}


def tell_unlike(groups: Groups, at: At) -> None:
    """Name groups whose seeds were evaluated otherwise, or had other budgets when taken at ends."""
    for task, found in groups.items():
        for name, runs in found.items():
            for kind in ("budget", "evaluation"):
                several = len({tuple(flatten(getattr(run.config, kind))) for run in runs}) > 1
                if several and not (kind == "budget" and at.limit < np.inf):
                    note(f"{task}, {name}: runs of other {kind}s stand in one column")


def tell_unstable(runs: list[RunFiles]) -> None:
    """Name complete runs without a return at their end, for which an earlier evaluation stands."""
    ended = [run for run in runs if run.state == "complete" and final_return(run) is None]
    if earlier := [run.path.name for run in ended if np.isfinite(outcome(run, "final"))]:
        note(f"no finite return at the end, so by an earlier evaluation: {shorten(earlier)}")


def table_of(
    runs: list[RunFiles], measure: str = "final", at: At = AT_THE_END, policy: str = BETTER
) -> Table:
    """Tabulate the runs. Raises Unusable if it would be empty, or no run has such a policy."""
    if measure in OF_POLICY:
        require_policy(runs, policy)
    groups = grouped(runs)
    table = {task: columns(found, measure, at, policy) for task, found in groups.items()}
    if not any(table.values()):
        what = measure if measure == "fates" else f"a {measure} return"
        raise Unusable(f"nothing to tabulate yet: no run given has {what}")
    tell_unfinished(runs)
    tell_unlike(groups, at)
    if measure == "final" and at == AT_THE_END:
        tell_unstable(runs)
    return {task: row for task, row in table.items() if row}


def caption(runs: list[RunFiles], measure: str, at: At = AT_THE_END, policy: str = BETTER) -> str:
    """Return the sentence above the table."""
    found = policies(*runs)
    apart = policy == BETTER and measure in OF_POLICY and set(APART) <= set(found)
    others = [name for name in found if name not in APART] if apart else found
    what = describe(measure, policy, "" if apart and not others else describe_better(others))
    if apart:
        each = "the best mean return of an evaluation, which flatters"
        what += f"; of {' and '.join(APART)} {each if measure == 'best' else 'each'}"
    when = f", at {at}" if at.limit < np.inf else ""
    bold = "" if measure == "fates" else "; bold: best mean of a task"
    return f"Measure {measure}: {what}{when}. Mean ± std over seeds (median, n seeds){bold}."
