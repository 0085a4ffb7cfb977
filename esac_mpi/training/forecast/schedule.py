"""ESAC's phases on the virtual clock: `workers` and `update_cost` for these ranks, as measured."""

from dataclasses import dataclass, replace

from esac_mpi.algorithms import ALGORITHMS, esac_phase
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.config import NAMES, Config, updated
from esac_mpi.config.fields import value_of
from esac_mpi.training.forecast.outlook import outlook
from esac_mpi.training.forecast.populations import Phases

FAR = 1.5  # times too small or too large, from which on a cost is worth a remark


@dataclass(frozen=True)
class Schedule:
    """Settings with which a phase enters about when it has ended."""

    workers: int
    update_cost: float  # [environment steps]

    def settings(self) -> dict[str, object]:
        """Name the settings."""
        return {"esac.workers": self.workers, "esac.update_cost": self.update_cost}

    def words(self) -> str:
        """Format the settings for the command line."""
        return f"--esac.workers {self.workers} --esac.update_cost {self.update_cost:g}"


def has_phases(config: Config) -> bool:
    """Tell whether phases of a learner run beside a population and their timing is a setting."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    timed = f"{config.algorithm}.phase_timing" in NAMES
    return timed and learning is not None and learning.interval(config) > 0


def is_by_interval(config: Config) -> bool:
    """Tell whether phases come every so many generations."""
    return has_phases(config) and value_of(config, f"{config.algorithm}.phase_timing") == "interval"


def can_be(config: Config, on: Cluster) -> bool:
    """Tell whether phases with updates may run on the virtual clock, beside other ranks."""
    if not has_phases(config) or on.ranks == 1:
        return False
    return config.esac.sac_min_steps > 0 and config.sac.updates_per_step > 0


def remark_at_start(config: Config, ranks: int) -> str:
    """Say so where phases are timed for other ranks than there are."""
    esac, workers = config.esac, ranks - 1
    timed = has_phases(config) and esac_phase.timed(esac)
    if not workers or not timed or esac.workers == workers:
        return ""
    said = f"phases are timed for {esac.workers} rank(s) beside the learner's, here are {workers}"
    return f"{said}; a run begun anew could have --fresh --esac.workers {workers}"


def fitting(config: Config, pieces: Pieces, on: Cluster) -> Schedule:
    """Find the schedule that fits, where there can be one.

    A step of that clock takes what one takes in a generation of all ranks but the learner's, all
    else of it counted in; a phase has `sac_min_steps` of them, and `update_cost` for each update.
    Raises Unforeseen.
    """
    workers = on.ranks - 1
    alone = {
        "esac.phase_timing": "virtual",
        "esac.workers": workers,
        "esac.resimulated": "none",
        "esac.transfer": "off",
    }
    plain = updated(config, alone)  # what passes has steps of its own on the clock
    phases, esac = Phases(plain, pieces), plain.esac
    idle = replace(pieces, playing=0.0, updating=0.0)  # a learner that takes no time
    generation = outlook(plain, idle, replace(on, ranks=workers)).generation
    step = generation / esac_phase.duration(esac, phases.found)
    updates = esac.sac_min_steps * config.sac.updates_per_step
    cost = max(0.0, phases.phase.seconds / step - esac.sac_min_steps) / updates
    return Schedule(workers, digits(cost))


def remark(config: Config, fits: Schedule) -> str:
    """Say that a run's virtual clock is far from what fits; empty where it is not."""
    esac = config.esac
    near = esac.update_cost <= FAR * fits.update_cost and fits.update_cost <= FAR * esac.update_cost
    if near and esac.workers == fits.workers:
        return ""
    own = f"{esac.workers} worker(s) and updates of {esac.update_cost:g} steps"
    return f"phases are timed for {own}; {fits.words()} would fit here"


def digits(cost: float) -> float:
    """Round to two digits."""
    return float(f"{cost:.2g}")
