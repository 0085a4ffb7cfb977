"""What an algorithm says of itself, so that nothing else has to know its name: `DECLARES = Declaration(...)` in its module.

No field has a default: what is forgotten is an error at the import, not another algorithm's way.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from esac_mpi.config import Config, Evolution


@dataclass(frozen=True)
class Learning:
    """The gradient learner of an algorithm."""

    learner: Callable[[Config], str]  # a file of learners/
    actor: Callable[
        [Any], np.ndarray
    ]  # State -> its actor, which a learner begins with, float32 [d]
    ranks: Callable[[int], bool]  # rank -> whether it has one
    reserve: Callable[
        [Config, int], int
    ]  # horizon [steps] -> transitions beside the capacity that its replay has room for
    added: Callable[
        [Config, int], float
    ]  # horizon [steps] -> transitions that a run of this budget adds at most, to a replay
    own_env: Callable[
        [Config, int], bool
    ]  # rank -> whether what goes on beside others plays in an environment of its own there
    beside: Callable[
        [Config], bool
    ]  # whether phases run beside the evaluation, so that their rank has no members
    cut: Callable[
        [Config], str
    ]  # the setting after whose steps a phase cuts its episode, of which it plays no more; "" = none
    # generations from a phase to the next; 0: nothing learns under these settings
    interval: Callable[[Config], int]


@dataclass(frozen=True)
class Declaration:
    """What the rest of the program must know of an algorithm, beside State, init(), board() and generation().

    Its State's `policies` names what is evaluated; the first is the one that counts, whose hash is theta_sha256.
    """

    learning: Learning | None
    discrete: bool  # whether it takes tasks with discrete actions
    evolution: (
        Callable[[Config], Evolution] | None
    )  # the table by which it evaluates a population, if it does
    work: Literal[
        "members", "episodes", "tasks"
    ]  # what its board has a row of; tasks: none, its `workers` have one each
    policies: Mapping[str, str]  # State.policies' names, in words that follow "return of"
    apart: bool  # whether each policy is reported by itself: the run's best and final return are the first one's, not the better's
    fitness: str  # the column of its rows that is shown as fitness
    operators: Callable[
        [Config], str
    ]  # a key of learners.OPERATORS where every rank takes gradients, and so loads torch, or ""
    output: (
        Literal["tanh", "clip"] | None
    )  # how its policies' outputs are bounded; None = as policy.output says
    head_scale: float  # what its policies' last layer is held times in discrete tasks, lest outputs be cut off; 1 = as it is
    offspring: Callable[
        [Config], int
    ]  # members that the ranks make in a generation, rank 0 once its phase has ended


def added_by_phases(config: Config, phase: int) -> float:
    """Return the most transitions that a run whose generations are phases of so many adds to its replay; inf = no limit is told.

    Nor for a run that begins with another's, which has to have room for those too.
    """
    if config.start_from:
        return math.inf
    generations, env_steps, nominal = config.budget.limits
    return min(generations * phase, min(env_steps, nominal) + phase)


def at_root(rank: int) -> bool:
    """Return whether a rank is rank 0."""
    return rank == 0


def every_generation(config: Config) -> int:
    """Return 1."""
    return 1


def nobody(config: Config) -> int:
    """Return 0."""
    return 0


def never(config: Config) -> bool:
    """Return False."""
    return False


def nowhere(config: Config, rank: int) -> bool:
    """Return False, for any rank."""
    return False


def everywhere(config: Config, rank: int) -> bool:
    """Return True, for any rank."""
    return True


def none(config: Config) -> str:
    """Return no name."""
    return ""
