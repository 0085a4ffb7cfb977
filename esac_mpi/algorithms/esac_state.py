"""ESAC's State, and whose child each slot of its population is."""

import math
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from esac_mpi import config as configuration
from esac_mpi.comm.contracts import Learner
from esac_mpi.play.marks import ANEW, SCRATCH, TUNING, Part, mark, policy
from esac_mpi.play.params import Generation
from esac_mpi.play.population import Evolving

CENTRE, SAC_COPY, CHILD = 0, 1, 2  # parent of a slot: theta_es, theta_sac, or CHILD + its index
POPULATION = Part("the population's children", ("sac_copies",))
BEGINS_ANEW = mark(part=ANEW)
INLINE = mark(part=ANEW, inline=True)


@dataclass
class InFlight:
    """The SAC phase that is in flight, with what begins it again, or the last one."""

    # float32 [members that a phase beside resimulates, d]
    replayed_theta: np.ndarray = field(metadata=mark(shared=True))
    # float64 [3, observation] the state's observation_sums before its generation
    phase_sums: np.ndarray = field(metadata=mark(later=True))
    phase_begun: int = 0  # the generation that it began in; 0 = none is in flight
    # the learner's own, at least; 0 in older files, whose phases have sac_min_steps
    phase_steps: int = 0
    phase_left: float = 0.0  # its time still on the virtual clock [steps]
    replayed_members: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    # float64 theirs; nan = to be compared with nothing
    replayed_returns: np.ndarray = field(default_factory=lambda: np.zeros(0))
    replayed_cap: int = 0  # at which their episodes were truncated; 0 = none [steps]


@dataclass
class Transfer:
    """The tests of theta_sac beside theta_es."""

    next_trial: int = 1  # SAC phases in all before the next test
    trials_won: int = 0  # in a row by theta_sac, since the last transfer
    # where theta_es began: the return of the theta_sac that last replaced it, or at first that of
    # the members around it
    start_return: float = math.nan


@dataclass
class State(Evolving):
    """All that changes, the same on every rank or shared by its node, beside rank 0's learner."""

    theta_sac: np.ndarray = field(metadata=policy("sac"))  # float32 [d]
    # float32 [child slots, d]
    children: np.ndarray = field(metadata=mark(shared=True, part=POPULATION))
    # int64 [slots] CENTRE, SAC_COPY or CHILD + index
    parents: np.ndarray = field(metadata=mark(part=POPULATION))
    # float32 [child slots, d] winners that have a child; none where there is one chunk
    rebuilt: np.ndarray = field(metadata=SCRATCH)
    flight: InFlight = field(metadata=INLINE)
    transfer: Transfer = field(default_factory=Transfer, metadata=INLINE)
    # Eq. (8) with the clipped step: sigma / sigma(1)
    tuning_multiplier: float = field(default=1.0, metadata=mark(part=TUNING))
    # natural logarithm of Eq. (8) as printed, with the unclipped step
    log_multiplier_unclipped: float = field(default=0.0, metadata=mark(part=TUNING))
    # [slots] of the next members' episodes, for scheduling alone
    expected_length: np.ndarray = field(default_factory=lambda: np.zeros(0), metadata=BEGINS_ANEW)
    # fitness of SAC: of its own whole episodes, the last phase's with one
    learner_return: float = field(default=-math.inf, metadata=BEGINS_ANEW)

    def parent(self, slot: int) -> np.ndarray:
        """Find the parent of a slot, float32 [d]."""
        kind = self.parents[slot]
        if kind == CENTRE:
            return self.theta_es
        return self.theta_sac if kind == SAC_COPY else self.children[kind - CHILD]

    def compare_no_more(self, another_task: bool = False) -> None:
        """Forget returns: of resimulated episodes; of another task also SAC's, and of tests."""
        self.flight.replayed_returns = np.full_like(self.flight.replayed_returns, np.nan)
        if another_task:
            self.learner_return = -math.inf
            self.transfer.trials_won, self.transfer.start_return = 0, math.nan


Now: TypeAlias = Generation[State, Learner]


def sigma_of_noise(esac: configuration.ESAC, state: State) -> float:
    """Return noise's factor: sigma, or sigma(1) if AMT tunes the gradient's alone."""
    only_gradient = esac.sigma_rule == "grow" and esac.amt_scope == "gradient"
    return esac.sigma if only_gradient else state.sigma


def slot_sigmas(esac: configuration.ESAC, state: State) -> np.ndarray:
    """List each slot's factor on noise, float64 [slots]: sigma, or 0 for members not perturbed."""
    shielded = (state.parents >= CHILD) & (esac.winner_selection == "hard")
    still = shielded | ((state.parents == SAC_COPY) & (not esac.sac_copy_noise))
    return np.where(still, 0.0, sigma_of_noise(esac, state))


def new_population(esac: configuration.ESAC, born: int) -> np.ndarray:
    """List slots' parents, int64 [slots]: children, SAC copies, theta_es. Algorithm 1, line 27."""
    parents = np.full(configuration.slots(esac), CENTRE)
    children = configuration.child_slots(esac)
    parents[:born] = CHILD + np.arange(born)
    parents[children : children + esac.sac_copies] = SAC_COPY
    return parents
