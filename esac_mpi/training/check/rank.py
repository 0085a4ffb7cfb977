"""What one rank sees of its surroundings: cores, libraries, shared memory, and the task."""

import ctypes
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from esac_mpi import envs
from esac_mpi.comm import World, free_memory
from esac_mpi.config import Config
from esac_mpi.envs import identity, probe
from esac_mpi.host import affinity
from esac_mpi.operators import kernels
from esac_mpi.training import provenance
from esac_mpi.training.task_set_up import make_task

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ASK_THREADS = ("openblas_get_num_threads", "MKL_Get_Max_Threads", "bli_thread_get_num_threads")
DECORATED = tuple(
    f"{prefix}{name}{suffix}"
    for name in ASK_THREADS
    for prefix in ("", "scipy_")
    for suffix in ("", "64_")
)


@dataclass(frozen=True)
class Rank:
    """What one rank sees of its surroundings."""

    node: int
    host: str
    cores: list[int]
    blas: str
    kernel: str
    shared_free: int  # of /dev/shm; -1 where there is none [bytes]
    task: str  # why the task cannot be played; empty = it can
    seconds_import: float  # to import and make the task [s]
    steps_per_second: float
    physics: str  # digests of the steps
    apart: str = ""  # what to do about episodes that are not the same again; empty = they are
    cpu: str = ""
    found: probe.Probe | None = None  # what the steps told
    made: dict[str, str] = field(default_factory=dict)  # of what the task is made, on rank 0


def look(config: Config, world: World) -> tuple[envs.Env | None, Rank]:
    """Make the task and play it; return it (None if it cannot be made) and what this rank sees."""
    env = found = None
    trouble = apart = ""
    made: dict[str, str] = {}
    speed = 0.0
    start = done = time.perf_counter()
    try:
        env = make_task(config)
        done = time.perf_counter()
        found = probe.played(env)
        speed = probe.PROBE_STEPS / (time.perf_counter() - done)
        if world.rank == 0:  # after these steps, as at a start: a reset may change the model
            made = identity.identity(env)
            apart = probe.complaint(env, found.apart)[0] if found.apart else ""
    except Exception as error:  # a task is a user's own code
        trouble = f"{type(error).__name__}: {error}".splitlines()[0]
    free = free_memory()
    return env, Rank(
        node=world.node,
        host=world.hosts[world.rank],
        cores=affinity.cores(),
        blas=blas(),
        kernel=kernels.NAME,
        shared_free=-1 if free is None else free,
        task=trouble,
        seconds_import=done - start,
        steps_per_second=speed,
        physics=found.digests if found else "",
        apart=apart,
        cpu=provenance.cpu(),
        found=found,
        made=made,
    )


def blas() -> str:
    """Name numpy's BLAS library and its threads, as the library itself says if it can."""
    about = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    name = f"{about.get('name', 'BLAS')} {about.get('version', '')}".strip()
    with suppress(OSError):
        mapped = Path("/proc/self/maps").read_text().splitlines()
        for path in {line.split()[-1] for line in mapped if "/" in line}:
            if not re.search(r"blas|mkl_rt|blis", Path(path).name):
                continue
            library = ctypes.CDLL(path)
            for ask in DECORATED:
                if hasattr(library, ask):
                    return (
                        f"{name}: {getattr(library, ask)()} thread(s) a rank, as the library says"
                    )
    asked = ", ".join(f"{n}={os.environ.get(n)}" for n in THREADS)
    return f"{name}: {asked}; the library itself cannot be asked"
