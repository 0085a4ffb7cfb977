"""The compact record of a run: 25 rows, or as many as an experiment says, for tables and pictures.

A run directory has megabytes, its rows some 5 kB, which can be committed. Numbers have 6
significant digits.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from esac_mpi.analysis import groups
from esac_mpi.analysis.clock import grid
from esac_mpi.analysis.curves import column, per_generation, position
from esac_mpi.analysis.names import candidates
from esac_mpi.analysis.returns import best_of, evaluated, policies, training
from esac_mpi.config.fields import DEFAULTS
from esac_mpi.config.renamed import first_names
from esac_mpi.record import RunFiles

LEFT_OUT = {  # of digests: defaults, as they were when rows were first recorded
    **DEFAULTS,
    "es.start_states": "member",
    "esac.start_states": "member",
    "esac.transfer_at_once": False,
    "esac.observation_normalisation": True,
    "esac.resimulated": "better",
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
    """Mean over the generations so far of the population's mean fitness; None without one."""
    return_theta_es: float | None
    """Mean return of a noise-free evaluation of theta_es in this generation."""
    return_learner: float | None
    """The same of the learner's policy, as the SAC mean; of ERL and its forms the champion."""
    complete: bool
    """Whether this is the last row of a run that is done: its budget or wall time is used up."""
    clock: str = ""
    """When it would have stood there on other ranks (clock/grid.py); "" where that is not known."""
    settings: str = ""
    """Digest of settings (not seed, not task); "" but in a run's first row."""
    changed: str = ""
    """In a run's first row: horizon and keyword arguments of its task; "" else."""

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


def returns(run: RunFiles, names: list[str]) -> dict[int, float]:
    """Return the mean return of the best of some policies by generation."""
    return dict(zip(*map(np.ndarray.tolist, best_of(run, names)), strict=True))


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


def rows(
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
    own = returns(run, [OWN_COLUMN])
    learners = returns(run, [name for name in candidates(policies(run)) if name != OWN_COLUMN])
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
