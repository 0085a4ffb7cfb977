"""Generations of AES-RL, so many arrivals each, whose tasks go through a clock of their own."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

import numpy as np

from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.task_order import Arrival, Giving, piece, queue
from esac_mpi.comm.clock.tasks import Piece, Section
from esac_mpi.config import AESRL, Config
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.operators.update_rules import is_trained

EFFORT = 50  # members of a generation with barriers that take the clock as long as an arrival


class Moment(NamedTuple):
    """Where a run has come to at the end of a generation."""

    now: float  # [s]
    work: float  # of all ranks in this generation [s]
    env_steps: float  # of this generation
    nominal_steps: float
    effort: int  # members that the clock has followed in it, or what is as much


def moments(
    config: Config, pieces: Pieces, on: Cluster, evaluations: Iterator[np.ndarray]
) -> Iterator[Moment]:
    """Yield where a run has come to, by generation, with its evaluations' episodes [s]."""
    aes = config.aes_rl
    virtual = float(math.ceil(aes.of_critic * aes.critic_chunk))
    turn = Piece((virtual, 0.0), (aes.critic_chunk * pieces.updating, 0.0))
    clock = queue(Giving(aes, individuals(config, aes, pieces), lambda n: turn), aes, on)
    arrived = aes.arrivals_per_generation
    steps = arrived * pieces.length  # of individuals' own episodes
    before = 0.0
    for evaluation in evaluations:
        now = clock.go(Section(arrived, evaluation=evaluation))
        busy = float(clock.busy.sum())
        played = steps * (1 + aes.mean_episodes) + evaluation.size * pieces.length
        done = busy - before + float(evaluation.sum())
        yield Moment(now, done, played, steps, EFFORT * arrived)
        before = busy


def individuals(config: Config, aes: AESRL, pieces: Pieces) -> Callable[[int, int, bool], Arrival]:
    """Make what draws a worker's next individual: its updates, its own episode, those of the mean.

    Of (worker, virtual start [steps], whether there is something to learn from).
    """
    numbers = count()
    drawn = Counter({True: 1, False: 1})  # trained or not, since there is something to learn from
    most = round(aes.actor_updates_window * pieces.length)

    def draw(worker: int, now: int, taught: bool) -> Arrival:
        number = next(numbers)
        length = float(np.take(pieces.lengths, number, mode="wrap"))
        random = generator(config.seed, Purpose.SELECTION, number)
        learns = taught and is_trained(drawn[True], drawn[False], aes.rl_gain, aes.rl_share, random)
        drawn[learns] += taught
        updates = most if learns else 0
        steps = length + aes.mean_episodes * pieces.length
        lasted = math.ceil(aes.update_cost * updates) + steps
        played = float(pieces.lasting(1 + aes.mean_episodes, number).sum())
        work = piece(played, updates * pieces.training, updates, lasted, aes.update_cost)
        return Arrival(worker, round(length), work)

    return draw
