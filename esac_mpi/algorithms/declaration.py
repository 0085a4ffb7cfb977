"""What an algorithm says of itself, lest others know its name: `DECLARES = Declaration(...)`.

What most algorithms say is a default; the rest has to be said.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from esac_mpi.config import NAMES, PPO, SAC, Config, Evolution, value_of


@dataclass(frozen=True)
class Learning:
    """The gradient learner of an algorithm, on rank 0."""

    learner: Callable[[Config], str]  # a file of learners/
    # State -> its actor, which a learner begins with, float32 [d]
    actor: Callable[[Any], np.ndarray]
    # horizon [steps] -> transitions beside the capacity that its replay has room for
    reserve: Callable[[Config, int], int]
    # horizon [steps] -> transitions that a run of this budget adds at most, to a replay
    added: Callable[[Config, int], float]
    # rank -> whether what goes on beside others plays in an environment of its own there
    own_env: Callable[[Config, int], bool] = lambda config, rank: False
    # whether phases run beside the evaluation, so that their rank has no members
    beside: Callable[[Config], bool] = lambda config: False
    # horizon [steps] -> the setting that cuts a phase's episode, of which it plays no more, and the
    # most steps of one; "" = none
    cut: Callable[[Config, int], tuple[str, int]] = lambda config, horizon: ("", 0)
    # whether it learns under these settings
    learns: Callable[[Config], bool] = lambda config: True


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What the program must know of an algorithm beside State, init(), board() and generation().

    Its State's `policies` names what is evaluated; the first counts, its hash is theta_sha256.
    """

    # what its board has a row of; tasks: none, its `workers` have one each
    work: Literal["members", "episodes", "tasks"]
    policies: Mapping[str, str]  # State.policies' names, in words that follow "return of"
    discrete: bool  # whether it takes tasks with discrete actions
    learning: Learning | None = None
    # the table by which it evaluates a population, if it does
    evolution: Callable[[Config], Evolution] | None = None
    # whether each policy is reported by itself: the run's best and final return are the first
    # one's, not the better's
    apart: bool = False
    fitness: str = "fitness"  # the column of its rows that is shown as fitness
    # a key of learners.OPERATORS where every rank takes gradients, and so loads torch, or ""
    operators: Callable[[Config], str] = lambda config: ""
    # how its policies' outputs are bounded; None = as policy.output says
    output: Literal["tanh", "clip"] | None = None
    # what its policies' last layer is held times in discrete tasks, lest outputs be cut off; 1 = as
    # it is
    head_scale: float = 1.0
    # members that the ranks make in a generation, rank 0 once its phase has ended
    offspring: Callable[[Config], int] = lambda config: 0


def added_by_phases(config: Config, phase: int) -> float:
    """Count the most transitions that a run whose generations are phases of so many adds.

    Infinite where no limit is told, and for a run that begins with another's, which has to have
    room for those too.
    """
    if config.start_from:
        return math.inf
    generations, env_steps, nominal = config.budget.limits
    return min(generations * phase, min(env_steps, nominal) + phase)


def shared_episodes(config: Config) -> int:
    """Count a learner's training episodes that ranks share in a generation; 0 if rank 0 plays."""
    name = config.algorithm
    if f"{name}.episodes_on" not in NAMES or value_of(config, f"{name}.episodes_on") == "root":
        return 0
    return int(value_of(config, f"{name}.episodes_per_generation"))


def updates_owed(config: Config, learner: str, done: float, steps: float) -> float:
    """Count updates for the last `steps` of `done` training steps; learner: Learning.learner's."""
    options: Any = value_of(config, learner)
    if isinstance(options, PPO):
        return options.epochs * math.ceil(steps / (options.batch_size or steps))
    # SAC learns from its random steps at once
    before = 0 if isinstance(options, SAC) else options.start_steps
    return float(np.clip(done - before, 0, steps)) * float(options.updates_per_step)
