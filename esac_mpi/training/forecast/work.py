"""How a run will go, generation by generation: measured pieces through the clock of its kind.

Who yields an algorithm's generations is said here, once for all; an algorithm of one's own has
`expected` in its module (docs/how-to/extend.md). Members last as the measured episodes in turn, so
they differ as those do. Left out, since little: writing rows and checkpoints, ranks and winners,
memories, the distances of parents, and importance mixing, by which some play nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.generations import Clock, Made
from esac_mpi.config import AESRL, CEM, CEMRL, DDPG, ERL, ES, ESAC, PPO, SAC, TD3, Config
from esac_mpi.config.table import Table
from esac_mpi.training.forecast import (
    Moment,
    arrivals,
    distributions,
    genetic,
    learners,
    populations,
)

WITH_BARRIERS: dict[type[Table], Callable[[Config, Pieces], Iterator[Made]]] = {
    ES: populations.generations,
    ESAC: populations.generations,
    CEM: distributions.generations,
    CEMRL: distributions.generations,
    ERL: genetic.generations,
    SAC: learners.generations,
    TD3: learners.generations,
    DDPG: learners.generations,
    PPO: learners.generations,
}


def unforeseen(config: Config) -> str:
    """Return the reason why an algorithm cannot be forecast, "" if it can."""
    says = hasattr(ALGORITHMS[config.algorithm], "expected")
    if says or type(config.own) in {*WITH_BARRIERS, AESRL}:
        return ""
    remedy = "its module says nothing of it by `expected` (docs/how-to/extend.md)"
    return f"not known for {config.algorithm}: {remedy}"


def moments(config: Config, pieces: Pieces, on: Cluster) -> Iterator[Moment]:
    """Yield where an endless run has come to, by generation."""
    episodes = len(ALGORITHMS[config.algorithm].DECLARES.policies) * config.evaluation.episodes
    evaluations = (
        pieces.lasting(0 if k % config.evaluation.every else episodes, k) for k in count(1)
    )
    if type(config.own) is AESRL:
        yield from arrivals.moments(config, pieces, on, evaluations)
        return
    clock = Clock(on)
    # both without an end
    for (made, env_steps, nominal), lasted in zip(
        generations(config, pieces), evaluations, strict=False
    ):
        whole = replace(made, evaluation=lasted)
        steps = env_steps + lasted.size * pieces.length
        effort = max(1, made.members.size + made.trained.size)
        yield Moment(clock.go(whole), whole.work, steps, nominal, effort)


def generations(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield an endless run's generations without evaluations, of an algorithm with barriers."""
    expected = getattr(ALGORITHMS[config.algorithm], "expected", None)
    if expected is not None:
        return (expected(config, pieces, k) for k in count(1))
    return WITH_BARRIERS[type(config.own)](config, pieces)
