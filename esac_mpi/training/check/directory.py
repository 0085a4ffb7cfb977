"""The lines about the run directory: space, speed, names, locks, and whether all nodes see it."""

import errno
import fcntl
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esac_mpi.comm.world import World
from esac_mpi.host.ram import GIB, size
from esac_mpi.host.run_directory import sees
from esac_mpi.training.check.report import Line

WRITTEN = 64 * 2**20  # size of the file that the directory's speed is measured with [bytes]
SLOW = 20e6  # a directory slower than this gets a remark [bytes/s]


@dataclass(frozen=True)
class Seen:
    """What one rank sees of rank 0's probe directory; None = it does not take part."""

    token: bool | None
    locked: bool | None  # whether the lock that rank 0 holds was refused to it


def look(path: Path, world: World) -> list[Line]:
    """Try the run directory, or its place: rank 0 writes, others look. All ranks call this.

    Returns the lines, on rank 0.
    """
    probe = Probe(path) if world.rank == 0 else None
    where = world.from_root(probe.open() if probe else None)
    try:
        seen = world.gather(look_from_elsewhere(where, world) if where else Seen(None, None))
        return [] if probe is None else [*probe.lines, *visible(seen, world.hosts, probe)]
    finally:
        if probe:
            probe.close()


def look_from_elsewhere(where: tuple[Path, bytes], world: World) -> Seen:
    """Read rank 0's token, once a node, and try its lock, on the last rank."""
    folder, token = where
    read = sees(folder / "token", token, world.clock) if world.local == 0 else None
    tries = world.rank == world.size - 1 > 0
    return Seen(read, is_locked(folder / "lock") if tries else None)


def is_locked(path: Path) -> bool | None:
    """Tell whether another process holds the lock; None if the file cannot be opened."""
    try:
        with open(path, "r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except PermissionError as error:
        return True if error.errno == errno.EACCES and path.exists() else None
    except OSError:
        return None
    return False


def visible(seen: list[Seen], hosts: list[str], probe: "Probe") -> list[Line]:
    """Look at what other ranks saw of the probe directory."""
    if probe.folder is None:
        return []
    readers = sum(found.token is not None for found in seen)
    blind = [r for r, found in enumerate(seen) if found.token is False]
    where = ", ".join(sorted({hosts[r] for r in blind}))
    remedy = f"not seen from {where}: choose a --run-dir on a file system that all nodes share"
    found = f"token read on {readers - len(blind)} of {readers} node(s)"
    return [
        Line("all nodes", found, remedy if blind else "", bool(blind)),
        locks(seen[-1].locked, len(seen) - 1, hosts[-1], probe.no_lock),
    ]


def locks(refused: bool | None, rank: int, host: str, no_lock: str) -> Line:
    """Look at locks. refused: whether the last rank was; no_lock: why rank 0 holds none."""
    if no_lock:
        remedy = "start no second run in this directory: nothing would stop it"
        return Line("locks", f"none here: {no_lock}", remedy)
    if rank == 0:
        return Line("locks", "taken; whether another process is refused, two ranks can tell")
    if refused is None:
        unseen = f"taken; rank {rank} on {host} cannot open the file"
        return Line("locks", unseen, "see the line above")
    if refused:
        return Line("locks", f"taken; refused to rank {rank} on {host}")
    remedy = "start no second run of this directory on another node: its lock is not seen there"
    return Line("locks", f"taken; given as well to rank {rank} on {host}", remedy)


def is_there(path: Path) -> bool:
    """Tell whether something stands at a path, as far as this user can tell."""
    try:
        return path.exists()
    except OSError:
        return False


class Probe:
    """A temporary directory of rank 0's where the run directory is or will be."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.place = next(p for p in (self.path, *self.path.parents) if is_there(p))
        self.folder: Path | None = None
        self.lines: list[Line] = []
        self.no_lock = ""  # why no lock is held
        self._lock: Any = None

    def open(self) -> tuple[Path, bytes] | None:
        """Try to write; return the directory and the token in it, None if that fails."""
        found = f"{self.path}"
        if self.place != self.path:
            found += f" (to be made; tried in {self.place})"
        token = os.urandom(8)
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=".esac_mpi-check-", dir=self.place))
            self.folder.chmod(0o755)
            (self.folder / "token").write_bytes(token)
            self.lines = [Line("directory", found), *self._space(), *self._names()]
            self._take_lock()
        except OSError as error:
            self.close()
            remedy = f"{error.strerror}: choose another --run-dir"
            self.lines = [Line("directory", found, remedy, True)]
            return None
        return self.folder, token

    def _space(self) -> list[Line]:
        """Write, sync and remove a file; return the lines about space and speed."""
        assert self.folder is not None
        free, chunk = shutil.disk_usage(self.folder).free, os.urandom(2**20)
        start = time.perf_counter()
        with open(self.folder / "large", "wb") as file:
            for _ in range(WRITTEN // len(chunk)):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        speed = WRITTEN / (time.perf_counter() - start)
        (self.folder / "large").unlink()
        little = "" if free > GIB else "little: checkpoints and the replay may not fit"
        slow = "slow: a checkpoint with its replay takes long here; is there a faster file system?"
        rate = f"{speed / 1e6:,.0f} MB/s ({size(WRITTEN)} written and synced)"
        return [
            Line("free space", size(free), little),
            Line("writing", rate, slow if speed < SLOW else ""),
        ]

    def _names(self) -> list[Line]:
        """Rename a file over another, and give one a second name, as checkpoints do."""
        assert self.folder is not None
        old, new = self.folder / "old", self.folder / "new"
        old.write_text("old")
        new.write_text("new")
        os.replace(new, old)
        renamed = Line("rename", "replaces a file")
        if old.read_text() != "new":
            renamed = Line("rename", "does not replace", "?", True)
        try:
            os.link(old, new)
        except OSError as error:
            return [renamed, Line("hard link", f"none here: {error.strerror}; renames are used")]
        return [renamed, Line("hard link", "gives a file a second name")]

    def _take_lock(self) -> None:
        """Hold a lock on a file of the probe directory."""
        assert self.folder is not None
        self._lock = open(self.folder / "lock", "w+b")  # noqa: SIM115
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.no_lock = error.strerror or "no reason given"

    def close(self) -> None:
        """Remove the probe directory."""
        if self._lock is not None:
            self._lock.close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None
