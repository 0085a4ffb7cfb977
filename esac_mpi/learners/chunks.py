"""Updates on a GPU: captured once as graphs, launched some hundred at a time, and not waited for.

An update is lists of operations on fixed memory (network.py), so that it can be captured as it is: a launch then costs the host
some microseconds, whatever is in it. What differs from update to update comes beside it: places of transitions, noise and Adam's
rates are drawn on the host at their addresses, as on a CPU, for a whole chunk; each launch takes its own by a counter on the
device. The transitions themselves lie there (mirror.py).

Never run on a device so far; tests/test_chunks.py holds the logic with one that is none.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from esac_mpi.learners.gpu import Gpu, Work
from esac_mpi.learners.mirror import Mirror
from esac_mpi.learners.network import Adam, Operations
from esac_mpi.learners.replay import Replay
from esac_mpi.learners.training import Streams
from esac_mpi.turns import ON_DEVICE

CHUNK = 256  # updates launched at once, at most


class Learner(Protocol):
    """What is captured of a learner."""

    replay: Replay
    adam: dict[str, Adam]
    update: Any  # transitions, drawn, networks

    def due(self) -> tuple[Operations, ...]:
        """Return what the next update is made of."""

    def kept(self) -> list[Tensor]:
        """Return what an update changes and a later one starts from."""


class Half:
    """One of two places for what a chunk takes from the host: its updates are `first`, `first` + 1, ... of both."""

    def __init__(self, first: int, inputs: list[Tensor], gpu: Gpu) -> None:
        self.first = first
        self._inputs = [tensor[first : first + CHUNK] for tensor in inputs]
        self._hosts = [gpu.host(part) for part in self._inputs]
        self.arrays = [host.numpy() for host in self._hosts]
        self.ended: Callable[[], bool] = lambda: True  # whether the device has done with it

    def bring(self, gpu: Gpu, count: int) -> None:
        """Bring what `arrays` have for so many updates."""
        gpu.bring((to[:count], host[:count]) for to, host in zip(self._inputs, self._hosts, strict=True))


class Chunks:
    """The updates of a learner as graphs: one for each way in which its lists of operations follow one another.

    While a chunk runs, the next one is drawn and brought over, into the other half.
    """

    def __init__(self, learner: Learner, gpu: Gpu) -> None:
        self._learner, self._gpu = learner, gpu
        batch, drawn = learner.update.transitions, learner.update.drawn
        self._mirror = Mirror(learner.replay, batch.tensor.device)
        self._at = batch.tensor.new_zeros(1, dtype=torch.int64)  # whose turn it is, of both halves' updates
        rates = batch.tensor.new_zeros(len(learner.adam), 2)
        self._where = batch.tensor.new_zeros(len(batch.rows), dtype=torch.int64)
        self._taken = [self._where, rates, *([drawn.tensor] if drawn else [])]  # what one update takes
        self._inputs = [tensor.new_zeros(2 * CHUNK, *tensor.shape) for tensor in self._taken]  # what all of both halves do
        self._halves = [Half(first, self._inputs, gpu) for first in (0, CHUNK)]
        for adam, given in zip(learner.adam.values(), rates, strict=True):
            adam.take_rates(given)
        self._graphs: dict[tuple[object, ...], Work] = {}

    @staticmethod
    def bytes(learner: Learner) -> int:
        """Return what a learner's chunks and mirror take on the device, from its shapes [bytes]."""
        update, ring = learner.update, learner.replay.ring
        drawn = update.drawn.tensor.nbytes if update.drawn else 0
        return ring.nbytes + 2 * CHUNK * (8 * len(update.rows) + 8 * len(learner.adam) + drawn)

    def make(
        self, updates: int, random: Streams, added: int | None = None, newest: int | None = None
    ) -> Generator[int, None, None]:
        """Make updates; added, newest: from which transitions, as in `Replay.places`.

        Yields how many were launched, and ON_DEVICE while there is nothing to do until the device has caught up.
        """
        if self._mirror.follow():
            self._graphs.clear()
        while updates:
            half, count = self._halves[0], min(updates, CHUNK)
            while not half.ended():
                yield ON_DEVICE
            launches = self._drawn(half, count, random, added, newest)
            if not all(self._key(due) in self._graphs for due in launches):
                yield from self._caught_up()
                self._capture(launches)
            half.bring(self._gpu, count)
            self._gpu.launch(partial(self._at.fill_, half.first))
            for due in launches:
                self._gpu.launch(self._graphs[self._key(due)])
            half.ended = self._gpu.mark()
            self._halves.reverse()
            updates -= count
            yield count
        yield from self._caught_up()

    def _caught_up(self) -> Generator[int, None, None]:
        for half in self._halves:
            while not half.ended():
                yield ON_DEVICE

    def _drawn(
        self, half: Half, count: int, random: Streams, added: int | None, newest: int | None
    ) -> list[tuple[Operations, ...]]:
        """Draw what so many updates take; return what each is made of."""
        where, rates, *noise = half.arrays
        where[:count] = self._learner.replay.places(random.sampling, (count, where.shape[1]), added, newest)
        for array in noise:
            random.update.standard_normal(dtype=np.float32, out=array[:count])
        launches, adams = [], list(self._learner.adam.values())
        for i in range(count):
            launches.append(self._learner.due())
            for operations in launches[-1]:
                for adam in operations.adams:
                    rates[i, adams.index(adam)] = adam.rates()
        return launches

    def _key(self, due: tuple[Operations, ...]) -> tuple[object, ...]:
        """Return what a graph depends on: all else has its place for good, and what lies there may change."""
        return self._learner.update.transitions.standardised, *map(id, due)

    def _capture(self, launches: list[tuple[Operations, ...]]) -> None:
        """Capture what is not yet; leave no trace of it."""
        kept = [(tensor, tensor.clone()) for tensor in (*self._learner.kept(), self._at)]
        for due in launches:
            if (key := self._key(due)) in self._graphs:
                continue

            def update(due: tuple[Operations, ...] = due) -> None:
                for operations in (self._take(), *due):
                    operations.run()

            self._at.zero_()
            self._gpu.warm_up(update)
            self._graphs[key] = self._gpu.capture(update)
        for tensor, before in kept:
            tensor.copy_(before)
        for network in self._learner.update.networks:
            network.refresh()

    def _take(self) -> Operations:
        """Return what brings an update what it takes, and the counter to the next one."""
        do, batch = Operations(), self._learner.update.transitions
        for all_of_them, one in zip(self._inputs, self._taken, strict=True):
            do.note(torch.index_select, all_of_them, 0, self._at, out=one[None])
        do.note(torch.index_select, self._mirror.rows, 0, self._where, out=batch.tensor)
        do.note(batch.arrived)
        do.note(self._at.add_, 1)
        return do
