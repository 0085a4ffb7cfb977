"""Where a result comes from: the machine, the versions, the commit."""

import platform
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from esac_mpi import __version__


def cpu() -> str:
    """Return the CPU's name and a digest of its instruction sets."""
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines() if Path("/proc/cpuinfo").exists() else []
    named = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = " ".join(sorted(named.get("flags", "").split()))
    return f"{named.get('model name', platform.processor())} (instruction sets {sha256(flags.encode()).hexdigest()[:8]})"


def versions() -> str:
    """Return the versions that bits depend on."""
    packages = ("numpy", "torch", "gymnasium", "mujoco", "dm_control", "h5py", "mpi4py")
    return ", ".join([f"esac_mpi {__version__}", *(f"{name} {version(name)}" for name in packages)])


def git_commit() -> str:
    """Return the commit this package runs from, without a child process (none may be forked after MPI has started)."""
    folder = Path(__file__).parent.parent / ".git"
    try:
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head[5:]
        if (folder / name).exists():
            return (folder / name).read_text().strip()
        packed = (folder / "packed-refs").read_text().splitlines()
        return next(line.split()[0] for line in packed if line.endswith(name))
    except (OSError, StopIteration):
        return "unknown"
