"""What an algorithm says of itself, so that nothing else has to know its name: `DECLARES = Declaration(...)` in its module.

No field has a default: what is forgotten is an error at the import, not another algorithm's way.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from esac_mpi.config import NAMES, PPO, SAC, Config, Evolution
from esac_mpi.config.fields import value_of


@dataclass(frozen=True)
class Learning:
    """The gradient learner of an algorithm."""

    learner: Callable[[Config], str]  # a file of learners/
    # State -> its actor, which a learner begins with, float32 [d]
    actor: Callable[[Any], np.ndarray]
    ranks: Callable[[int], bool]  # rank -> whether it has one
    # horizon [steps] -> transitions beside the capacity that its replay has room for
    reserve: Callable[[Config, int], int]
    # horizon [steps] -> transitions that a run of this budget adds at most, to a replay
    added: Callable[[Config, int], float]
    # rank -> whether what goes on beside others plays in an environment of its own there
    own_env: Callable[[Config, int], bool]
    # whether phases run beside the evaluation, so that their rank has no members
    beside: Callable[[Config], bool]
    # the setting after whose steps a phase cuts its episode, of which it plays no more; "" = none
    cut: Callable[[Config], str]
    # generations from a phase to the next; 0: nothing learns under these settings
    interval: Callable[[Config], int]


@dataclass(frozen=True)
class Declaration:
    """What the rest of the program must know of an algorithm, beside State, init(), board() and generation().

    Its State's `policies` names what is evaluated; the first is the one that counts, whose hash is theta_sha256.
    """

    learning: Learning | None
    discrete: bool  # whether it takes tasks with discrete actions
    # the table by which it evaluates a population, if it does
    evolution: Callable[[Config], Evolution] | None
    # what its board has a row of; tasks: none, its `workers` have one each
    work: Literal["members", "episodes", "tasks"]
    policies: Mapping[str, str]  # State.policies' names, in words that follow "return of"
    # whether each policy is reported by itself: the run's best and final return are the first
    # one's, not the better's
    apart: bool
    fitness: str  # the column of its rows that is shown as fitness
    # a key of learners.OPERATORS where every rank takes gradients, and so loads torch, or ""
    operators: Callable[[Config], str]
    # how its policies' outputs are bounded; None = as policy.output says
    output: Literal["tanh", "clip"] | None
    # what its policies' last layer is held times in discrete tasks, lest outputs be cut off; 1 = as
    # it is
    head_scale: float
    # members that the ranks make in a generation, rank 0 once its phase has ended
    offspring: Callable[[Config], int]


def added_by_phases(config: Config, phase: int) -> float:
    """Return the most transitions that a run whose generations are phases of so many adds to its replay; inf = no limit is told.

    Nor for a run that begins with another's, which has to have room for those too.
    """
    if config.start_from:
        return math.inf
    generations, env_steps, nominal = config.budget.limits
    return min(generations * phase, min(env_steps, nominal) + phase)


def shared_episodes(config: Config) -> int:
    """Count a learner's training episodes of a generation that the ranks share; 0 where rank 0 plays them."""
    name = config.algorithm
    if f"{name}.episodes_on" not in NAMES or value_of(config, f"{name}.episodes_on") == "root":
        return 0
    return int(value_of(config, f"{name}.episodes_per_generation"))


def updates_owed(config: Config, learner: str, done: float, steps: float) -> float:
    """Count a learner's updates for the last `steps` of `done` training steps; learner: as Learning.learner has it."""
    options: Any = value_of(config, learner)
    if isinstance(options, PPO):
        return options.epochs * math.ceil(steps / (options.batch_size or steps))
    # SAC learns from its random steps at once
    before = 0 if isinstance(options, SAC) else options.start_steps
    return float(np.clip(done - before, 0, steps)) * float(options.updates_per_step)


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
