"""The lines about memory: what the ranks of a node share, and what the replay comes to take."""

from typing import Any

from esac_mpi import envs
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import Config
from esac_mpi.host import ram
from esac_mpi.host.errors import WrongUsage
from esac_mpi.host.ram import size
from esac_mpi.learners import NoDevice
from esac_mpi.play.params import Params, make_layout
from esac_mpi.play.state import shares_replay
from esac_mpi.training import memory, set_up
from esac_mpi.training.check.ranks import Rank
from esac_mpi.training.check.report import Line


def make_counted(config: Config, env: envs.Env, ranks: int) -> tuple[Params, Any, memory.Counter]:
    """Make parameters and state as before the first generation; count what they share.

    Raises WrongUsage, MemoryError.
    """
    layout, counter = make_layout(config, env), memory.Counter(ranks)
    noise = set_up.make_epsilon(config, layout, counter)
    params = Params(config, layout, env.horizon, noise, set_up.make_operators(config, layout))
    return params, set_up.make_state(params, counter), counter


def count_shared(config: Config, env: envs.Env, ranks: int) -> int:
    """Count the bytes of shared memory that a run holds on a node, 1 MiB for what is small."""
    *_, counter = make_counted(config, env, ranks)
    return counter.bytes + 2**20


def networks(config: Config, env: envs.Env) -> list[Line]:
    """Refuse networks that do not fit in rank 0's memory; nothing where they do."""
    try:
        memory.refuse_networks(config, env, ram.total())
    except WrongUsage as error:
        return [Line("networks", "too large", str(error), True)]
    return []


def shared(config: Config, env: envs.Env, ranks: list[Rank]) -> list[Line]:
    """Look at the node with several ranks that has the least shared memory."""
    try:
        need = count_shared(config, env, len(ranks))
    except NoDevice:  # as the line about torch says
        return []
    except (WrongUsage, MemoryError) as error:
        return [Line("memory", "cannot be shared", str(error), True)]
    nodes = [rank.node for rank in ranks]
    sharing = [rank for rank in ranks if nodes.count(rank.node) > 1]
    if not sharing:
        alone = "one rank a node needs no /dev/shm for it"
        return [Line("memory", f"the run holds {size(need)} a node; {alone}")]
    having = [rank for rank in sharing if rank.shared_free >= 0]
    if not having:
        return [Line("memory", f"no /dev/shm; the run shares {size(need)} a node")]
    least = min(having, key=lambda rank: rank.shared_free)
    free = least.shared_free
    found = f"/dev/shm has {size(free)} free on {least.host}; the run needs {size(need)}"
    remedy = (
        f"too small on {least.host}: ask for a larger /dev/shm (containers: --shm-size), start one "
        "rank a node, or give a new run a smaller network, noise table, population or memories"
    )
    return [Line("memory", found, remedy if free < need else "", free < need)]


def replay(config: Config, env: envs.Env) -> list[Line]:
    """Look at the memory that the replay comes to take, on rank 0's node."""
    if not memory.table(config):
        return []
    need, total, free = memory.replay_bytes(config, env), ram.total(), ram.free()
    where = "on rank 0's node, which"
    if shares_replay(ALGORITHMS[config.algorithm].State):
        where = "on each node, among what its ranks share; rank 0's"
    found = f"comes to take {size(need)} {where} has {size(total)} of memory, {size(free)} free"
    try:
        memory.refuse_replay(config, env, total)
    except WrongUsage as error:
        return [Line("replay", found, str(error), True)]
    return [Line("replay", found, "more than is free now" if need > free else "")]
