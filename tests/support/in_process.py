"""Runs in the tests' process: quick, and their parts can be exchanged. Signals stay with pytest."""

import sys
from contextlib import ExitStack, redirect_stderr
from io import StringIO
from pathlib import Path
from unittest import mock

from mpi4py import MPI
from short_runs import snapshot

from esac_mpi.comm.world import World
from esac_mpi.config import load
from esac_mpi.training import check, loop
from esac_mpi.training.check import cost, directory, learner
from esac_mpi.training.ended import Ended
from esac_mpi.training.forecast import automatic, measured

MOMENTS = (  # how long --check measures
    (automatic, "PLAYING", 0.01),
    (automatic, "UPDATING", 0.01),
    (cost, "PLAYING", 0.01),
    (cost, "UPDATING", 0.01),
    (directory, "WRITTEN", 2**20),
    (learner, "SECONDS", 0.01),
    (measured, "UPDATES", 20),
    (measured, "MEASURING", 0.01),
)


def started(*words: object) -> int:
    """Make the run of a command line; return its exit code, and print why, as the program does."""
    argv = [str(word) for word in words]
    world = World(MPI.COMM_SELF)
    try:
        return loop.train(*load(argv), world, ["python", "-m", "esac_mpi", *argv])
    except Ended as end:
        print(f"esac_mpi: {end}", file=sys.stderr, flush=True)
        return end.code
    finally:
        world.free()


def refused(*words: object, code: int = 2) -> str:
    """Return the one sentence with which a start is refused, which changes nothing in its place."""
    place = Path(words[words.index("--run-dir") + 1])
    before = snapshot(place)
    with redirect_stderr(StringIO()) as printed:
        assert started(*words) == code
    assert snapshot(place) == before
    (said,) = printed.getvalue().splitlines()
    return said


def checked(*words: object) -> int:
    """Look at what a command line would begin, as --check does; return the exit code."""
    world = World(MPI.COMM_SELF)
    with ExitStack() as patches:
        patches.callback(world.free)
        for place, name, value in MOMENTS:
            patches.enter_context(mock.patch.object(place, name, value))
        config, fresh = load([str(word) for word in words])
        return check.check(config, world, fresh=fresh)
