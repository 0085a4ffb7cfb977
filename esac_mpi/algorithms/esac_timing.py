"""When ESAC's SAC phases begin and end (Algorithm 1, line 12), and how long they are."""

import math

import numpy as np

from esac_mpi import config as configuration
from esac_mpi.algorithms.esac_state import InFlight
from esac_mpi.operators import noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.play.population import Population

FILLED = 0.9  # of a generation, by a continuous phase: the next one may be a little shorter


def has_lag(esac: configuration.ESAC) -> bool:
    """Tell whether phases run in parallel to the evaluation, in an environment of their own."""
    return esac.sac_phases and (is_virtual(esac) or esac.learner_lag > 0)


def is_virtual(esac: configuration.ESAC) -> bool:
    """Tell whether phases follow one another on the virtual clock."""
    return esac.sac_phases and esac.phase_timing != "interval"


def resimulated(esac: configuration.ESAC) -> int:
    """Count the members whose episodes a phase resimulates, where as many have a finite return."""
    if not esac.sac_phases or esac.resimulated == "none":
        return 0
    return min(esac.resimulated_members, configuration.members(esac))


def reserve(config: configuration.Config, horizon: int) -> int:
    """Count the transitions that a SAC phase adds at most; horizon: of an episode [steps]."""
    esac = config.esac
    again = resimulated(esac) * esac.fitness_episodes * horizon
    if is_virtual(esac):
        return most_steps(config, horizon) + again
    return max(esac.sac_episodes * horizon, esac.sac_min_steps + horizon) + again


def cut(config: configuration.Config, horizon: int) -> tuple[str, int]:
    """Name the setting that cuts the learner's episodes, and the most steps of one."""
    return (
        ("esac.sac_min_steps", most_steps(config, horizon)) if is_virtual(config.esac) else ("", 0)
    )


def most_added(config: configuration.Config, horizon: int) -> float:
    """Count the transitions a run of this budget adds to SAC's replay at most; inf = no limit."""
    esac, (generations, env_steps, nominal) = config.esac, config.budget.limits
    if config.start_from:
        return math.inf  # beside what it begins with
    if not esac.sac_phases:
        return 0.0
    phase = reserve(config, horizon)
    interval = esac.gradient_interval if esac.phase_timing == "interval" else 1
    # what is counted at the end of a phase, and the next one, begun in the same generation
    in_flight = 2 * phase
    return min(min(generations, nominal / horizon + 1) * phase / interval, env_steps + in_flight)


def own_steps(config: configuration.Config, lasted: float, played: int) -> int:
    """Count the learner's own steps of a phase; the least, where it plays whole episodes.

    lasted: the generation before it [virtual steps]. played: steps that it resimulates.
    """
    least = config.esac.sac_min_steps
    if config.esac.phase_timing != "continuous":
        return least
    return max(least, int((FILLED * lasted - played) / virtual_step(config)))


def most_steps(config: configuration.Config, horizon: int) -> int:
    """Count the learner's own steps of a phase on the virtual clock, at most: a hard bound."""
    esac = config.esac
    played = configuration.members(esac) * esac.fitness_episodes * horizon
    trials = 2 * esac.transfer_episodes * horizon if esac.transfer == "tested" else 0
    # rounded as `evaluation_time` is, lest an equal one be less
    longest = max(float(esac.fitness_episodes * horizon), (played + trials) / esac.workers)
    return own_steps(config, longest, 0)


def phase_duration(config: configuration.Config, own: int, played: int) -> float:
    """Compute how long a phase lasts [virtual steps]. own: the learner's steps; as `own_steps`."""
    return own * virtual_step(config) + float(played)


def time_left(esac: configuration.ESAC, flight: InFlight, found: Population) -> float:
    """Compute the time left of the phase in flight after a generation [virtual steps]."""
    return max(0.0, flight.phase_left - evaluation_time(esac, found))


def virtual_step(config: configuration.Config) -> float:
    """Compute how long one of the learner's own steps takes, its updates too [virtual steps]."""
    return 1 + config.esac.update_cost * config.sac.updates_per_step


def evaluation_time(esac: configuration.ESAC, found: Population) -> float:
    """Compute the least time of `workers` ranks to evaluate a population [virtual steps]."""
    return max(
        float(found.length.max()), (int(found.length.sum()) + found.trial_steps) / esac.workers
    )


def may_begin(esac: configuration.ESAC, flight: InFlight, k: int, ended: bool) -> bool:
    """Tell whether a phase may begin; ended: the one in flight ends in k. Algorithm 1, line 12."""
    if not esac.sac_phases or (flight.phase_begun and not ended):
        return False
    return esac.phase_timing != "interval" or k % esac.gradient_interval == 0


def phase_ends(esac: configuration.ESAC, flight: InFlight, k: int, found: Population) -> bool:
    """Tell whether the phase in flight, if there is one, ends in generation k."""
    if not flight.phase_begun:
        return False
    if esac.phase_timing == "interval":
        return k == flight.phase_begun + esac.learner_lag
    return flight.phase_left <= evaluation_time(esac, found)


def gate_opens(config: configuration.Config, k: int) -> bool:
    """Draw whether generation k, if a phase may begin in it, begins one. Algorithm 1, line 12."""
    random = noise.generator(config.seed, Purpose.GATE, k)
    mu = random.random() if config.esac.gate == "uniform" else random.standard_normal()
    return bool(mu < p_sac(config.esac, k))


def p_sac(esac: configuration.ESAC, k: int) -> float:
    """Compute the probability of a SAC phase in generation k, annealed exponentially."""
    if not esac.sac_phases:
        return 0.0
    initial, final = esac.p_sac_initial, esac.p_sac_final
    if not esac.p_sac_annealed:
        return initial
    return final + (initial - final) * float(np.exp(-k / esac.p_sac_decay))
