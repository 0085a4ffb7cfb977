"""What one rank sees of its surroundings: cores, libraries, shared memory, and the task as it plays there."""

import ctypes
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from esac_mpi import affinity, envs, kernels, set_up
from esac_mpi.comm import World, free_memory
from esac_mpi.config import Config
from esac_mpi.envs import probe

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ASK_THREADS = ("openblas_get_num_threads", "MKL_Get_Max_Threads", "bli_thread_get_num_threads")
DECORATED = tuple(f"{prefix}{name}{suffix}" for name in ASK_THREADS for prefix in ("", "scipy_") for suffix in ("", "64_"))


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


def look(config: Config, world: World) -> tuple[envs.Env | None, Rank]:
    """Make the task and play it; return it (None if it cannot be made) and what this rank sees."""
    env, trouble, digest, apart, start = None, "", "", "", time.perf_counter()
    played = made = start
    try:
        env = set_up.make_task(config)
        made = time.perf_counter()
        found = probe.probe(env)
        played, digest = time.perf_counter(), found.digests
        apart = probe.complaint(env, found.apart)[0] if found.apart and world.rank == 0 else ""
    except Exception as error:  # a task is a user's own code
        trouble = f"{type(error).__name__}: {error}".splitlines()[0]
    speed = probe.PROBE_STEPS / (played - made) if digest else 0.0
    host = world.hosts[world.rank]
    cores = affinity.cores()
    return env, Rank(world.node, host, cores, blas(), kernels.NAME, shared_free(), trouble, made - start, speed, digest, apart)


def blas() -> str:
    """Return the BLAS library that numpy loaded and its threads, asked of the library itself where it can be."""
    about = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    name = f"{about.get('name', 'BLAS')} {about.get('version', '')}".strip()
    with suppress(OSError):
        for path in {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}:
            if not re.search(r"blas|mkl_rt|blis", Path(path).name):
                continue
            library = ctypes.CDLL(path)
            threads = [getattr(library, ask)() for ask in DECORATED if hasattr(library, ask)]
            if threads:
                return f"{name}: {threads[0]} thread(s) a rank, as the library says"
    return f"{name}: {', '.join(f'{n}={os.environ.get(n)}' for n in THREADS)}; the library itself cannot be asked"


def shared_free() -> int:
    """Return the free bytes of /dev/shm, -1 where there is none."""
    free = free_memory()
    return -1 if free is None else free
