"""The lines about ranks and nodes: launch, libraries, exchange, batch system."""

import importlib.metadata
import math
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from esac_mpi import envs
from esac_mpi.comm.mpi import MPI
from esac_mpi.comm.node import free_memory
from esac_mpi.comm.world import World
from esac_mpi.config import Config
from esac_mpi.envs import identity, probe
from esac_mpi.host import affinity, log, threads
from esac_mpi.host.log import duration
from esac_mpi.training import provenance
from esac_mpi.training.check.report import Line, format_ranges
from esac_mpi.training.forecast.measured import median_seconds
from esac_mpi.training.task_set_up import make_task

UNPLAYED = probe.Probe("")


@dataclass(frozen=True)
class Rank:
    """What one rank sees of its surroundings."""

    node: int
    host: str
    cores: list[int]
    blas: str
    shared_free: int  # of /dev/shm; -1 where there is none [bytes]
    task: str  # why the task cannot be played; empty = it can
    seconds_import: float  # to import and make the task [s]
    steps_per_second: float
    found: probe.Probe = UNPLAYED  # what its first steps show
    cpu: str = ""
    made: dict[str, str] = field(default_factory=dict)  # of what the task is made, on rank 0


def look(config: Config, world: World) -> tuple[envs.Env | None, Rank]:
    """Make the task and play it; return it (None if it cannot be made) and what this rank sees."""
    env, found, trouble = None, UNPLAYED, ""
    made: dict[str, str] = {}
    speed = 0.0
    start = done = time.perf_counter()
    try:
        with log.warn_on_root(world.rank):
            env = make_task(config)
            done = time.perf_counter()
            found = probe.probe(env)
        speed = probe.PROBE_STEPS / (time.perf_counter() - done)
        if world.rank == 0:  # after these steps, as at a start: a reset may change the model
            made = identity.identity(env)
    except Exception as error:  # a task is a user's own code
        trouble = f"{type(error).__name__}: {error}".splitlines()[0]
    free = free_memory()
    return env, Rank(
        node=world.node,
        host=world.hosts[world.rank],
        cores=affinity.cores(),
        blas=blas(),
        shared_free=-1 if free is None else free,
        task=trouble,
        seconds_import=done - start,
        steps_per_second=speed,
        found=found,
        cpu=provenance.cpu(),
        made=made,
    )


def blas() -> str:
    """Name numpy's BLAS library and its threads, as the library itself says if it can."""
    about = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    name = f"{about.get('name', 'BLAS')} {about.get('version', '')}".strip()
    for _, count, _ in threads.openblas():
        return f"{name}: {count()} thread(s) a rank, as the library says"
    asked = ", ".join(f"{n}={os.environ.get(n)}" for n in threads.VARIABLES)
    return f"{name}: {asked}; the library itself cannot be asked"


def launch(ranks: list[Rank], world: World) -> list[Line]:
    """Look at MPI, ranks and nodes."""
    version = importlib.metadata.version("mpi4py")
    module = os.path.basename(MPI.__file__).split(".cpython")[0]  # which tells its ABI
    lines = [
        Line("MPI", world.library.split(", package")[0]),
        Line("mpi4py", f"{version}, module {module}"),
        Line("ranks", f"{world.size} on {world.nodes} node(s)"),
    ]
    for node in range(world.nodes):
        members = [r for r, rank in enumerate(ranks) if rank.node == node]
        allowed = [ranks[r].cores for r in members]
        union = sorted(set().union(*allowed))
        fewest, most = min(map(len, allowed)), max(map(len, allowed))
        each = str(most) if fewest == most else f"{fewest}-{most}"
        cores = f"cores {format_ranges(union)}, {each} for each rank"
        found = f"{ranks[members[0]].host}: ranks {format_ranges(members)}; {cores}"
        complaints = affinity.complaints([ranks[r].host for r in members], allowed, 0)
        lines.append(Line(f"node {node}", found, shorten(complaints)))
    return lines


def shorten(complaints: Iterable[str]) -> str:
    """Join complaints without the hosts that they begin with."""
    return "; ".join(complaint.partition(": ")[2] for complaint in complaints)


def libraries(ranks: list[Rank]) -> list[Line]:
    """Look at the libraries that do the work of every rank."""
    found = sorted({rank.blas for rank in ranks})
    many = any(re.search(r"\b(?!1 )\d+ thread\(s\)", text) for text in found)
    one = "set OMP_NUM_THREADS=1 before numpy is imported"
    return [Line("BLAS", "; ".join(found), one if many else "")]


def time_left(job: str, seconds_left: float) -> Line:
    """Look at the time that is left.

    job: the batch job, "" for none. seconds_left: inf where no limit is known [s].
    """
    if seconds_left <= 0:
        remedy = "unset SLURM_JOB_END_TIME if it is another job's"
        return Line("time left", "none: a run would stop at once", remedy, True)
    where = f" of job {job}" if job else ""
    if seconds_left < math.inf:
        remedy = "ask for more time" if seconds_left < 600 else ""
        return Line("time left", f"{duration(seconds_left)}{where}", remedy)
    if job:
        remedy = "give --max-hours, or the batch system kills the run at its limit"
        return Line("time left", f"not known for job {job}", remedy)
    return Line("time left", "no limit known; --max-hours would set one")


REPEATS = 100  # exchanges timed


def exchange(world: World) -> Line:
    """Exchange, check and time the results of two members a rank; all ranks call this."""
    count = 2 * world.size
    table, _ = world.map(lambda i: np.array([i, i * i], float), count, 2)
    right = bool((table == [[i, i * i] for i in range(count)]).all())
    mapped = 1e6 * median_seconds(lambda: world.map(lambda i: np.zeros(2), count, 2), REPEATS)
    gathered = 1e6 * median_seconds(lambda: world.gather(None), REPEATS) / 2
    wrong = [r for r, answer in enumerate(world.gather(right)) if not answer]
    found = f"{count} members; medians of {REPEATS}: empty evaluation {mapped:.0f} us"
    remedy = f"wrong results on ranks {format_ranges(wrong)}: MPI is broken here" if wrong else ""
    return Line("exchange", f"{found}, allgather {gathered:.0f} us", remedy, bool(wrong))
