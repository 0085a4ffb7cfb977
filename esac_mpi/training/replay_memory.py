"""What a replay takes of rank 0's memory, told before it is made. No torch here.

The system gives a replay memory as rows are written, so that one too large ends hours later,
killed. What counts is what a run of this budget ever writes: a capacity that it does not reach
costs nothing.
"""

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.algorithms.declaration import Learning
from esac_mpi.config import NAMES, Config
from esac_mpi.config.reads import find_unread, tables
from esac_mpi.envs import Env
from esac_mpi.host import ram
from esac_mpi.play import state
from esac_mpi.play.transitions import width
from esac_mpi.record import Checkpoint
from esac_mpi.training.ended import TooLarge


def table(config: Config) -> str:
    """Name the table that has the replay's capacity; empty for an algorithm without one."""
    found = [name for name in tables(config.algorithm) if f"{name}.replay_capacity" in NAMES]
    return next(
        (name for name in found if not find_unread(config, [f"{name}.replay_capacity"])), ""
    )


def most_added(config: Config, horizon: int) -> float:
    """Count the most transitions that a run of this budget adds to its replay; inf = no limit."""
    return float(_learning(config).added(config, horizon))


def most_kept(config: Config, horizon: int) -> float:
    """Count the most transitions that the replay of a run of this budget ever has room for."""
    room = capacity(config) + _learning(config).reserve(config, horizon)
    return min(room, most_added(config, horizon))


def replay_bytes(config: Config, env: Env) -> int:
    """Count the memory that the replay of a run of this budget takes [bytes]; 0 without one."""
    if not table(config):
        return 0
    return int(_row(env) * most_kept(config, env.horizon))


def too_small(config: Config, horizon: int, restored: Checkpoint) -> str:
    """Return the remark that a shared replay has become too small for the budget, or ""."""
    first, stop = restored.replay_bounds
    if not state.shares_replay(ALGORITHMS[config.algorithm].State):
        return ""
    if stop - first <= most_kept(config, horizon):
        return ""
    why = f"this budget leaves no room for the {stop - first:,} transitions of its replay"
    return f"{why}: go on with the budget of before"


def cut_episodes(config: Config, horizon: int) -> str:
    """Say that the learner's episodes are cut, and teach it nothing of what comes later."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    name, steps = learning.cut(config, horizon) if learning else ("", 0)
    if not name or steps >= horizon:
        return ""
    said = f"the learner plays the first {steps:,} steps of an episode at most, of {horizon:,}"
    return f"{said}: in a new run --{name} {horizon} for all"


def refuse_too_large(config: Config, env: Env, memory: int) -> None:
    """Raise TooLarge if the replay takes more than `memory` [bytes]."""
    need = replay_bytes(config, env)
    if need <= memory:
        return
    fits = memory // _row(env) - _learning(config).reserve(config, env.horizon)
    remedy = "lower the budget, or what comes in while tasks or a phase are at work"
    if fits > 0:
        remedy = f"set it to {ram.two_digits(fits)} or less, or lower the budget"
    observed = f"of {env.observation_size} observations the replay comes to take {ram.size(need)}"
    raise TooLarge(
        f"{table(config)}.replay_capacity = {capacity(config)}: {observed}, and the machine of "
        f"rank 0 has {ram.size(memory)}: {remedy}"
    )


def capacity(config: Config) -> int:
    """Count the transitions that the replay keeps [transitions]."""
    return int(getattr(config, table(config)).replay_capacity)


def _learning(config: Config) -> Learning:
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    assert learning is not None, f"{config.algorithm} has no learner"
    return learning


def _row(env: Env) -> int:
    """Size a transition [bytes]."""
    return 4 * width(env.observation_size, env.action_size)
