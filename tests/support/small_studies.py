"""Studies of ES on the cyclic MDP whose trials take a moment."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import environment

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
    """Return a study that has its directory."""
    study = read(write(folder, *arguments, **parts))
    begin(study)
    return study


HOLDER = """
import sys, time
from pathlib import Path
from esac_mpi.record.lock import Held
held = Held(Path(sys.argv[1]))
held.claim()
print("held", flush=True)
time.sleep(100)
"""


@contextmanager
def held_elsewhere(directory: Path) -> Iterator[None]:
    """Have another process hold a directory, which is killed at the end."""
    line = [sys.executable, "-c", HOLDER, str(directory)]
    with subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield
        finally:
            process.kill()
