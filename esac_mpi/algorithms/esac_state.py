"""ESAC's State, and whose child each slot of its population is."""

import math
from dataclasses import dataclass, field

import numpy as np

from esac_mpi import config as configuration
from esac_mpi.operators.policy import Normaliser
from esac_mpi.play.counters import Best, Counters
from esac_mpi.play.warm_start_fields import ADAM, ANEW, OBSERVATIONS, TUNING, Part

CENTRE, SAC_COPY, CHILD = 0, 1, 2  # parent of a slot: theta_es, theta_sac, or CHILD + its index
POPULATION = Part("the population's children", ("sac_copies",))


@dataclass
class State:
    """All that changes, equal on every rank or shared by the node; the learner, on rank 0, has its own."""

    theta_es: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    theta_sac: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    # float32 [child slots, d]
    children: np.ndarray = field(metadata={"shared": True, "part": POPULATION})
    adam_m: np.ndarray = field(metadata={"shared": True, "part": ADAM})  # float32 [d]
    adam_v: np.ndarray = field(metadata={"shared": True, "part": ADAM})  # float32 [d]
    # float32 [members that a phase beside plays again, d]
    replayed_theta: np.ndarray = field(metadata={"shared": True, "part": ANEW})
    # float32 [chunks of slots, 2, d]: line 11's, the winners' mean; none of one chunk
    partial_sums: np.ndarray = field(metadata={"shared": True, "scratch": True})
    # float32 [child slots, d] winners that have a child; none where there is one chunk
    rebuilt: np.ndarray = field(metadata={"shared": True, "scratch": True})
    # int64 [slots] CENTRE, SAC_COPY or CHILD + index
    parents: np.ndarray = field(metadata={"part": POPULATION})
    # float64 [3, observation]: count, sum, sum of squares
    observation_sums: np.ndarray = field(metadata={"later": True, "part": OBSERVATIONS})
    # these before the generation of the phase that is or was beside
    phase_sums: np.ndarray = field(metadata={"later": True, "part": ANEW})
    sigma: float = field(metadata={"part": TUNING})
    # Eq. (8) with the clipped step: sigma / sigma(1)
    tuning_multiplier: float = field(default=1.0, metadata={"part": TUNING})
    # natural logarithm of Eq. (8) as printed, with the unclipped step
    log_multiplier_unclipped: float = field(default=0.0, metadata={"part": TUNING})
    mean_length: float = 0.0  # running mean of the population's episodes [steps]
    expected_length: np.ndarray = field(  # [slots] of the next members, for scheduling alone
        default_factory=lambda: np.zeros(0), metadata={"part": ANEW}
    )
    # generation whose SAC phase is in flight; 0 = none
    phase_begun: int = field(default=0, metadata={"part": ANEW})
    # its time still under phase_timing = virtual [steps]
    phase_left: float = field(default=0.0, metadata={"part": ANEW})
    replayed_members: np.ndarray = field(  # that a phase beside plays again
        default_factory=lambda: np.zeros(0, np.int64), metadata={"part": ANEW}
    )
    replayed_returns: np.ndarray = field(  # nan = with nothing
        default_factory=lambda: np.zeros(0), metadata={"compared": True, "part": ANEW}
    )
    # at which their episodes were truncated; 0 = none [steps]
    replayed_cap: int = field(default=0, metadata={"part": ANEW})
    # SAC phases in all before theta_sac is tried again
    next_trial: int = field(default=1, metadata={"part": ANEW})
    # fitness: of its own whole episodes, the last phase's with one
    learner_return: float = field(default=-math.inf, metadata={"part": ANEW})
    # in a row by theta_sac, since it was adopted last
    trials_won: int = field(default=0, metadata={"part": ANEW})
    # generation after which the moments began
    adam_from: int = field(default=0, metadata={"part": ADAM, "generation": True})
    generation: int = 0
    counters: Counters = field(default_factory=Counters)
    best: Best = field(default_factory=Best)

    @property
    def policies(self) -> dict[str, np.ndarray]:
        """The policies to evaluate, by name."""
        return {"theta_es": self.theta_es, "sac": self.theta_sac}

    @property
    def normaliser(self) -> Normaliser | None:
        """The running standardisation of observations, one for both halves: a SAC copy must behave the same in both roles.

        None where it is off or has seen nothing.
        """
        return Normaliser.of(self.observation_sums)

    def parent(self, slot: int) -> np.ndarray:
        """Return the parent of a slot, float32 [d]."""
        kind = self.parents[slot]
        return (
            self.theta_es
            if kind == CENTRE
            else self.theta_sac
            if kind == SAC_COPY
            else self.children[kind - CHILD]
        )


def sigma_of_noise(esac: configuration.ESAC, state: State) -> float:
    """Return what noise is multiplied by: sigma, or sigma(1) where AMT tunes the gradient's alone."""
    only_gradient = esac.sigma_rule == "grow" and esac.amt_scope == "gradient"
    return esac.sigma if only_gradient else state.sigma


def slot_sigmas(esac: configuration.ESAC, state: State) -> np.ndarray:
    """Return what each slot's noise is multiplied by, float64 [slots]: sigma, or 0 where its members are not perturbed."""
    shielded = (state.parents >= CHILD) & (esac.winner_selection == "hard")
    still = shielded | ((state.parents == SAC_COPY) & (not esac.sac_copy_noise))
    return np.where(still, 0.0, sigma_of_noise(esac, state))


def new_population(esac: configuration.ESAC, born: int) -> np.ndarray:
    """Return each slot's parent, int64 [slots]: children first, then copies of SAC, then theta_es. Algorithm 1, line 27."""
    parents = np.full(configuration.slots(esac), CENTRE)
    children = configuration.child_slots(esac)
    parents[:born] = CHILD + np.arange(born)
    parents[children : children + esac.sac_copies] = SAC_COPY
    return parents
