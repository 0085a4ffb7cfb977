"""What a run takes of memory, told before anything is made. No torch here.

The system gives memory as it is written, so that networks too large fill it until something is
killed, and a replay too large ends hours later, killed. Of networks a small one is counted: what it
holds per parameter large ones hold, too. Of a replay counts what a run of this budget ever writes:
a capacity that it does not reach costs nothing.
"""

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.algorithms.declaration import Learning
from esac_mpi.comm.headers import boards
from esac_mpi.config import NAMES, Config, amend, as_words, estimate
from esac_mpi.config.reads import find_unread, tables
from esac_mpi.envs import Env
from esac_mpi.host import ram
from esac_mpi.host.errors import WrongUsage
from esac_mpi.operators.noise import BLOCK, PIECES
from esac_mpi.play import state
from esac_mpi.play.params import make_layout, make_params
from esac_mpi.play.transitions import width
from esac_mpi.record import Checkpoint

LARGE = 2**24  # parameters; fewer are not looked at
SMALL = BLOCK * PIECES  # parameters from which on a sum over slots has one chunk
IMAGES = 2  # of what a checkpoint saves: an HDF5 file in memory, and its bytes
# actor and critic: values, gradient and two moments each; but for the gradient all is saved, copied
LEARNER = 8 + 6 * (1 + IMAGES)  # float32 a parameter, at least
GPUS = "/dev/nvidiactl", "/dev/kfd", "/dev/dxg"  # with one, a learner's may not be the machine's


class Counter:
    """World's stand-in for shared arrays: counts their bytes, leaves their memory untouched."""

    def __init__(self, ranks: int) -> None:
        self.bytes, self.ranks = 0, ranks
        self._boards: set[tuple[int, int]] = set()

    def reserve(self, count: int, columns: int) -> None:
        """Count the boards of a `map`, once."""
        if (count, columns) not in self._boards:
            self._boards.add((count, columns))
            self.shared(boards(count, columns, self.ranks), np.float64)

    def shared(self, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        """Return an array that takes no memory until it is written."""
        array = np.zeros(shape, dtype)
        self.bytes += array.nbytes
        return array

    def share(self, values: np.ndarray) -> np.ndarray:
        """Return the values."""
        self.bytes += values.nbytes
        return values

    def over_blocks(
        self, work: Any, count: int, columns: int, checksum: bool = False
    ) -> np.ndarray:
        """Do no work."""
        return np.zeros(columns)


def network_bytes(config: Config, env: Env) -> int:
    """Count the memory that networks take on rank 0's node, at least [bytes]."""
    d, config = make_layout(config, env).d, estimate(config)
    small = narrow(config, env)
    each = shared_bytes(small, env) / make_layout(small, env).d
    elsewhere = config.learner.device != "cpu" and any(map(os.path.exists, GPUS))
    if ALGORITHMS[config.algorithm].DECLARES.learning and not elsewhere:
        each += 4 * LEARNER
    return int(each * d)


def narrow(config: Config, env: Env) -> Config:
    """Narrow the layers until some million parameters are left."""
    width, found = 1, config
    while width == 1 or make_layout(found, env).d < SMALL:
        width *= 2
        found = amend(config, {"policy.hidden": (width,) * len(config.policy.hidden)})
    return found


def shared_bytes(config: Config, env: Env) -> int:
    """Count the bytes of a State that a node's ranks share, and of a checkpoint with it."""
    params, counter = make_params(config, env), Counter(1)
    algorithm = ALGORITHMS[config.algorithm]
    if algorithm.DECLARES.operators(config):  # a critic has about as many
        params = replace(params, operators=SimpleNamespace(critic_size=params.layout.d))
    saved = state.arrays(algorithm.init(params, counter))
    return counter.bytes + IMAGES * sum(array.nbytes for array in saved.values())


def refuse_networks(config: Config, env: Env, memory: int) -> None:
    """Raise WrongUsage if networks take more than `memory` [bytes]."""
    d = make_layout(config, env).d
    if d < LARGE or not config.policy.hidden or (need := network_bytes(config, env)) <= memory:
        return
    fits = ram.two_digits(d * memory // need)
    raise WrongUsage(
        f"policy.hidden = {' '.join(as_words(config.policy.hidden))}: {d:,} parameters, of which "
        f"{config.algorithm} comes to hold {ram.size(need)} or more, and the machine of rank 0 has "
        f"{ram.size(memory)}: choose layers of {fits:,} parameters at most"
    )


def table(config: Config) -> str:
    """Name the table that has the replay's capacity; empty for an algorithm without one."""
    names = {table: f"{table}.replay_capacity" for table in tables(config.algorithm)}
    found = [t for t, name in names.items() if name in NAMES and not find_unread(config, [name])]
    return next(iter(found), "")


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
    shared = state.shares_replay(ALGORITHMS[config.algorithm].State)
    if not shared or stop - first <= most_kept(config, horizon):
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


def never_learns(config: Config, horizon: int) -> str:
    """Say that a learner with a replay makes no update before the budget's end; "" if it may."""
    if not (name := table(config)) or not _learning(config).learns(config):
        return ""
    options, most = getattr(config, name), most_added(config, horizon)
    # an installed table may have no such fields
    first, batch = getattr(options, "first_update", 0), getattr(options, "batch_size", 1)
    if most > first and most >= batch:
        return ""
    field = f"start_steps is {first:,}" if most <= first else f"batch_size is {batch:,}"
    why = f"{name}.{field}, and this budget has {most:,.0f} steps for it at most"
    return f"the learner never learns: {why}"


def refuse_replay(config: Config, env: Env, memory: int) -> None:
    """Raise WrongUsage if the replay takes more than `memory` [bytes]."""
    need = replay_bytes(config, env)
    if need <= memory:
        return
    fits = memory // _row(env) - _learning(config).reserve(config, env.horizon)
    remedy = "lower the budget, or what comes in while tasks or a phase are at work"
    if fits > 0:
        remedy = f"set it to {ram.two_digits(fits)} or less, or lower the budget"
    observed = f"of {env.observation_size} observations the replay comes to take {ram.size(need)}"
    has = f"the machine of rank 0 has {ram.size(memory)}"
    name = f"{table(config)}.replay_capacity"
    raise WrongUsage(f"{name} = {capacity(config)}: {observed}, and {has}: {remedy}")


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
