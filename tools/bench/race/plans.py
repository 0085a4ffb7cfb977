"""The runs of a race, in their order: all of a seed before the next one's."""

import argparse
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from esac_mpi.analysis.messages import Unusable, some
from esac_mpi.host import affinity
from esac_mpi.training import provenance
from tools.bench.measurement import installed
from tools.bench.race import field, rows
from tools.bench.race.field import Course, Entry, Task
from tools.bench.race.running import Plan

SEEDS, EPISODES, LIMIT = 3, 10, 120.0  # LIMIT: of a run [s]
RULES = 2  # counted up when competitors are run or looked at otherwise, settings apart
TOY = Task("InvertedPendulum-v5", 50.0)
TOY_LIMIT, TOY_HIDDEN, TOY_EPISODES = 20.0, (16, 16), 2
LIBRARIES = {field.SB3: ("stable_baselines3",), field.EVOTORCH: ("evotorch", "ray")}


@dataclass(frozen=True)
class Run:
    """A competitor on a task, from a seed."""

    entry: Entry
    course: Course
    seed: int
    settings: dict[str, Any]
    versions: str
    cpu: str

    @property
    def made_with(self) -> str:
        """What its row is known by, beside seed and machine."""
        settings = field.effective(self.settings) if self.entry.ours else self.settings
        about = {
            "competitor": self.entry.name,
            "settings": settings,
            "versions": self.versions,
            "rules": RULES,
        }
        return rows.digest({**self.course.conditions(), **about})

    @property
    def key(self) -> rows.Key:
        """What its row is known by, beside the machine."""
        return self.made_with, self.seed

    @property
    def heat(self) -> rows.Heat:
        """Whose runs have one machine."""
        return self.course.task.id, self.seed

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.course.task.id}, {self.entry.name}, seed {self.seed}"

    @property
    def file_name(self) -> str:
        """What the folder of its log is called."""
        return "-".join(re.findall(r"[A-Za-z0-9]+", f"{self.name} {self.made_with}"))

    def plan(self, folder: Path) -> Plan:
        """Return what its process is told."""
        course, algorithm = (
            self.course,
            self.entry.name.removeprefix("SB3 ").removeprefix("EvoTorch ").partition(",")[0],
        )
        return Plan(
            self.entry.program, algorithm, course.task.id, course.task.goal, self.seed, list(course.hidden), course.limit,
            course.episodes, course.cores, self.settings, str(folder),
        )  # fmt: skip


def planned(options: argparse.Namespace) -> list[Run]:
    """Return all runs that are asked for, in their order. Raises Unusable for what is not there."""
    if options.quick and options.task:
        raise Unusable(f"--quick has a task of its own, {TOY.id}: leave --task out")
    tasks = (
        [TOY]
        if options.quick
        else chosen(field.tasks(), options.task, lambda task: task.id, "--task")
    )
    entries = chosen(list(field.ENTRIES), options.only, lambda entry: entry.name, "--only")
    missing = {
        library for library in {entry.library for entry in entries} - {""} if not installed(library)
    }
    entries = [entry for entry in entries if entry.library not in missing]
    cores, cpu = len(affinity.cores()), provenance.cpu()
    seeds = options.rounds or (1 if options.quick else SEEDS)
    limit = options.limit or (TOY_LIMIT if options.quick else LIMIT)
    if seeds < 1 or not 0 < limit < math.inf:
        raise Unusable(f"--limit {limit:g}, --rounds {seeds}: both must be positive and finite")
    hidden = TOY_HIDDEN if options.quick else field.hidden()
    found = []
    for seed in range(seeds):
        for task in tasks:
            course = Course(task, hidden, limit, TOY_EPISODES if options.quick else EPISODES, cores)
            for entry in entries:
                settings = entry.settings(course)
                if settings is not None:
                    found.append(Run(entry, course, seed, settings, versions(entry), cpu))
    return found


def chosen(
    there: list[Any], asked: list[str], name: Callable[[Any], str], option: str
) -> list[Any]:
    """Return those of a list that are asked for by name, all where none is. Raises Unusable."""
    known = {name(one): one for one in there}
    if unknown := [one for one in asked if one not in known]:
        raise Unusable(f"{option} {some(unknown)}: not in the race; there are {', '.join(known)}")
    return [known[one] for one in asked] or there


def versions(entry: Entry) -> str:
    """Return the versions that a competitor's row depends on."""
    return ", ".join(
        [
            provenance.versions(()),
            *(f"{name} {version(name)}" for name in LIBRARIES.get(entry.library, ())),
        ]
    )
