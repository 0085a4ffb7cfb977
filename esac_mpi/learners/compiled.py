"""SAC's update in one call of _learner.c, on the buffers and parameters of sac_update.py."""

from typing import Any

import numpy as np
from torch import Tensor

from esac_mpi import config
from esac_mpi.learners import cpu
from esac_mpi.learners.network import Adam
from esac_mpi.learners.sac_update import Parts, SACUpdate


class CompiledUpdate(SACUpdate):
    """An update by the formulas of SACUpdate; its bits are others, as sums have another order."""

    def __init__(self, parts: Parts, options: config.SAC, kind: str = cpu.KIND) -> None:
        """kind: of vectors, avx512 or avx2; the bits are the same."""
        super().__init__(parts, options)
        stepped = [_arrays(parts.adam.get(name)) for name in ("actor", "critic", "log_temperature")]
        actor, critic, tuned = stepped
        sizes = (*parts.actor.layout.sizes[:-1], self.actions)
        numbers = kind, sizes, self.batch, options.gamma, options.tau, parts.actor.layout.linear
        given = self.rows, self.noise, self.sums.numpy(), _array(parts.temperature)
        networks = actor, critic, _array(parts.target.values), tuned
        self._compiled = cpu.LEARNER.Update(*numbers, *given, *networks)
        order = "critic", "actor", "log_temperature"
        self._adams = [parts.adam[name] for name in order if name in parts.adam]

    def learn_critic(self) -> None:
        """Take the batch; the update is made as a whole."""
        self.transitions.move()

    def learn_actor(self) -> None:
        """Make the update."""
        self._compiled.run(*(number for adam in self._adams for number in adam.rates()))


def _array(tensor: Tensor) -> np.ndarray:
    """A CPU's tensor as an array of one axis, in the same memory."""
    found: np.ndarray = tensor.view(-1).numpy()
    return found


def _arrays(adam: Adam | None) -> tuple[Any, ...]:
    """What an Adam steps and remembers, as arrays; nothing for none."""
    if adam is None:
        return ()
    return tuple(map(_array, (adam.values, adam.gradient, adam.moment1, adam.moment2)))
