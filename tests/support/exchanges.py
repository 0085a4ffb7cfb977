"""Exchanges on four ranks of two emulated nodes, some given up: each rank says `sound`."""

import time

import numpy as np
from mpi4py import MPI

from esac_mpi.comm.world import World
from esac_mpi.host.stop import Abandoned, EndsRun

LIMIT = 2000  # slices of a phase, a millisecond each: far more than any rank waits for here


class Dealt(MPI.Intracomm):
    """A communicator that sees its ranks dealt over a number of nodes."""

    nodes = 1

    def over(self, nodes):
        self.nodes = nodes
        return self

    def Split_type(self, *arguments):
        return MPI.Intracomm(self).Split(self.rank % self.nodes, self.rank)


class Phase:
    """A phase of LIMIT slices."""

    slices, waits = 0, False

    @property
    def done(self):
        return self.slices == LIMIT

    def advance(self):
        self.slices += 1
        time.sleep(1e-3)


def abandoned(exchange, nodes: int) -> None:
    """Check that all ranks abandon an exchange, rank 0 in its phase, and nothing of it stays."""
    world = World(Dealt(MPI.COMM_WORLD).over(nodes))
    world.stop.listen()
    phase = Phase() if world.leads else None
    world.begin_background(1, phase, beside=True)
    try:
        exchange(world)
        raise AssertionError("not abandoned")
    except Abandoned:
        assert not phase or phase.slices < LIMIT / 2, phase.slices
    world.free()
    world.stop.end()
    MPI.COMM_WORLD.Barrier()
    assert not MPI.COMM_WORLD.Iprobe()


def at_work(world: World, rank: int) -> None:
    """Map; `rank` gives its second member up, and no other rank of its node makes many more."""
    made = []

    def work(i):
        made.append(i)
        time.sleep(1e-3)
        if world.rank == rank and len(made) == 2:
            world.stop.give_up_at(world.clock())
            time.sleep(60)
        return np.zeros(1)

    try:
        world.map(work, 4 * LIMIT, 1)
    finally:
        assert world.nodes > 1 or len(made) < LIMIT / 2, len(made)


def waiting(world: World, rank: int) -> None:
    """Wait for rank 0; `rank` gives up meanwhile."""
    if world.rank == rank:
        world.stop.give_up_at(world.clock() + 0.02)
    world.at_root(lambda: np.zeros(1), 1)


def ends(exchange, finder: int) -> None:
    """Check that all ranks of two nodes raise what one found in its part, and know that."""
    world = World(Dealt(MPI.COMM_WORLD).over(2))

    def finds(_: int = 0) -> np.ndarray:
        if world.rank == finder:
            error = EndsRun(f"found on rank {world.rank}")
            error.add_note("in a part")
            raise error
        return np.zeros(1)

    raised = []
    try:
        exchange(world, finds)
    except EndsRun as found:
        raised = [str(found), *found.__notes__, found.told]
    assert raised == [f"found on rank {finder}", "in a part", True]
    world.free()
    MPI.COMM_WORLD.Barrier()
    assert not MPI.COMM_WORLD.Iprobe()


def bulk() -> None:
    """Map results with bulk: all have the scalars, rank 0's node alone has the rest too."""
    world, bulk = World(Dealt(MPI.COMM_WORLD).over(2)), 1000
    for k in range(3):
        table, _ = world.map(lambda i, k=k: np.full(2 + bulk, 10.0 * k + i), 9, 2 + bulk, bulk=bulk)
        assert (table[:, :2] == 10.0 * k + np.arange(9)[:, None]).all()
        assert world.node or (table == 10.0 * k + np.arange(9)[:, None]).all()
    assert (world.bytes_exchanged > 3 * 4 * bulk * 8) == (world.rank == 0), world.bytes_exchanged
    world.free()


def dealt() -> None:
    """Map; every rank knows which node did which item, also after others were dealt otherwise."""
    world = World(Dealt(MPI.COMM_WORLD).over(2))
    world.hosts = [f"node {rank % 2}" for rank in range(world.size)]
    for count, expected in ((9, None), (5, np.array([9.0, 1.0, 1.0, 1.0, 1.0]))):
        table, _ = world.map(lambda _: np.array([float(world.node)]), count, 1, expected)
        assert {*table[:, 0].tolist()} == {0.0, 1.0}
        assert [world.host(i) for i in range(count)] == [
            f"node {int(node)}" for node in table[:, 0]
        ]
    world.free()


if __name__ == "__main__":
    for exchange in (at_work, waiting):
        for rank, nodes in ((1, 1), (2, 2)):
            abandoned(lambda world, exchange=exchange, rank=rank: exchange(world, rank), nodes)
    ends(lambda world, work: world.at_root(work, 1), 0)
    ends(lambda world, work: world.map(work, 1000 * world.size, 1), 2)
    bulk()
    dealt()
    print("sound", flush=True)
