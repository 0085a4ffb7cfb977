"""Generations of AES-RL, so many arrivals each, whose tasks go through a clock of their own."""

import math
from collections.abc import Iterator
from itertools import count

import numpy as np

from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.task_order import Arrival, Giving, piece, queue
from esac_mpi.comm.clock.tasks import Piece, Section
from esac_mpi.config import AESRL, Config
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.operators.update_rules import is_trained
from esac_mpi.training.forecast import Moment

EFFORT = 50  # members of a generation with barriers that take the clock as long as an arrival


def moments(
    config: Config, pieces: Pieces, on: Cluster, evaluations: Iterator[np.ndarray]
) -> Iterator[Moment]:
    """Yield where a run has come to, by generation, with its evaluations' episodes [s]."""
    aes = config.aes_rl
    virtual = float(math.ceil(aes.of_critic * aes.critic_chunk))
    turn = Piece((virtual, 0.0), (aes.critic_chunk * pieces.updating, 0.0))
    clock = queue(Giving(aes, Individuals(config, aes, pieces), lambda n: turn), aes, on)
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


class Individuals:
    """What each individual is to do: its updates, its own episode, those of the mean."""

    def __init__(self, config: Config, aes: AESRL, pieces: Pieces) -> None:
        self._seed, self._aes, self._pieces = config.seed, aes, pieces
        self._numbers = count()
        # since there is something to learn from, each counted from 1
        self._trained = self._untrained = 1
        self._updates = round(aes.actor_updates_window * pieces.length)

    def __call__(self, worker: int, now: int, taught: bool) -> Arrival:
        """Make the next individual; taught: whether there is something to learn from."""
        aes, pieces, number = self._aes, self._pieces, next(self._numbers)
        length = float(np.take(pieces.lengths, number, mode="wrap"))
        random = generator(self._seed, Purpose.SELECTION, number)
        learns = taught and is_trained(
            self._trained, self._untrained, aes.rl_gain, aes.rl_share, random
        )
        if learns:
            self._trained += 1
        elif taught:
            self._untrained += 1
        updates = self._updates if learns else 0
        steps = length + aes.mean_episodes * pieces.length
        lasted = math.ceil(aes.update_cost * updates) + steps
        played = float(pieces.lasting(1 + aes.mean_episodes, number).sum())
        work = piece(played, updates * pieces.training, updates, lasted, aes.update_cost)
        return Arrival(worker, round(length), work)
