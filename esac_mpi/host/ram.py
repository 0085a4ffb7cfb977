"""The memory this process may use: the physical one, or less where a control group limits it."""

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

GIB = 2**30
# of a control group, by version: limit, use, and memory.stat's line of what can be dropped
FILES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def total(root: Path = Path("/")) -> int:
    """Return the memory that this process may use at most [bytes]."""
    limits = [limit for limit, _ in _limits(root)]
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(min([_meminfo("MemTotal", root) or physical, *limits]))


def free(root: Path = Path("/")) -> int:
    """Measure what is left of it, with what the system would give back [bytes]."""
    left = [limit - used for limit, used in _limits(root)]
    return int(max(0, min([_meminfo("MemAvailable", root) or total(root), *left])))


def size(count: float) -> str:
    """Return bytes as a person reads them."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"


def two_digits(count: int) -> int:
    """Round what fits, 1 or more, down to two digits."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return count // unit * unit


def _meminfo(name: str, root: Path) -> int:
    """Return an entry of /proc/meminfo [bytes]; 0 where there is none."""
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    return 0


def _limits(root: Path) -> Iterator[tuple[float, float]]:
    """Yield (limit, use) of the control groups that this process is in [bytes]."""
    for folder, version in _groups(root):
        limit, used, droppable = FILES[version]
        with suppress(OSError, ValueError):
            most = (folder / limit).read_text().strip()
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            use = int((folder / used).read_text()) - int(stat.get(droppable, 0))
            yield math.inf if most == "max" else int(most), use


def _groups(root: Path) -> Iterator[tuple[Path, int]]:
    """Yield this process's memory control groups, from its own up: folder and version."""
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            base = root / "sys/fs/cgroup" / ("memory" if controllers else "")
            for folder in (base / path.lstrip("/"), *(base / path.lstrip("/")).parents):
                yield folder, 1 if controllers else 2
                if folder == base:
                    break
