"""Generations of ES and ESAC. When phases begin and end ESAC itself decides (esac_timing)."""

import math
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from esac_mpi import config as configuration
from esac_mpi.algorithms import ALGORITHMS, es, esac_timing
from esac_mpi.comm import schedule
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.generations import Generation, Made
from esac_mpi.config import Config, Evolution


def generations(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of a population, with its learner's phases where it has one."""
    table = cast(Evolution, config.own)
    n, episodes = configuration.members(table), table.fitness_episodes
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    phases = Phases(config, pieces) if learning else None
    beside = phases is not None and phases.beside
    for k in count(1):
        begins, ends = phases.of(k) if phases else (False, False)
        trials = phases.trials if phases else es.centre_episodes(cast(configuration.ES, table), k)
        at_once, aside = begins and not beside, begins and beside
        one = Generation(
            members=np.append(pieces.members(n, episodes, k), pieces.lasting(trials, k)),
            expected=schedule.with_trials(np.ones(n), episodes, trials),
            sums=pieces.sums if table.observation_normalisation else 0,
            phase=phases.seconds if phases and at_once else 0.0,
            merges=ends,
            update=configuration.slots(table) * pieces.slot,
            blocks=pieces.blocks,
            begun=phases.seconds if phases and aside else 0.0,
        )
        played = (n * episodes + trials) * pieces.length
        if phases:
            played += phases.entered
        yield Made(one, played, pieces.horizon)


class Phases:
    """When a learner's phases begin and end, as ESAC itself decides it, and what one does.

    found: a generation's lengths, all alike. seconds: how long the phase takes that began last.
    entered: steps that entered in the generation that was asked of last, the population's episodes
    again among them. trials: its episodes of the test before a transfer; none is foreseen to be
    won.
    """

    def __init__(self, config: Config, pieces: Pieces) -> None:
        esac = config.esac
        self._config, self._esac = config, esac
        self.beside = esac_timing.has_lag(esac)
        lengths = np.full(configuration.members(esac), round(esac.fitness_episodes * pieces.length))
        self.found: Any = SimpleNamespace(length=lengths, trial_steps=0)
        self.trials = 0
        self.seconds = 0.0
        self.entered = 0.0
        self._steps = 0.0
        self._pieces = pieces
        self._flight: Any = SimpleNamespace(phase_begun=0, phase_left=0.0)

    def of(self, k: int) -> tuple[bool, bool]:
        """Tell whether a phase begins in generation k, and whether one ends; ask in turn."""
        esac, flight = self._esac, self._flight
        tested = esac.transfer == "tested" and self.entered
        self.trials = 2 * esac.transfer_episodes if tested else 0
        self.found.trial_steps = round(self.trials * self._pieces.length)
        ends = esac_timing.phase_ends(esac, flight, k, self.found)
        may = esac_timing.may_begin(esac, flight, k, ends)
        begins = may and esac_timing.gate_opens(self._config, k)
        self.entered = self._steps if ends else 0.0
        if ends:
            flight.phase_begun = 0
        if esac_timing.is_virtual(esac):
            flight.phase_left = esac_timing.time_left(esac, flight, self.found)
        if begins:
            self._begin()
        if begins and self.beside:
            flight.phase_begun = k
        elif begins:
            self.entered = self._steps
        return begins, ends

    def _begin(self) -> None:
        esac, pieces = self._esac, self._pieces
        again = esac_timing.resimulated(esac) * esac.fitness_episodes * pieces.length
        if esac_timing.is_virtual(esac):
            lasted = esac_timing.evaluation_time(esac, self.found)
            own = esac_timing.own_steps(self._config, lasted, round(again))
            self._flight.phase_left = esac_timing.phase_duration(self._config, own, round(again))
            steps = float(own)
        else:  # of whole episodes
            episodes = max(esac.sac_episodes, math.ceil(esac.sac_min_steps / pieces.length))
            steps = episodes * pieces.length
        self._steps = again + steps
        updates = steps * self._config.sac.updates_per_step
        self.seconds = again * pieces.step + steps * pieces.playing + updates * pieces.updating
