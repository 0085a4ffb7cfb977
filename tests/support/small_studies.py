"""Studies of ES on the cyclic MDP whose trials take a moment."""

import signal
from pathlib import Path
from unittest import mock

from short_runs import elsewhere

from esac_mpi.studies.search.journal import Journal
from esac_mpi.studies.search.study import Study, begin, read

TASK = """
task.id = "CyclicMDP-v0"
task.horizon = 30
policy.hidden = [4]
evaluation.every = 1
evaluation.episodes = 1
"""
SETTINGS = f"""
algorithm = "es"
{TASK}
checkpoint.every_generations = 2
budget.generations = 10
"""
SEARCH = """
es.sigma = {low = 0.01, high = 0.5, log = true}
es.population_size = [4, 6]
"""


def write(
    folder: Path,
    head: str = "trials = 3",
    settings: str = SETTINGS,
    search: str = SEARCH,
    tail: str = "",
) -> Path:
    """Write a study file whose directory is beside it; return its path."""
    path = folder / "toy.toml"
    text = (
        f'directory = "{folder / "study"}"\n{head}\n'
        f"[settings]\n{settings}\n[search]\n{search}\n{tail}"
    )
    path.write_text(text)
    return path


def made(folder: Path, *arguments: str, **parts: str) -> Study:
    study = read(write(folder, *arguments, **parts))
    begin(study, source="")
    return study


def states(study: Study) -> list[tuple[int, str]]:
    return [(trial.number, trial.state) for trial in Journal(study).trials()]


def completed(study: Study, *values: float) -> Journal:
    """Complete a trial with each of these values; return the journal."""
    journal = Journal(study, fresh=True)
    for value in values:
        number = journal.begin()
        journal.values(number)
        journal.complete(number, value)
    return journal


def stopped_at(number: int, step: int):
    """Let SIGTERM come while a trial reports at a step, until the context's end."""
    honest = Journal.report

    def report(journal, *reported):
        if reported[:2] == (number, step):
            signal.raise_signal(signal.SIGTERM)
        return honest(journal, *reported)

    return mock.patch.object(Journal, "report", report)


HOLDER = """
import time
from pathlib import Path
from esac_mpi.record.lock import RunLock
held = RunLock(Path({path!r}))
held.claim()
print("held", flush=True)
time.sleep(600)
"""


def held_elsewhere(directory: Path):
    """Have another process hold a directory, which is killed at the context's end."""
    return elsewhere(HOLDER.format(path=str(directory)))
