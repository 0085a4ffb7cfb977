"""The race's results: a row of a CSV file for each run, appended as it ends.

`made_with` is a digest of all that decides a row but seed and machine: conditions, settings and versions. A row with another one
stays in the file and counts for nothing here. A heat is all competitors on a task from a seed, on one machine; a race may go on
on another one, heat by heat. A run that has only failed counts as such, until it is made again.
"""

import csv
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from esac_mpi.analysis.messages import damaged
from esac_mpi.record.files import replace

REACHED, LATE, SPENT = (
    "reached",
    "late",
    "spent",
)  # LATE: not within the limit; SPENT: its own budget ended before
FAILED = "failed"  # its process, within the limit
OUTCOMES = (REACHED, LATE, SPENT, FAILED)
Key = tuple[str, int]  # made_with and seed, of a run
Heat = tuple[str, int]  # a task and a seed


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
    """From the start of its process to the policy that reached the goal, evaluations left out; else to its end [s]."""
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
    why: str = ""
    """What it failed for, in a line."""

    @property
    def time(self) -> float:
        """Time to the goal, inf where it was not reached [s]."""
        return self.seconds if self.outcome == REACHED else math.inf

    @property
    def steps(self) -> float:
        """True steps to the goal, inf where it was not reached."""
        return self.env_steps if self.outcome == REACHED else math.inf


FIELDS: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(Row)}
FORMER = [name for name in FIELDS if name != "why"]  # of files in which no run had failed


def digest(conditions: dict[str, Any]) -> str:
    """Return a digest of plain values."""
    return sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()[:12]


def append(path: Path, row: Row) -> None:
    """Add a row, and a head to a new file; what a kill left of a last line is ended first. Raises Unsaved."""
    path.parent.mkdir(parents=True, exist_ok=True)
    bring_up(path)
    new = not path.exists() or path.stat().st_size == 0
    broken = not new and not path.read_bytes().endswith(b"\n")
    with path.open("a", newline="", encoding="utf-8") as file:
        if broken:
            file.write("\n")
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(FIELDS)
        writer.writerow(
            [
                f"{value:.6g}" if isinstance(value, float) else value
                for value in dataclasses.astuple(row)
            ]
        )


def bring_up(path: Path) -> None:
    """Give a file of the former fields the present ones."""
    head, *lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else [""]
    if head == ",".join(FORMER):
        replace(
            path,
            [
                "".join(
                    f"{line}\n" for line in [",".join(FIELDS), *(f"{line}," for line in lines)]
                ).encode()
            ],
        )


def read(path: Path) -> list[Row]:
    """Return the rows of a file, none where there is none; a line that a kill cut short is left out. Raises Unusable."""
    if not path.exists():
        return []
    try:
        lines = [cells(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    except UnicodeDecodeError as error:
        raise damaged(f"{path}: no rows of a race: {error}") from error
    if not lines or lines[0] not in (list(FIELDS), FORMER):
        raise damaged(f"{path}: no rows of a race; choose another --out")
    try:
        found = [
            Row(*map(typed, FIELDS.values(), line))
            for line in lines[1:]
            if len(line) == len(lines[0])
        ]
        for row in found:
            OUTCOMES.index(row.outcome)
        return found
    except ValueError as error:
        raise damaged(f"{path}: a damaged row: {error}") from error


def cells(line: str) -> list[str]:
    """Return a line's values, none of which has a line break; none if it was cut within quotes."""
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error:
        return []


def typed(kind: Any, text: str) -> Any:
    """Return a field's value."""
    return kind(text)


def counted(rows: Iterable[Row], wanted: Mapping[Key, Heat], cpu: str) -> dict[Key, Row]:
    """Return the row of each run that is wanted, {key: row}: all of a heat are of one machine.

    That is this machine, `cpu`, unless all of a heat ran on another one and none failed there. The first row of a run counts;
    of one that has only failed, the last.
    """
    found: dict[Heat, dict[str, dict[Key, Row]]] = {heat: {} for heat in wanted.values()}
    for row in rows:
        key = row.made_with, row.seed
        if key in wanted:
            there = found[wanted[key]].setdefault(row.cpu, {})
            if key not in there or there[key].outcome == FAILED:
                there[key] = row
    counts, kept = Counter(wanted.values()), dict[Key, Row]()
    for heat, machines in found.items():
        whole = {
            machine: there
            for machine, there in machines.items()
            if len(there) == counts[heat] and FAILED not in [row.outcome for row in there.values()]
        }
        kept |= whole.get(cpu) or next(iter(whole.values()), machines.get(cpu, {}))
    return kept
