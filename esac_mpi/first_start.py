"""What a configuration leaves to the machine of a run's first start: "auto"."""

from contextlib import suppress
from pathlib import Path

from esac_mpi import learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import Config, ConfigError, read_toml, updated
from esac_mpi.directory import CONFIG


def settled(config: Config, run_directory: Path, fresh: bool) -> Config:
    """Settle it: as the run has it that is gone on with, or else by this machine. Rank 0 alone."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    if learning is None or config.learner.kernels != "auto":
        return config
    with suppress(OSError, ConfigError):  # of no run, or of one that cannot be gone on with
        if not fresh:
            before = updated(Config(), read_toml(run_directory / CONFIG)).learner.kernels
            return updated(config, {"learner.kernels": before})
    return learners.settled(config, learning.learner(config))
