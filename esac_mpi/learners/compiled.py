"""SAC's update in one call of _learner.c, on the buffers and parameters of sac_update.py."""

from typing import Any

import numpy as np
from torch import Tensor, from_numpy

from esac_mpi import config
from esac_mpi.learners import cpu
from esac_mpi.learners.network import Adam
from esac_mpi.learners.replay import Replay
from esac_mpi.learners.sac_update import Parts, SACUpdate
from esac_mpi.learners.training import Streams


class CompiledUpdate(SACUpdate):
    """An update by the formulas of SACUpdate; its bits are others, as sums have another order."""

    def __init__(
        self, parts: Parts, options: config.SAC, threads: int = 1, kind: str = cpu.KIND
    ) -> None:
        """kind: of vectors, avx512 or avx2; its and threads' bits are the same."""
        super().__init__(parts, options)
        stepped = [_arrays(parts.adam.get(name)) for name in ("actor", "critic", "log_temperature")]
        actor, critic, tuned = stepped
        sizes = (*parts.actor.layout.sizes[:-1], self.actions)
        factors = options.gamma, options.tau, parts.actor.layout.linear
        numbers = kind, threads, sizes, self.batch, self.ahead, *factors
        given = self.drawn, self.drawn_noise, self.sums.numpy(), _array(parts.temperature)
        networks = actor, critic, _array(parts.target.values), tuned
        self._compiled = cpu.LEARNER.Update(*numbers, *given, *networks)
        order = "critic", "actor", "log_temperature"
        self._adams = [parts.adam[name] for name in order if name in parts.adam]
        self.rows, self.noise = self.drawn[0], self.drawn_noise[0]
        self._turn = 0

    def draw(self, replay: Replay, random: Streams, count: int, *places: int | None) -> None:
        """Draw what `count` updates take, with observations as they are seen."""
        super().draw(replay, random, count, *places)
        self.transitions.finish(from_numpy(self.drawn[:count]))

    def take(self, i: int) -> None:
        """Let the next update take what was drawn for the i-th."""
        self._turn = i

    def learn_critic(self) -> None:
        """Do nothing: the update is made as a whole."""

    def learn_actor(self) -> None:
        """Make the update."""
        rates = (number for adam in self._adams for number in adam.rates())
        self._compiled.run(self._turn, *rates)


def _array(tensor: Tensor) -> np.ndarray:
    """A CPU's tensor as an array of one axis, in the same memory."""
    found: np.ndarray = tensor.view(-1).numpy()
    return found


def _arrays(adam: Adam | None) -> tuple[Any, ...]:
    """What an Adam steps and remembers, as arrays; nothing for none."""
    if adam is None:
        return ()
    return tuple(map(_array, (adam.values, adam.gradient, adam.moment1, adam.moment2)))
