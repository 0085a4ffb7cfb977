"""Say what differs between two runs: configuration, task, machine and versions; and where their bits part.

    esac-mpi compare A B

Bits are those of metrics/, which promise not to depend on ranks, restarts or the machine's speed; nan equals nan. Rows are
compared as far as both runs have them; the whole states too, where both have a checkpoint of the same generation.
A task's model and what it answers in its first steps (task_model, task_probe) have other digests on other machines, too.
Reads files only: no MPI, no torch, no simulator. Cost: 0.1 s, more for large runs.
Returns 0 if the bits are equal, 1 if they part, 2 if a directory is not a run or has no generation yet, 65 if it cannot be read.
"""

import argparse
import sys

from esac_mpi.analysis.command import parser
from esac_mpi.analysis.comparison import TASK, bits, configurations, differences, machine, recorded
from esac_mpi.config import ConfigError
from esac_mpi.host.paths import given
from esac_mpi.record import Refused, Run, Unreadable


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    line.add_argument("a", type=given, metavar="A", help="run directory")
    line.add_argument("b", type=given, metavar="B", help="run directory")
    return line


def main(argv: list[str]) -> int:
    """Print the comparison."""
    options = command_line().parse_args(argv)
    try:
        a, b = Run.open(options.a), Run.open(options.b)
        said, part = bits(a, b)
    except (Refused, ConfigError, Unreadable) as error:
        print(error, file=sys.stderr)
        return 65 if isinstance(error, Unreadable) else 2
    print(f"A {a.path}, {a.generation} generations\nB {b.path}, {b.generation} generations")
    sections = {
        "configuration": list(configurations(a, b)),
        "task": list(differences(recorded(a, TASK), recorded(b, TASK))),
        "machine and versions": list(differences(machine(a), machine(b))),
        "bits of metrics/": said,
    }
    for title, lines in sections.items():
        print(f"\n{title}:\n" + "\n".join(f"  {line}" for line in lines or ["equal"]))
    return int(part) if min(a.generation, b.generation) else 2
