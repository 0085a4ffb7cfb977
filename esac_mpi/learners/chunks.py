"""Updates on a GPU: captured once as graphs, launched some hundred at a time, not waited for.

An update is lists of operations on fixed memory (network.py), so that several can be captured as
one graph: a launch then costs the host some microseconds, whatever is in it. What differs between
updates is copied beside: indices of transitions, noise and Adam's rates are drawn on the host at
their addresses, as on a CPU; each update takes its own by a counter on the device. The transitions
are mirrored there; checkpoints store the replay itself.

tests/learners/test_chunks.py checks the logic with a stand-in for the device, tools/gpu_check on a
GPU.
"""

import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from esac_mpi.host.cooperative import ON_DEVICE, run
from esac_mpi.learners.gpu import Cuda, Work
from esac_mpi.learners.network import Adam, Operations
from esac_mpi.learners.replay import Replay
from esac_mpi.learners.training import Streams, streams
from esac_mpi.learners.updates import Update

CHUNK = 256  # updates that the device is given ahead, at most twice
# of these, drawn and launched without a break, as one graph: 1.5 ms to draw, for 17-number actions
SLICE = 16

Due = tuple[Operations, ...]  # what an update is made of


class Learner(Protocol):
    """What is captured of a learner."""

    replay: Replay
    adam: dict[str, Adam]
    update: Update

    def due(self) -> Due:
        """List the parts of the next update."""

    def carried(self) -> list[Tensor]:
        """List what an update changes and a later one starts from."""


class Half:
    """One of two places for a chunk's inputs from the host, of updates `first`, `first` + 1, ...

    Its host memory is filled again only after `ended`, when no copy from it is on its way.
    """

    def __init__(self, first: int, inputs: list[Tensor], gpu: Cuda) -> None:
        self.first = first
        self._inputs = [tensor[first : first + CHUNK] for tensor in inputs]
        self._hosts = [gpu.host(part) for part in self._inputs]
        self.arrays = [host.numpy() for host in self._hosts]
        self.ended: Callable[[], bool] = lambda: True  # whether the device has done with it

    def bring(self, gpu: Cuda, part: slice) -> None:
        """Bring what `arrays` have for some of the updates."""
        gpu.bring(
            (to[part], host[part]) for to, host in zip(self._inputs, self._hosts, strict=True)
        )


class Mirror:
    """A mirror of `replay.ring`, float32 [capacity + reserve, width], in a device's memory."""

    def __init__(self, replay: Replay, device: torch.device) -> None:
        self._replay, self._device = replay, device
        self._make()

    def _make(self) -> None:
        self.rows = torch.zeros(0)  # first lets go of what there was
        self.rows = torch.zeros(self._replay.ring.shape, device=self._device)
        self._until = 0  # transitions that have come so far, of those ever added
        self._rewritten = self._replay.rewritten

    def follow(self) -> bool:
        """Copy over what the replay has and this lacks; return whether all of it has moved."""
        replay, ring, moved = self._replay, self._replay.ring, False
        if self._rewritten != replay.rewritten:
            moved = self.rows.shape != ring.shape
            self._until, self._rewritten = 0, replay.rewritten
            if moved:
                self._make()
        i = max(self._until, replay.added - len(ring))
        while i < replay.added:
            first = i % len(ring)
            last = min(first + replay.added - i, len(ring))
            self.rows[first:last].copy_(torch.from_numpy(ring[first:last]))
            i += last - first
        self._until = replay.added
        return moved


