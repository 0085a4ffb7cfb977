"""Processes of a launcher on Linux: the tree, each one's rank, the shared memory that a killed MPI leaves behind."""

from contextlib import suppress
from pathlib import Path


def family(pid: int) -> dict[int, str]:
    """Return the processes that this one has started, and theirs, each with its rank; "" for one that is no rank."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
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
            found |= {Path(line[line.index("/dev/shm/") :]) for line in lines if "/dev/shm/" in line and "(deleted)" not in line}
    return found


def alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
