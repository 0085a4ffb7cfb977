"""Program or command, run after run on the same ranks: `mpirun -n N python many_ranks.py FOLDER`.

Every rank reads a pipe of its own, FOLDER/RANK. A line of it has a command line, the directory that
it is called in, an environment, the number of ranks that run it, the nodes that these are dealt
over (0: as they are, else with what tests/support/program.py has) and the files that stdout, stderr
and, after the run, each rank's exit code go to. Of the environment FREE is what /dev/shm has
[bytes], ANYWAY for how many episodes of each worker the replay of AES-RL has room.
"""

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from exchanges import Dealt
from mpi4py import MPI

from esac_mpi import __main__, record
from esac_mpi.algorithms import aes_state
from esac_mpi.comm import node
from esac_mpi.comm.world import World
from esac_mpi.commands import NAMES
from esac_mpi.commands import __main__ as commands

WORLD = MPI.COMM_WORLD
# ranks 0 to `last` each
FIRST = [WORLD.Split(0 if WORLD.rank <= last else MPI.UNDEFINED) for last in range(WORLD.size)]


def program(
    words: list[str], variables: dict[str, str], ranks: int, nodes: int, streams: list[str]
) -> int:
    """Run the program on the first ranks, this one among them; return its exit code on this one."""
    with ExitStack() as changed:
        for number, path in enumerate(streams, 1):
            kept = os.dup(number)
            changed.callback(os.close, kept)
            changed.callback(os.dup2, kept, number)
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.dup2(file, number)
            os.close(file)
        changed.callback(sys.stdout.flush)
        changed.enter_context(mock.patch.dict(os.environ, variables))
        if "own_envs" in sys.modules:
            sys.modules["own_envs"].count_anew()
        world = Dealt(FIRST[ranks - 1]).over(nodes) if nodes else FIRST[ranks - 1]
        made = World.__init__.__defaults__
        changed.enter_context(mock.patch.object(World.__init__, "__defaults__", (world, *made[1:])))
        if nodes:
            changed.enter_context(mock.patch.object(record.run, "PUBLISH_EVERY", 0.0))
        if "FREE" in variables:
            free = mock.Mock(return_value=int(variables["FREE"]))
            changed.enter_context(mock.patch.object(node, "free_memory", free))
        if "ANYWAY" in variables:
            room = {"AROUND": 0, "ANYWAY": int(variables["ANYWAY"])}
            changed.enter_context(mock.patch.multiple(aes_state, **room))
        return commands.main(words) if words[0] in NAMES else __main__.main(words)


with open(Path(sys.argv[1]) / str(WORLD.rank)) as lines:
    for line in lines:
        words, folder, variables, ranks, nodes, streams, answer = json.loads(line)
        if WORLD.rank < ranks:
            os.chdir(folder)
            code = program(words, variables, ranks, nodes, streams)
            told = Path(f"{answer}.{WORLD.rank}")
            Path(f"{told}.part").write_text(str(code))
            Path(f"{told}.part").rename(told)
