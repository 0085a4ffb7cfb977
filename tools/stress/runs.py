"""Small runs that are killed and started again: how they are started, what they left, and what must not change."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import esac_mpi
from esac_mpi.record import Columns, Run, read
from tools.processes import family, shared_files

ROOT = Path(esac_mpi.__file__).parents[1]  # where the program is imported from
PROGRAM = """
import sys
from esac_mpi import __main__, record
record.run.PUBLISH_EVERY, record.replays.SEGMENT = 0.0, 50  # rows of every generation; replay segments that close
record.history.SEGMENT_BYTES = 6000  # and segments of the history, of a few rows each
sys.exit(__main__.main(sys.argv[1:]))
"""
GENERATIONS = 40
LAG = 2
PATIENCE = (
    60.0  # longest wait for a moment, and for a run that is left alone to publish or to end [s]
)


EVOLUTION = ["population_size=10", "sigma=0.3", "lr_es=0.05"]
COMMON = [
    *(
        "--task.id=CyclicMDP-v0",
        "--task.horizon=40",
        "--policy.hidden",
        "8",
        "8",
        "--evaluation.every=3",
    ),
    *(
        "--evaluation.episodes=4",
        "--checkpoint.every_generations=3",
        "--checkpoint.every_minutes=0",
    ),
]
PHASES = [
    "--esac.sac_min_steps=30",
    "--sac.start_steps=20",
    "--sac.batch_size=16",
    "--sac.replay_capacity=200",
]
INTERVAL = ["--esac.reading=mended", "--esac.gradient_interval=2", "--esac.sac_episodes=2"]
CARRIED = [
    "--esac.replayed=sample",
    "--esac.adoption=tested",
    "--esac.adoption_episodes=2",
    "--esac.adoption_wins=2",
]
TIMED = [
    "--esac.sigma_rule=grow",
    "--esac.amt_trigger=generation",
    "--esac.workers=2",
    "--esac.update_cost=0.4",
    "--esac.length_cap=2",
]
FORM = [
    "population_size=5",
    "memory_size=60",
    "sync_interval=3",
    "distillation_epochs=2",
    "distillation_batch=8",
]
LEARNED = ["mutation_batch=16", "batch_size=16", "replay_capacity=400", "updates_per_step=0.2"]
ESAC = [*(f"--esac.{option}" for option in EVOLUTION), *COMMON, *PHASES]
PARTS = {
    "ES": [
        "--algorithm=es",
        *(f"--es.{option}" for option in (*EVOLUTION, "sigma_rule=one_fifth")),
        *COMMON,
    ],
    "ESAC": [*ESAC, *INTERVAL, *CARRIED, "--esac.sigma_rule=one_fifth"],
    "ESAC beside": [*ESAC, *INTERVAL, f"--esac.learner_lag={LAG}", "--esac.replayed=better"],
    "ESAC virtual": [*ESAC, *TIMED, *CARRIED],
    "PDERL": ["--algorithm=pderl", *(f"--erl.{option}" for option in (*FORM, *LEARNED)), *COMMON],
}
ASKED = [
    "workers=2",
    "arrivals_per_generation=2",
    "mean_episodes=1",
    "start_steps=200",
    "actor_updates_window=2",
]
TAUGHT = [
    "p_negative=0.1",
    "batch_size=16",
    "critic_chunk=40",
    "replay_capacity=400",
    "relative_baseline=20",
    "update_cost=0.2",
]
AES = ["--algorithm=aes_rl", *(f"--aes_rl.{option}" for option in (*ASKED, *TAUGHT)), *COMMON]
ASYNCHRONOUS = {"AES-RL": AES, "AES-RL arrival": [*AES, "--aes_rl.order=arrival"]}


class Broken(Exception):
    """A promise that was not kept."""


@dataclass
class Part:
    """What happened to one part."""

    name: str
    arguments: list[str]
    place: Path
    choose: random.Random
    straight: dict[str, np.ndarray] = field(
        default_factory=dict
    )  # what every run of the part must become
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)  # kills by (moment, victim)
    runs: int = 0
    starts: int = 0
    slowest: float = 0.0  # longest time from a kill to the end of all processes [s]

    @property
    def recorded(self) -> bool:
        """Whether each of its runs has an order of its own, by whose record it can be made again."""
        return "--aes_rl.order=arrival" in self.arguments


@dataclass
class Job:
    """A started run."""

    process: subprocess.Popen
    path: Path
    inode: int  # of metrics.h5 when it was started
    processes: dict[int, str] = field(default_factory=dict)  # with their ranks, as last looked at
    shared: set[Path] = field(
        default_factory=set
    )  # files in /dev/shm that a killed MPI leaves there

    @property
    def published(self) -> bool:
        """Whether it has published rows."""
        return inode(self.path) != self.inode

    def look(self) -> None:
        """Find the processes: beforehand, because the moment to hit is short."""
        self.processes = family(self.process.pid)
        self.shared |= shared_files([pid for pid, rank in self.processes.items() if rank])


def science(path: Path) -> dict[str, np.ndarray]:
    """Return all that must not depend on kills: rows, hashes, the evaluation at the end, the best policy."""
    columns = Run.open(path).columns
    kept, attributes = (
        columns.read(name for name in columns if not name.startswith("timing/")),
        columns.attributes,
    )
    kept |= {
        name: np.array(attributes[name])
        for name in ("theta_sha256", "state_sha256", "checkpoint_generation")
    }
    policy, about = read(path / "policy.h5")
    return {**kept, "policy": policy["theta"], "policy return": np.array(about["episodic_return"])}


def rows(path: Path) -> dict[str, np.ndarray]:
    """Return the published rows, empty before the first."""
    columns = Columns(path / "metrics.h5" if (path / "metrics.h5").exists() else None)
    return columns.read(name for name in columns if name.startswith("metrics/"))


def compare(found: dict[str, np.ndarray], straight: dict[str, np.ndarray], whole: bool) -> None:
    """Raise Broken unless these are the straight run's arrays, or, unless `whole`, its first rows."""
    if whole and found.keys() != straight.keys():
        raise Broken(f"not the same arrays: {sorted(found.keys() ^ straight.keys())}")
    for name, array in found.items():
        expected = straight[name] if whole else straight[name][: len(array)]
        if (
            array.dtype != expected.dtype
            or array.shape != expected.shape
            or array.tobytes() != expected.tobytes()
        ):
            raise Broken(f"{name} differs from the straight run's")


