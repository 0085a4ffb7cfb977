"""The lines about the run directory: space, speed, and whether all nodes see it."""

import os
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from esac_mpi.comm.world import World
from esac_mpi.host.ram import GIB, size
from esac_mpi.host.run_directory import is_there
from esac_mpi.training.active_run import blind_hosts
from esac_mpi.training.check.report import Line

WRITTEN = 64 * 2**20  # size of the file that the directory's speed is measured with [bytes]
SLOW = 20e6  # a directory slower than this gets a remark [bytes/s]


def look(path: Path, world: World) -> list[Line]:
    """Try the run directory, or its place: rank 0 writes, others look. All ranks call this.

    Returns the lines, on rank 0.
    """
    file, token, lines = None, os.urandom(8), list[Line]()
    with ExitStack() as made:
        if world.rank == 0:
            file, lines = make(path.absolute(), token, made)
        if not world.from_root(file is not None):
            return lines
        blind = blind_hosts(world, (file, token) if file else None)
    where = f"not seen from {', '.join(blind)}"
    remedy = f"{where}: choose a --run-dir on a file system that all nodes share"
    found = f"token read on {world.nodes - len(blind)} of {world.nodes} node(s)"
    return [*lines, Line("all nodes", found, remedy if blind else "", bool(blind))]


def make(path: Path, token: bytes, made: ExitStack) -> tuple[Path | None, list[Line]]:
    """Make a temporary directory with a token where the run directory is or will be.

    Returns the token's file, None if that fails; the lines say why. `made` removes all again.
    """
    place = next(p for p in (path, *path.parents) if is_there(p))
    found = f"{path}"
    if place != path:
        found += f" (to be made; tried in {place})"
    try:
        temporary = tempfile.TemporaryDirectory(
            prefix=".esac_mpi-check-", dir=place, ignore_cleanup_errors=True
        )
        folder = Path(made.enter_context(temporary))
        folder.chmod(0o755)
        (folder / "token").write_bytes(token)
        return folder / "token", [Line("directory", found), *space(folder)]
    except OSError as error:
        return None, [Line("directory", found, f"{error.strerror}: choose another --run-dir", True)]


def space(folder: Path) -> list[Line]:
    """Write, sync and remove a file, where there is room; return the lines on space and speed."""
    free, chunk = shutil.disk_usage(folder).free, os.urandom(2**20)
    little = "" if free > GIB else "little: checkpoints and the replay may not fit"
    room = Line("free space", size(free), little)
    if free < 2 * WRITTEN:  # which may be the last that other runs have
        return [room]
    start = time.perf_counter()
    with open(folder / "large", "wb") as file:
        for _ in range(WRITTEN // len(chunk)):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    speed = WRITTEN / (time.perf_counter() - start)
    (folder / "large").unlink()
    slow = "slow: a checkpoint with its replay takes long here; is there a faster file system?"
    rate = f"{speed / 1e6:,.0f} MB/s ({size(WRITTEN)} written and synced)"
    return [room, Line("writing", rate, slow if speed < SLOW else "")]
