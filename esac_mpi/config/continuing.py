"""Which fields may differ between a run and its continuation."""

from typing import Any

from esac_mpi.config.fields import flatten
from esac_mpi.config.reads import unread
from esac_mpi.config.whole import Config

# may differ between a run and its continuation
FREE = {"run_dir", "max_hours", "task.changed", "budget", "checkpoint", "stop", "display"}
WARN = {"learner.device", "learner.kernels"}  # may differ, with a warning


def differences(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
    """Return {name: (old, new)} of the fields that decide a run's results; what neither run reads decides nothing."""
    pairs = zip(flatten(old), flatten(new), strict=True)
    found = {
        name: (a, b)
        for (name, a), (_, b) in pairs
        if a != b and not {name, name.split(".")[0]} & FREE
    }
    idle = unread(old, found).keys() & unread(new, found).keys()
    return {name: pair for name, pair in found.items() if name not in idle}
