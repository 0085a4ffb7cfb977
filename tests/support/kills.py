"""Program or command on one process, killed at named moments; the next goes on from there.

    python tests/support/kills.py '[["esac_mpi.algorithms.erl_births:mutate", 9], ...]' ARGUMENTS

Kills (SIGKILL) in the given call of a function, before it returns. Prints one JSON list: how each
process ended.
"""

import json
import os
import signal
import sys
from importlib import import_module

from esac_mpi import learners
from esac_mpi.commands import NAMES

learners.load("erl")  # once for all


def armed(name: str, call: int) -> None:
    """Let the given call of a function be the last thing that this process does."""
    path, _, rest = name.partition(":")
    where, left = import_module(path), [call]
    *owners, function = rest.split(".")
    for owner in owners:
        where = getattr(where, owner)
    honest = getattr(where, function)

    def last(*arguments, **options):
        result = honest(*arguments, **options)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(where, function, last)


def ended(name: str, call: int, argv: list[str]) -> int:
    """Return how a process ended that was to be killed there."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    armed(name, call)
    os.dup2(2, 1)
    where = "esac_mpi.commands" if argv[0] in NAMES else "esac_mpi"
    os._exit(import_module(f"{where}.__main__").main(argv))  # which initialises MPI


print(json.dumps([ended(name, call, sys.argv[2:]) for name, call in json.loads(sys.argv[1])]))
