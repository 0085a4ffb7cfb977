"""ESAC's phases on the virtual clock: what `workers` and `update_cost` are on these ranks, by what was measured."""

from dataclasses import dataclass, replace

from esac_mpi.algorithms import esac_phase
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.config import ESAC, Config, updated
from esac_mpi.training.forecast.outlook import outlook
from esac_mpi.training.forecast.populations import Phases

FAR = 1.5  # times too small or too large, from which on a cost is worth a remark


@dataclass(frozen=True)
class Schedule:
    """Settings with which a phase enters about when it has ended."""

    workers: int
    update_cost: float  # [environment steps]

    def words(self) -> str:
        """Return the settings as words of a command line."""
        return f"--esac.workers {self.workers} --esac.update_cost {self.update_cost:g}"

    def settings(self) -> dict[str, object]:
        """Return the settings by their names."""
        return {"esac.workers": self.workers, "esac.update_cost": self.update_cost}


def can_be(config: Config, on: Cluster) -> bool:
    """Return whether phases with updates may run on the virtual clock, beside the ranks that evaluate."""
    esac = config.own
    if not isinstance(esac, ESAC) or not esac.sac_phases or on.ranks == 1:
        return False
    return esac.sac_min_steps > 0 and config.sac.updates_per_step > 0


def told_at_start(config: Config, ranks: int) -> str:
    """Return what to say of phases that are timed for other ranks than there are beside the learner's, if they are."""
    esac, workers = config.own, ranks - 1
    if (
        not workers
        or not isinstance(esac, ESAC)
        or not esac_phase.timed(esac)
        or esac.workers == workers
    ):
        return ""
    told = f"phases are timed for {esac.workers} rank(s) beside the learner's, here are {workers}; a run begun anew could have"
    return f"{told} --fresh --esac.workers {workers}"


def fitting(config: Config, pieces: Pieces, on: Cluster) -> Schedule:
    """Return the schedule that fits, where there can be one.

    A step of that clock takes what one takes in a generation of all ranks but the learner's, all else of it counted in;
    a phase has `sac_min_steps` of them, and `update_cost` for each update. Raises Unforeseen.
    """
    workers = on.ranks - 1
    alone = {
        "esac.phase_timing": "virtual",
        "esac.workers": workers,
        "esac.replayed": "none",
        "esac.adoption": "off",
    }
    plain = updated(config, alone)  # what passes has steps of its own on the clock
    phases, esac = Phases(plain, pieces), plain.esac
    idle = replace(pieces, playing=0.0, updating=0.0)  # a learner that takes no time
    step = outlook(plain, idle, replace(on, ranks=workers)).generation / esac_phase.duration(
        esac, phases.found
    )
    own, updates = esac.sac_min_steps, esac.sac_min_steps * config.sac.updates_per_step
    cost = max(0.0, phases.phase.seconds / step - own) / updates
    return Schedule(workers, float(f"{cost:.2g}"))


def remark(config: Config, fits: Schedule) -> str:
    """Return what to say of a run whose virtual clock is far from what fits; empty where it is not."""
    esac = config.esac
    near = esac.update_cost <= FAR * fits.update_cost and fits.update_cost <= FAR * esac.update_cost
    if near and esac.workers == fits.workers:
        return ""
    own = f"{esac.workers} worker(s) and updates of {esac.update_cost:g} steps"
    return f"phases are timed for {own}; {fits.words()} would fit here"
