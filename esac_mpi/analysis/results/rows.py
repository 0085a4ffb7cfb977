"""The compact record of a run: 25 rows, or as many as an experiment says, for tables and pictures.

A run directory has megabytes, its rows some 5 kB, which can be committed. Numbers have 6
significant digits. Files of rows are CSV: a head, then a line a row; a number that a run lacks is
empty.
"""

import csv
import dataclasses
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.analysis import groups
from esac_mpi.analysis.clock import grid
from esac_mpi.analysis.curves import per_generation, position
from esac_mpi.analysis.measures import column
from esac_mpi.analysis.messages import DAMAGED, Unusable, shorten
from esac_mpi.analysis.names import candidates
from esac_mpi.analysis.returns import best_of, evaluated, policies, training
from esac_mpi.config.fields import DEFAULTS
from esac_mpi.config.renamed import first_names
from esac_mpi.host.paths import PathLike, list_paths, whole_file
from esac_mpi.record import RunFiles

LEFT_OUT = {  # of digests: defaults, as they were when rows were first recorded
    **DEFAULTS,
    "es.start_states": "member",
    "esac.start_states": "member",
    "esac.transfer_at_once": False,
    "esac.observation_normalisation": True,
    "esac.resimulated": "better",
    "es.scaled_noise": False,
    "esac.scaled_noise": False,
    "sac.batch_size": 256,
    "sac.observation_normalisation": True,
}
MOST = 25  # rows of a run, where an experiment does not say otherwise
# the policy whose returns have a column of their own; all others are the learner's
OWN_COLUMN = "theta_es"


@dataclass(frozen=True)
class Row:
    """A run as it stood after a generation. None: it has no such number, or not in this one."""

    experiment: str
    budget: str
    task: str
    variant: str
    value: str  # of the swept field; "" without a sweep
    seed: int
    generation: int
    env_steps: int  # of population and learner so far [steps]; evaluations are not in it
    nominal_steps: int  # the papers' count [steps]
    wall_seconds: float  # since the start of the run, evaluations included [s]
    gradient_updates: int
    training_episodes: int  # so far, evaluations not included
    training_return: float | None  # mean return of the last 50 training episodes
    fitness_mean: float | None  # mean so far of the population's mean fitness; None without one
    return_theta_es: float | None  # mean of a noise-free evaluation of theta_es in this generation
    return_learner: float | None  # the same of the learner's: SAC's mean policy, ERL's champion
    complete: bool  # whether it is the last row of a run whose budget or wall time is used up
    clock: str = ""  # when it would have stood there on other ranks (clock/grid.py); "": not known
    settings: str = ""  # digest of settings (not seed, not task); "" but in a run's first row
    changed: str = ""  # in a run's first row: horizon and keyword arguments of its task; "" else

    @property
    def better(self) -> float | None:
        """The better of the two returns."""
        both = self.return_theta_es, self.return_learner
        return max((value for value in both if value is not None), default=None)

    @property
    def run(self) -> tuple[str, str, str, str, str, int]:
        """What tells this row's run from others."""
        return self.experiment, self.budget, self.task, self.variant, self.value, self.seed

    @property
    def name(self) -> str:
        """What this row's run is called in a sentence."""
        return f"{', '.join(filter(None, self.run[:5]))}, seed {self.seed}"


def round_finite(value: float) -> float | None:
    """Round to 6 significant digits; None if not finite."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


def describe_changes(horizon: int, kwargs: Mapping[str, object]) -> str:
    """Describe horizon and keyword arguments, which change a task's returns; "" for none."""
    said = [f"horizon {horizon}"] if horizon else []
    said += [f"{name} {json.dumps(value)}" for name, value in sorted(kwargs.items())]
    return ", ".join(said)


def task_form(task: str, changed: str) -> str:
    """Join task and changes to the key of random actions' returns."""
    return f"{task}, {changed}" if changed else task


def running_mean(values: np.ndarray) -> np.ndarray:
    """Average the finite values up to each place, nan before the first."""
    finite = np.isfinite(values)
    counts = finite.cumsum()
    return np.where(counts, np.where(finite, values, 0.0).cumsum() / np.maximum(counts, 1), np.nan)


def choose_places(run: RunFiles, most: int) -> np.ndarray:
    """Choose the indices of at most `most` generations with a row: evaluations, the last, others.

    Of more evaluations than fit, some are left out evenly. Where fewer than MOST were made,
    generations between them fill up.
    """
    generations = column(run, "metrics/generation")
    if not len(generations):
        return np.zeros(0, int)
    when, _ = evaluated(run)
    made, last = np.searchsorted(generations, when).astype(int), len(generations) - 1
    found = np.union1d(space_evenly(made, max(2, most - int(last not in made[-1:]))), [last])
    filled = min(most, MOST)
    free = np.setdiff1d(np.linspace(0, last, filled).round().astype(int), found)
    return np.union1d(found, space_evenly(free, max(0, filled - len(found))))


def space_evenly(values: np.ndarray, most: int) -> np.ndarray:
    """Take at most so many values, evenly spaced."""
    if len(values) <= most:
        return values
    return values[np.linspace(0, len(values) - 1, most).round().astype(int)]


def digest(run: RunFiles) -> str:
    """Compute 8 digits of the settings that are no defaults, by old records' names for them."""
    own = dict(
        first_names(name, value)
        for name, value in groups.settings(run).items()
        if value != LEFT_OUT.get(name)
    )
    return f"{zlib.crc32(repr((sorted(own.items()), None)).encode()):08x}"


