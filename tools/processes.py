"""Processes on Linux: their tree and ranks, an end in time."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import esac_mpi

ROOT = Path(esac_mpi.__file__).parents[1]  # where the program is imported from
PATIENCE = 5.0  # for what has been killed to be gone [s]


def environ(**more: str) -> dict[str, str]:
    """Return the environment of a program that finds this one, and what else is to be in it."""
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {**os.environ, **more, "PYTHONPATH": path}


def family(pid: int) -> dict[int, str]:
    """Return the processes that this one has started, and theirs, each with its rank or ""."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(
                int(stat.parent.name)
            )
    found, ahead = {}, [pid]
    while ahead:
        for child in parents.get(ahead.pop(), []):
            found[child] = rank_of(child)
            ahead.append(child)
    return found


def rank_of(pid: int) -> str:
    """Return the rank that the launcher gave a process."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.decode(errors="replace").partition("=")
            if name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK"):
                return value
    return ""


def shared_files(pids: list[int]) -> set[Path]:
    """Return the files in /dev/shm that these processes have mapped."""
    found = set()
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
            found |= {
                Path(line[line.index("/dev/shm/") :])
                for line in lines
                if "/dev/shm/" in line and "(deleted)" not in line
            }
    return found


def alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def follow(
    line: Sequence[object],
    seconds: float | None,
    hear: Callable[[str], object],
    environ: Mapping[str, str],
) -> int | None:
    """Run a program, for so long at most; let `hear` have each line that it prints, at once.

    Returns its exit code, None if it had to be ended.
    """
    process = subprocess.Popen(
        [str(word) for word in line], env=environ, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    )  # fmt: skip

    def read() -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for printed in lines:
                hear(printed.rstrip("\n"))

    reader = Thread(target=read, daemon=True)  # who does not end keeps its output open
    reader.start()
    code = None
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if code is None:
            end(process)
        reader.join(PATIENCE)
    return code


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process and all that it has started, and remove the shared memory they leave."""
    pids = [process.pid, *family(process.pid)]  # a launcher's ranks are in sessions of their own
    left = shared_files(pids)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # a driver that hangs does not let go of it
        process.wait(PATIENCE)
    until = time.monotonic() + PATIENCE
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    for path in left:
        path.unlink(missing_ok=True)
