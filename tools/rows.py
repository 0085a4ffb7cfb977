"""The compact record of runs: at most 25 rows each in a CSV file that can be committed, of which results.py makes everything.

A run directory has megabytes; its rows have what tables and pictures of an experiment need. Numbers have 6 significant digits, a
number that there is none of is an empty field.
"""

import csv
import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from command import Unusable
from curves import RIVALS, column, evaluated, per_generation, position, training

from esac_mpi.record import RunFiles

MOST = 25  # rows of a run


@dataclass(frozen=True)
class Row:
    """A run as it stood after a generation. None: the run has no such number, or not in this generation."""

    experiment: str
    budget: str
    task: str
    variant: str
    value: str
    """Of the swept field; "" without a sweep."""
    seed: int
    generation: int
    env_steps: int
    """Of population and learner so far [steps]; evaluations are not in it."""
    nominal_steps: int
    """The papers' count [steps]."""
    wall_seconds: float
    """Since the start of the run, evaluations included [s]."""
    gradient_updates: int
    training_episodes: int
    """So far, evaluations not included."""
    training_return: float | None
    """Mean return of the last 50 training episodes."""
    fitness_mean: float | None
    """Mean over the generations so far of the population's mean fitness; None without a population."""
    return_theta_es: float | None
    """Mean return of a noise-free evaluation of theta_es in this generation."""
    return_learner: float | None
    """The same of the learner's policy: the SAC mean, or the actor of td3, ddpg or ppo."""
    complete: bool
    """Whether this is the last row of its run."""

    @property
    def better(self) -> float | None:
        """The better of the two returns."""
        return max((value for value in (self.return_theta_es, self.return_learner) if value is not None), default=None)

    @property
    def run(self) -> tuple[str, str, str, str, str, int]:
        """What tells this row's run from others."""
        return self.experiment, self.budget, self.task, self.variant, self.value, self.seed


def six(value: float) -> float | None:
    """Return a number with 6 significant digits, None for what is not finite."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


def so_far(values: np.ndarray) -> np.ndarray:
    """Return the mean of the finite values up to each place, nan before the first."""
    finite = np.isfinite(values)
    counts = finite.cumsum()
    return np.where(counts, np.where(finite, values, 0.0).cumsum() / np.maximum(counts, 1), np.nan)


def places(run: RunFiles, most: int) -> np.ndarray:
    """Return the indices of the generations that get a row, at most `most`: the first evaluation, the last generation, others.

    Of more evaluations than fit, some are left out evenly; where fewer were made, generations between them fill up.
    """
    generations = column(run, "metrics/generation")
    if not len(generations):
        return np.zeros(0, int)
    policies = [evaluated(run, name)[0] for name in ("theta_es", "sac", *RIVALS)]
    found = np.union1d(np.searchsorted(generations, np.concatenate(policies)), [len(generations) - 1]).astype(int)
    if len(found) >= most:
        return found[np.linspace(0, len(found) - 1, most).round().astype(int)]
    evenly = np.linspace(0, len(generations) - 1, most).round().astype(int)
    free = np.setdiff1d(evenly, found)
    fill = free[np.linspace(0, len(free) - 1, min(most - len(found), len(free))).round().astype(int)]
    return np.union1d(found, fill)


def rows(run: RunFiles, experiment: str, budget: str, variant: str, value: str, most: int = MOST) -> list[Row]:
    """Return the rows of a run, ascending: its evaluations, its last generation, and others up to `most`; see `places`."""
    kept = places(run, most)
    generations = column(run, "metrics/generation")[kept]
    _, average = training(run)
    so_many = position(run, "training_episodes")[kept].astype(int)
    fitness = so_far(per_generation(run, np.nanmean))
    counted = {name: column(run, f"metrics/{name}") for name in ("nominal_steps", "gradient_updates")}
    steps, wall = position(run, "env_steps"), position(run, "wall")
    returns = {
        name: dict(zip(*map(np.ndarray.tolist, evaluated(run, name)), strict=True)) for name in ("theta_es", "sac", *RIVALS)
    }
    found = []
    for i, generation, n in zip(kept.tolist(), generations.tolist(), so_many.tolist(), strict=True):
        learner = [returns[name][generation] for name in ("sac", *RIVALS) if generation in returns[name]]
        found.append(
            Row(
                experiment, budget, run.config.task.id, variant, value, run.config.seed, generation,
                env_steps=int(steps[i]),
                nominal_steps=int(counted["nominal_steps"][i]),
                wall_seconds=round(float(wall[i]), 2),
                gradient_updates=int(counted["gradient_updates"][i]),
                training_episodes=n,
                training_return=six(average[n - 1]) if n else None,
                fitness_mean=six(fitness[i]) if len(fitness) else None,
                return_theta_es=six(returns["theta_es"].get(generation, np.nan)),
                return_learner=six(learner[0]) if learner else None,
                complete=i == int(kept[-1]),
            )
        )  # fmt: skip
    return found


FIELDS: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(Row)}
PARSE: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: lambda text: finite(text),
    float | None: lambda text: finite(text) if text else None,
    bool: lambda text: bool(("0", "1").index(text)),
}


def finite(text: str) -> float:
    """Return a text as a number. Raises ValueError if it is none, or not finite."""
    if not np.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def text(value: Any) -> str:
    """Return a field as it stands in the file."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(int(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as CSV, a head and a line each; the folder is made, an older file replaced whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    with beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        writer.writerows([text(getattr(row, name)) for name in FIELDS] for row in rows)
    beside.replace(path)


def read(paths: Iterable[Path]) -> list[Row]:
    """Return the rows of files in their order. Raises Unusable: not there, empty or twice (code 2), damaged (65)."""
    found = [row for path in paths for row in read_one(path)]
    ends: dict[Any, int] = {}
    for row in found:
        if row.generation <= ends.get(row.run, -1):
            raise Unusable(f"{', '.join(filter(None, row.run[:5]))}, seed {row.seed}: there twice; leave one of the files out")
        ends[row.run] = row.generation
    return found


def read_one(path: Path) -> list[Row]:
    """Return the rows of one file. Raises Unusable."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
            names = next(csv.reader([*path.read_text(encoding="utf-8").splitlines()[:1]]), [])
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise damaged(f"{path}: no CSV file of results: {error}") from error
    if missing := [name for name in FIELDS if name not in names]:
        raise damaged(f"{path}: no CSV file of results: it has no column {', '.join(missing)}")
    if not lines:
        raise Unusable(f"{path}: no rows in it yet")
    return [parsed(line, f"{path}, line {number}") for number, line in enumerate(lines, 2)]


def parsed(line: dict[str, str], where: str) -> Row:
    """Return a line as a row. Raises Unusable."""
    values = {}
    for name, kind in FIELDS.items():
        try:
            values[name] = PARSE[kind](line[name])
        except (ValueError, TypeError) as error:  # None: the line is too short
            raise damaged(f"{where}: {name} is {line[name]!r}, not {getattr(kind, '__name__', kind)}") from error
    return Row(**values)


def damaged(text: str) -> Unusable:
    """Return the complaint about a file that cannot be read."""
    failure = Unusable(text)
    failure.code = 65
    return failure
