"""Settings that are "auto" until a run's first start, whose ranks decide them.

From then on they are settings like any other: the bits depend on them, and not on the ranks.
"""

from typing import Any

from esac_mpi.config.bounds import AUTO
from esac_mpi.config.fields import amend, flatten, hint, takes_auto, value_of
from esac_mpi.config.presets import ARRIVALS
from esac_mpi.config.reads import find_unread
from esac_mpi.config.run import NARROW
from esac_mpi.config.whole import Config, table_of

LEAST = 28  # members of a population; what the defaults were tuned with, for seven workers


def automatic(config: Config) -> list[str]:
    """Name the fields that are "auto" and that a run of this configuration reads."""
    names = _unresolved(config)
    idle = find_unread(config, names)
    return [name for name in names if name not in idle]


def resolve_on_ranks(config: Config, ranks: int, run: Config | None = None) -> dict[str, Any]:
    """Resolve workers and their population by the first start's ranks: {dotted name: value}.

    run: the settings of the run that goes on, which keeps its own, also of what was measured.
    """
    names, table = automatic(config), table_of(config.algorithm)
    kept = {name: value_of(run, name) for name in names} if run else {}
    found = {name: value for name, value in kept.items() if value != AUTO}
    name, workers = f"{table}.workers", max(1, ranks - 1)
    if name in names:
        workers = found.setdefault(name, workers)
    elif hasattr(config.own, "workers") and not find_unread(config, [name]):
        workers = config.own.workers
    if (size := f"{table}.population_size") in names:
        found.setdefault(size, -(-LEAST // (2 * workers)) * 2 * workers)
    if ARRIVALS.startswith(f"{table}.") and name in names and ARRIVALS not in (config.said or ()):
        found[ARRIVALS] = max(workers, config.aes_rl.arrivals_per_generation)
    return found


def estimate(config: Config, population: int = LEAST) -> Config:
    """Put some number in the place of all that is "auto"; population: of members."""
    values: dict[str, Any] = {
        name: population if name.endswith("population_size") else hint(name)(1)
        for name in _unresolved(config)
    }
    if config.learner.kernels == AUTO:
        values["learner.kernels"] = "torch"
    if config.policy.hidden == AUTO:
        values["policy.hidden"] = NARROW
    return amend(config, values)


def _unresolved(config: Config) -> list[str]:
    return [name for name, value in flatten(config) if value == AUTO and takes_auto(name)]
