"""The race's results: a row of a CSV file for each run, appended as it ends.

`made_with` is a digest of all that decides a row but seed and machine: conditions, settings and
versions. A row of another one, or of another machine, stays in the file and counts for nothing
here. A run that failed has no row.
"""

import csv
import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esac_mpi.analysis.messages import DAMAGED, Unusable

REACHED = "reached"
LATE = "late"  # not within the limit, or not with all its own budget


@dataclass(frozen=True)
class Row:
    """How a run ended."""

    made_with: str
    task: str
    goal: float
    competitor: str
    seed: int
    outcome: str
    seconds: float
    """From its process's start to the policy with the goal, else its end, evaluations out [s]."""
    start_up: float
    """Of these, before training began [s]."""
    env_steps: int
    """True steps until then, evaluations left out."""
    best: float
    """The best mean return of its looks; nan without one."""
    looks: int
    evaluating: float
    """Time that was left out [s]."""
    limit: float
    cores: int
    cpu: str
    versions: str
    commit: str
    date: str

    @property
    def time(self) -> float:
        """Time to the goal, inf where it was not reached [s]."""
        return self.seconds if self.outcome == REACHED else math.inf

    @property
    def steps(self) -> float:
        """True steps to the goal, inf where it was not reached."""
        return self.env_steps if self.outcome == REACHED else math.inf


FIELDS: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(Row)}


def append(path: Path, row: Row) -> None:
    """Add a row, and a head to a new file."""
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(FIELDS)
        values = dataclasses.astuple(row)
        writer.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in values])


def read(path: Path) -> list[Row]:
    """Return the rows of a file, none where there is none. Raises Unusable."""
    if not path.exists():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [
                Row(**{name: kind(line[name]) for name, kind in FIELDS.items()})
                for line in csv.DictReader(file)
            ]
    except (ValueError, KeyError, TypeError) as error:
        raise Unusable(f"{path}: no rows of a race, or a damaged one: {error}", DAMAGED) from error
