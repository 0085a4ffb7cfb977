"""A run that another makes again from its record of the order: whether it can be, and how."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from esac_mpi.config import Config, differences, table_of
from esac_mpi.host.errors import Away, Refused, RunError
from esac_mpi.host.run_directory import CONFIG
from esac_mpi.record.directory_check import list_changes, task_changes
from esac_mpi.record.reading import Columns, RunFiles, open_run


def source(config: Config, run_dir: Path, now: Mapping[str, Any]) -> Columns:
    """Read the history of the run whose order this configuration follows (Table.follows).

    now: what provenance says of the task here. Raises Refused where that run is not one to follow,
    Away.
    """
    path, name = Path(config.own.follows or ""), f"{table_of(config.algorithm)}.replay"
    try:
        found = open_run(path)
        wrong = problem(found, config, name)
    except Away:
        raise
    except (OSError, RunError) as error:
        raise Refused(f"{name}: {error}") from error
    if os.path.realpath(path) == os.path.realpath(run_dir):
        wrong = "is the run directory itself; choose another --run-dir"
    changed = task_changes(found.provenance, now)
    if changed and not wrong and config.task.changed == "refuse":
        told = f"is of another task; changed: {'; '.join(changed)}"
        wrong = f"{told}. --task.changed warn makes it all the same"
    if wrong:
        raise Refused(f"{name}: {path} {wrong}")
    return found.columns


def compare_start(config: Config, start: Mapping[str, Any]) -> str:
    """Describe how a run's start differs from that of the run it follows; "" if it does not.

    start: what it begins from, as its files will have it (RunFiles.start). What else is wrong with
    that run, `source` says.
    """
    if not config.own.follows:
        return ""
    try:
        was = open_run(Path(config.own.follows)).start
    except (OSError, RunError):
        return ""
    hashes = "generation", "theta_sha256", "state_sha256"
    if not was or all(was.get(name) == start.get(name) for name in hashes):
        return ""
    return (
        f"{table_of(config.algorithm)}.replay: {config.own.follows} began from {was['from']} as "
        f"it was at generation {was['generation']}, which is another now: it cannot be made again"
    )


def problem(found: RunFiles, config: Config, name: str) -> str:
    """Say why a run cannot be made again under this configuration; empty if it can."""
    if found.state != "complete":
        return f"is not finished ({found.state}): let it come to the end of its budget first"
    changed = {key: pair for key, pair in differences(found.config, config).items() if key != name}
    if changed:
        told = ", ".join(list_changes(changed))
        return f"has other settings: {told}; {found.path / CONFIG} has them all"
    limits = zip(config.budget.limits, found.config.budget.limits, strict=True)
    wanted, there = config.budget.generations, found.generation
    by_minutes = found.config.budget.minutes and not 0 < wanted <= there
    if by_minutes or any(now > was for now, was in limits):
        remedy = f"choose budget.generations = {there}, or less"
        return f"has a smaller budget, at whose end its record ends: {remedy}"
    return ""
