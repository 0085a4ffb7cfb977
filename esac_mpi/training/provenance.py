"""Where a result comes from: machine, versions, commit; whether nodes compute the same bits."""

import os
import platform
import shlex
import sys
import time
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from esac_mpi import __version__
from esac_mpi.algorithms import POINTS
from esac_mpi.comm.contracts import World
from esac_mpi.envs import Env, identity, probe
from esac_mpi.host import affinity, log
from esac_mpi.operators import kernels

Seen = tuple[str, str, str]  # of a rank: host, CPU and what the task's first steps told (digests)
KERNELS = (  # variables by which libraries take other kernels than the CPU's, of other bits
    "OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "MKL_CBWR",
    "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "NPY_DISABLE_CPU_FEATURES",
)  # fmt: skip


def gather(
    env: Env, found: probe.Probe, world: World, threads: int, command: list[str], algorithm: str
) -> dict[str, Any]:
    """Gather the provenance; warn of different bits, too few cores, or episodes not repeated.

    found: what the task's first steps told this rank. threads: the learner's; 0 = none.
    """
    made = identity.identity(env) if world.rank == 0 else {}
    mine = {"cpu": cpu(), "versions": versions(algorithm, ()), "physics": found.digests}
    everyone = world.gather({**mine, "cores": affinity.cores()})
    if world.rank == 0:
        first = world.hosts[0]
        places = [host if host != first else f"rank {r}" for r, host in enumerate(world.hosts)]
        for what in mine:
            differ = [one[what] != everyone[0][what] for one in everyone]
            if odd := sorted({p for p, other in zip(places, differ, strict=True) if other}):
                depend = "results depend on who evaluates what"
                log.warn(f"{what} of {', '.join(odd)} differs from rank 0's on {first}: {depend}")
        warnings = affinity.complaints(world.hosts, [one["cores"] for one in everyone], threads)
        for warning in filter(None, (*warnings, found.not_finite, found.apart)):
            log.warn(warning)
    pairs = zip(world.hosts, everyone, strict=True)
    ranks = [(host, one["cpu"], one["physics"]) for host, one in pairs]
    return {
        "command": shlex.join(command),
        "git_commit": git_commit(),
        "mpi": world.library,
        "ranks": world.size,
        "nodes": world.nodes,
        "hosts": ", ".join(sorted(set(world.hosts))),
        "kernel": kernels.NAME,
        "platform": platform.platform(),
        "probe_steps": probe.PROBE_STEPS * world.size,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **gather_compared(env, made, found, ranks, algorithm),
    }


def gather_compared(
    env: Env, made: dict[str, str], found: probe.Probe, ranks: list[Seen], algorithm: str
) -> dict[str, str]:
    """Gather what decides whether a run goes on: the machine and, where `made` tells, the task.

    Of the task what the next process would find otherwise is empty.
    """
    alike = len({digests for host, _, digests in ranks if host == ranks[0][0]}) == 1
    machine = {
        "cpu": "; ".join(sorted({cpu for _, cpu, _ in ranks})),
        "python": platform.python_version(),
        "versions": versions(algorithm),
    }
    if not made:
        return machine
    same = alike and not found.apart
    # some draw their model anew
    kept = alike and (same or identity.model(getattr(env, "layers", [])) == made["model"])
    return {
        **machine,
        "task_source": made["source"],
        "task_wrappers": made["wrappers"],
        "task_model": made["model"] if kept else "",
        "task_probe": found.digests if same else "",
        "task_changes": "",  # a resumed run knows better
    }


def cpu() -> str:
    """Name the CPU, a digest of its instruction sets and what libraries are told of it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    pairs = (line.partition(":") for line in lines)
    named = {key.strip(): value.strip() for key, _, value in pairs}
    flags = " ".join(sorted(named.get("flags", "").split()))
    sets = sha256(flags.encode()).hexdigest()[:8]
    name = f"{named.get('model name', platform.processor())} (instruction sets {sets})"
    told = (f"{name}={os.environ[name]}" for name in KERNELS if os.environ.get(name))
    return ", ".join([name, *told])


def versions(algorithm: str = "", own: Iterable[str] = ("stable_baselines3",)) -> str:
    """Name the versions that bits depend on, that of an installed algorithm's package among them.

    own: packages named only where they are loaded.
    """
    packages = ["numpy", "torch", "gymnasium", "mujoco", "dm_control", "h5py", "mpi4py"]
    packages += [name for name in own if name in sys.modules]
    if algorithm in POINTS and (package := POINTS[algorithm].dist):
        packages.append(package.name)
    found = (f"{name} {version(name)}" for name in packages if version(name))
    return ", ".join([f"esac_mpi {__version__}", *found])


@cache
def version(package: str) -> str:
    """Read the version of what was imported; "" for what was loaded without being installed."""
    return next((found.version for found in metadata.distributions(name=package)), "")


def git_commit(checkout: Path = Path(__file__).parents[2]) -> str:
    """Read a checkout's or worktree's commit; no child process may be forked after MPI began."""
    folder = checkout / ".git"
    try:
        if folder.is_file():  # a worktree: "gitdir: PATH"
            folder = checkout / _words(folder).removeprefix("gitdir: ")
        head = _words(folder / "HEAD")
        if not head.startswith("ref: "):
            return head
        name, pointer = head.removeprefix("ref: "), folder / "commondir"
        refs = folder / _words(pointer) if pointer.exists() else folder
        if (refs / name).exists():
            return _words(refs / name)
        packed = _words(refs / "packed-refs").splitlines()
        return next(line.split()[0] for line in packed if line.endswith(f" {name}"))
    except (OSError, StopIteration):
        return "unknown"


def _words(file: Path) -> str:
    """Read a file of git's, whose names are in any encoding."""
    return os.fsdecode(file.read_bytes()).strip()