def rows_of(
    run: RunFiles,
    experiment: str,
    budget: str,
    variant: str,
    value: str,
    done: bool,
    most: int = MOST,
) -> list[Row]:
    """Return a run's rows, ascending: evaluations, the last generation, others."""
    kept = choose_places(run, most)
    settings, task = digest(run), run.config.task
    changed = describe_changes(task.horizon, task.kwargs)
    generations, episodes = column(run, "metrics/generation"), position(run, "training_episodes")
    _, average = training(run)
    fitness = running_mean(per_generation(run, np.nanmean))
    nominal = column(run, "metrics/nominal_steps")
    updates = column(run, "metrics/gradient_updates")
    steps, wall = position(run, "env_steps"), position(run, "wall")
    own = best_of(run, [OWN_COLUMN])
    learners = best_of(run, [name for name in candidates(policies(run)) if name != OWN_COLUMN])
    found = []
    for i, clock in zip(kept.tolist(), grid.format_cells(run, kept), strict=True):
        generation, n, first = int(generations[i]), int(episodes[i]), i == kept[0]
        found.append(
            Row(
                experiment, budget, run.config.task.id, variant, value, run.config.seed, generation,
                env_steps=int(steps[i]),
                nominal_steps=int(nominal[i]),
                wall_seconds=round(float(wall[i]), 2),
                gradient_updates=int(updates[i]),
                training_episodes=n,
                training_return=round_finite(average[n - 1]) if n else None,
                fitness_mean=round_finite(fitness[i]) if len(fitness) else None,
                return_theta_es=round_finite(own.get(generation, np.nan)),
                return_learner=round_finite(learners.get(generation, np.nan)),
                complete=done and bool(i == kept[-1]),
                clock=clock,
                settings=settings if first else "",
                changed=changed if first else "",
            )
        )  # fmt: skip
    return found


# ---- files

FIELDS: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(Row)}
TOTALS = [  # columns that never fall
    "env_steps", "nominal_steps", "wall_seconds", "gradient_updates", "training_episodes",
]  # fmt: skip
LATER = {"clock", "settings", "changed"}  # columns that older files lack


def parse_finite(text: str) -> float:
    """Parse a finite number. Raises ValueError."""
    if not np.isfinite(value := float(text)):
        raise ValueError(text)
    return value


PARSE: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: lambda text: int(np.int64(int(text))),
    float: parse_finite,
    float | None: lambda text: parse_finite(text) if text else None,
    bool: lambda text: bool(("0", "1").index(text)),
}


def format_field(value: Any) -> str:
    """Format a field for the file."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(int(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as CSV, a head and a line each; make the folder, replace an older file whole."""
    with whole_file(path) as place, place.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        writer.writerows([format_field(getattr(row, name)) for name in FIELDS] for row in rows)


def read_rows(paths: PathLike | Iterable[PathLike]) -> list[Row]:
    """Return the rows of one or several files, in their order.

    Raises Unusable: not there, empty, twice, or with other settings or another core under the same
    name (code 2), damaged, or with a total that falls (65).
    """
    found = [row for path in list_paths(paths) for row in read_file(path)]
    ends: dict[Any, Row] = {}
    for row in found:
        before = ends.setdefault(row.run, row)
        if before is not row and row.generation <= before.generation:
            raise Unusable(
                f"{row.name}: there twice, or its generations do not ascend;"
                " leave one of the files out, or draw it anew"
            )
        if fallen := [name for name in TOTALS if getattr(row, name) < getattr(before, name)]:
            where = f"{row.name}, generation {row.generation}"
            raise Unusable(f"{where}: less {', '.join(fallen)} than in the row before", DAMAGED)
        ends[row.run] = row
    refuse_mixed(found)
    return found


def refuse_mixed(rows: Iterable[Row]) -> None:
    """Raise Unusable where rows of one name have other settings."""
    settings: dict[Any, set[str]] = {}
    for row in rows:
        if row.settings:
            settings.setdefault(row.run[:5], set()).add(row.settings)
    mixed = [name for name, digests in settings.items() if len(digests) > 1]
    if odd := [", ".join(filter(None, name)) for name in mixed]:
        raise Unusable(
            f"{shorten(odd)}: rows of other settings under one name: they are no seeds of the same"
        )


def read_file(path: Path) -> list[Row]:
    """Return the rows of one file. Raises Unusable."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)  # of quotes
            head = list(reader.fieldnames or ())
            lines = [(line, f"{path}, line {reader.line_num}") for line in reader]
    except OSError as error:
        more = ", not an experiment's results.csv; of runs: esac-mpi table" if path.is_dir() else ""
        raise Unusable(f"{path}: {error.strerror}{more}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise Unusable(f"{path}: no CSV file of results: {error}", DAMAGED) from error
    names = [name for name in FIELDS if name not in LATER]
    if odd := [name for name in names if name not in head] or [
        name for name in FIELDS if head.count(name) > 1
    ]:
        why = f"its first line does not have {shorten(odd)} once each, with commas between"
        raise Unusable(f"{path}: no CSV file of results: {why}", DAMAGED)
    if not lines:
        raise Unusable(f"{path}: no rows in it yet")
    return [parse_row(*line) for line in lines]


def parse_row(line: dict[str, str], where: str) -> Row:
    """Parse a line of the file. Raises Unusable."""
    if None in line or None in line.values():  # csv's key of what is left over, value of no entry
        raise Unusable(f"{where}: not as many entries as the head has", DAMAGED)
    values = {}
    for name, kind in FIELDS.items():
        try:
            values[name] = PARSE[kind](line.get(name, "") if name in LATER else line[name])
        except (ValueError, OverflowError) as error:
            raise Unusable(
                f"{where}: {name} is {line[name]!r}, not {getattr(kind, '__name__', kind)}", DAMAGED
            ) from error
    return Row(**values)