class Chunks:
    """A learner's updates as graphs: one for each sequence of its lists of operations in a slice.

    Fewer updates than a slice are launched one by one. While a chunk runs, the next one is drawn
    and copied over, into the other half.
    """

    def __init__(self, learner: Learner, gpu: Cuda) -> None:
        self._learner, self._gpu = learner, gpu
        batch, noise = learner.update.transitions, learner.update.noise_input
        self._mirror = Mirror(learner.replay, batch.tensor.device)
        # whose turn it is, of both halves' updates
        self._at = batch.tensor.new_zeros(1, dtype=torch.int64)
        rates = batch.tensor.new_zeros(len(learner.adam), 2)
        self._where = batch.tensor.new_zeros(len(batch.rows), dtype=torch.int64)
        # what one update takes
        self._taken = [self._where, rates, *([noise.tensor] if noise else [])]
        # what all of both halves do
        self._inputs = [tensor.new_zeros(2 * CHUNK, *tensor.shape) for tensor in self._taken]
        self._halves = [Half(first, self._inputs, gpu) for first in (0, CHUNK)]
        for adam, given in zip(learner.adam.values(), rates, strict=True):
            adam.take_rates(given)
        self._graphs: dict[tuple[object, ...], Work] = {}

    @staticmethod
    def bytes(learner: Learner) -> int:
        """Sum what a learner's chunks and mirror take on the device, from its shapes [bytes]."""
        update, ring = learner.update, learner.replay.ring
        noise = update.noise_input.tensor.nbytes if update.noise_input else 0
        return ring.nbytes + 2 * CHUNK * (8 * len(update.rows) + 8 * len(learner.adam) + noise)

    def make(
        self, updates: int, random: Streams, added: int | None = None, newest: int | None = None
    ) -> Generator[int, None, None]:
        """Make updates; added, newest: from which transitions, as in `Replay.places`.

        Yields how many were launched, a slice at a time, and ON_DEVICE while only the device works.
        """
        if updates and self._mirror.follow():
            self._graphs.clear()
        while updates:
            half, count = self._halves[0], min(updates, CHUNK)
            while not half.ended():
                yield ON_DEVICE
            for first in range(0, count, SLICE):
                part = slice(first, min(first + SLICE, count))
                made = self._draw(half, part, random, added, newest)
                launches: list[tuple[Due, ...]] = [(due,) for due in made]
                if len(made) == SLICE:
                    launches = [tuple(made)]
                if not all(self._key(each) in self._graphs for each in launches):
                    yield from self._caught_up()
                    self._capture(launches)
                half.bring(self._gpu, part)
                if not first:
                    self._gpu.launch(partial(self._at.fill_, half.first))
                for each in launches:
                    self._gpu.launch(self._graphs[self._key(each)])
                half.ended = self._gpu.mark()
                yield part.stop - first
            self._halves.reverse()
            updates -= count
        yield from self._caught_up()

    def _caught_up(self) -> Generator[int, None, None]:
        for half in self._halves:
            while not half.ended():
                yield ON_DEVICE

    def _draw(
        self, half: Half, part: slice, random: Streams, added: int | None, newest: int | None
    ) -> list[Due]:
        """Draw what some of a half's updates take; return what each is made of."""
        where, rates, *noise = (array[part] for array in half.arrays)
        where[:] = self._learner.replay.places(random.sampling, where.shape, added, newest)
        for array in noise:
            random.update.standard_normal(dtype=np.float32, out=array)
        made, adams = [], list(self._learner.adam.values())
        for i in range(len(rates)):
            made.append(self._learner.due())
            for operations in made[-1]:
                for adam in operations.adams:
                    rates[i, adams.index(adam)] = adam.rates()
        return made

    def _key(self, together: tuple[Due, ...]) -> tuple[object, ...]:
        """List what a graph depends on: all else keeps its place, and its content may change."""
        return self._learner.update.transitions.standardised, *(
            tuple(map(id, due)) for due in together
        )

    def _capture(self, launches: list[tuple[Due, ...]]) -> None:
        """Capture what is not yet, when the device has caught up; leave no trace of it."""
        self._inputs[0].zero_()  # done with; a ring that is smaller now may lack such places
        kept = [(tensor, tensor.clone()) for tensor in (*self._learner.carried(), self._at)]
        for together in launches:
            if (key := self._key(together)) in self._graphs:
                continue
            for due in dict(zip(key[1:], together, strict=True)).values():  # each of its kinds once
                self._at.zero_()
                self._gpu.warm_up(partial(self._update, (due,)))
            self._graphs[key] = self._gpu.capture(partial(self._update, together))
        for tensor, before in kept:
            tensor.copy_(before)
        for network in self._learner.update.networks:
            network.refresh()

    def _update(self, together: tuple[Due, ...]) -> None:
        """Make updates, from the one on that the counter says."""
        for due in together:
            for operations in (self._take(), *due):
                operations.run()

    def _take(self) -> Operations:
        """Make what brings an update what it takes, and the counter to the next one."""
        do, batch = Operations(), self._learner.update.transitions
        for all_of_them, one in zip(self._inputs, self._taken, strict=True):
            do.note(torch.index_select, all_of_them, 0, self._at, out=one[None])
        do.note(torch.index_select, self._mirror.rows, 0, self._where, out=batch.tensor)
        do.note(batch.finish, batch.tensor)
        do.note(self._at.add_, 1)
        return do


def updates_per_second(
    learner: Any, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Measure a new learner's updates per second on random transitions; it is spoilt by that."""
    rows = np.random.default_rng(0).uniform(-1, 1, (len(learner.update.rows), learner.replay.width))
    learner.replay.add_rows(rows.astype(np.float32))
    learner.update.start()
    random, several, made = streams(0, 0), 4 * CHUNK, 0
    run(learner.chunks.make(several, random))  # captures
    start = now = clock()
    while now < start + seconds:
        run(learner.chunks.make(several, random))
        made, now = made + several, clock()
    return made / (now - start)