def longer(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the longer of two readings of a run's rows. Raises Broken unless the shorter one is its beginning."""
    short, long = sorted((one, other), key=lambda found: len(found.get("metrics/generation", ())))
    compare(short, long, whole=False)
    return long


def launch(part: Part, path: Path, ranks: int, *more: str) -> Job:
    """Start or go on with the run in `path`; more: options beside the part's."""
    ours = Path(sys.executable).parent / "mpirun"
    launcher = [str(ours) if ours.exists() else "mpirun", "-n", str(ranks)]
    options = [
        *part.arguments,
        *more,
        "--budget.generations",
        str(GENERATIONS),
        "--run-dir",
        str(path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open(part.place / "output.txt", "ab") as output:
        process = subprocess.Popen(
            [*launcher, sys.executable, "-c", PROGRAM, *options],
            env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    part.starts += 1
    return Job(process, path, inode(path))


def inode(path: Path) -> int:
    """Return the inode of metrics.h5, another one at each publication; 0 where there is none."""
    try:
        return (path / "metrics.h5").stat().st_ino
    except OSError:
        return 0


def temporaries(path: Path) -> list[str]:
    """Return what is being published, by its final name; a segment as replay/."""
    return [name.partition(".tmp.")[0] for name in names(path) if ".tmp." in name] + [
        "replay/" for name in names(path / "replay") if ".tmp." in name
    ]


def names(path: Path) -> list[str]:
    """Return the names in a directory, none where there is no such directory."""
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def made(path: Path) -> int:
    """Return the number of published rows."""
    return Columns(path / "metrics.h5" if (path / "metrics.h5").exists() else None).generations


def finish(job: Job) -> None:
    """Let a run go on to its end. Raises Broken, also where it publishes nothing for PATIENCE."""
    seen, end = -1, 0.0
    while (code := job.process.poll()) is None:
        if seen != (found := inode(job.path)):
            seen, end = found, time.monotonic() + PATIENCE
        if time.monotonic() > end:
            for pid in (*family(job.process.pid), job.process.pid):
                os.kill(pid, signal.SIGKILL)
            raise Broken(f"neither ended nor published for {PATIENCE:.0f} s")
        time.sleep(0.02)
    if code:
        raise Broken(f"ended by itself with exit code {code}")
