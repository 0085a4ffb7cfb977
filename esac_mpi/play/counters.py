"""What every algorithm's State has: what a run counts, and the best policy that it has found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from esac_mpi.config import Config
from esac_mpi.config.fields import normalisation
from esac_mpi.operators.policy import LEAST, SHRINKS, Normaliser
from esac_mpi.play.marks import OBSERVATIONS, mark, marked


@dataclass
class Counters:
    """Every environment step and gradient update, by kind, since the start of the run."""

    env_steps_population: int = 0
    env_steps_learner: int = 0
    env_steps_evaluation: int = 0
    env_steps_replayed: int = 0  # of the population's episodes that were played again for a learner
    nominal_steps: int = 0
    gradient_updates: int = 0  # of the learner
    member_updates: int = 0  # gradient updates of a population's members
    unstable_episodes: int = 0
    learner_phases: int = 0

    @property
    def env_steps(self) -> int:
        """True environment steps of all kinds."""
        return (
            self.env_steps_population
            + self.env_steps_learner
            + self.env_steps_evaluation
            + self.env_steps_replayed
        )


@dataclass
class Best:
    """The best policy of the evaluations on schedule; for ESAC, of theta_es and the SAC mean."""

    episodic_return: float = -np.inf  # mean over episodes that did not choose it
    generation: int = 0
    policy: str = ""
    theta: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # [d]
    # [2, observation] mean and std
    normaliser: np.ndarray = field(default_factory=lambda: np.zeros((2, 0), np.float32))
    # mean return over the episodes that made it the best, of evaluation, duel and confirmation,
    # above which another's challenges it; -inf: of a former version, whose return is that
    shown: float = -np.inf

    @property
    def bar(self) -> float:
        """Mean return of an evaluation above which another policy challenges this one."""
        return self.shown if self.shown > -np.inf else self.episodic_return

    @property
    def standardised(self) -> Normaliser | None:
        """How it sees observations, None where they are plain."""
        return Normaliser(*self.normaliser) if self.normaliser.size else None


@dataclass(kw_only=True)
class Progress:
    """What every State has beside what its algorithm changes; observations are plain."""

    generation: int = 0
    counters: Counters = field(default_factory=Counters)
    best: Best = field(default_factory=Best)

    @property
    def policies(self) -> dict[str, np.ndarray]:
        """The policies to evaluate, by name; the first is the one that counts."""
        return {mark.policy: getattr(self, f.name) for f, mark in marked(self) if mark.policy}

    def normaliser(self, config: Config) -> Normaliser | None:
        """Return how observations are standardised, None where they are plain."""
        return None

    @property
    def is_between(self) -> bool:
        """Whether it is one of the end of a generation: none that was given up is in it."""
        return True

    def compare_no_more(self, another_task: bool = False) -> None:
        """Let what must be found again, to the bit, stand for nothing.

        As another task or machine goes on.
        """

    def follow(self, history: Mapping[str, np.ndarray]) -> bool:
        """Let results be told in the order that a run's history has beyond this state of it.

        Returns whether that is new.
        """
        return False


@dataclass(kw_only=True)
class Standardising(Progress):
    """A State whose policies may see standardised observations."""

    # float64 [3, observation]: count, sum, sum of squares
    observation_sums: np.ndarray = field(metadata=mark(later=True, part=OBSERVATIONS))

    def normaliser(self, config: Config) -> Normaliser | None:
        """Return the running standardisation, None where it is off or has seen nothing."""
        return Normaliser.of(self.observation_sums, least_variance(config))


def least_variance(config: Config) -> float:
    """Look up the least variance by which a run standardises observations, if it does."""
    return SHRINKS if normalisation(config) == "shrink" else LEAST
