"""Copy the configurations and job scripts that come with the program into a directory of yours.

    esac-mpi examples [DIR]

Writes DIR/configs (a file a task of the papers; quickstart.toml; tuned/; experiments/) and DIR/jobs
(Slurm, PBS); DIR is the current directory if it is not named. What is there already is never
overwritten. Cost: 0.1 s.
Returns 0; 2 where configs or jobs are there, or cannot be written.
"""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

from esac_mpi.analysis.command import ended, parser
from esac_mpi.analysis.messages import Unusable
from esac_mpi.host.data_files import shipped
from esac_mpi.host.paths import given

FOLDERS = ("configs", "jobs")


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line, here = parser(__doc__), "default: the current directory"
    line.add_argument("place", nargs="?", type=given, default=Path(), metavar="DIR", help=here)
    return line


def copied(place: Path) -> Iterator[Path]:
    """Copy the folders; yield the copies. Raises Unusable where there is one."""
    for folder in FOLDERS:
        if (place / folder).exists():
            there = f"{place / folder} is there already"
            raise Unusable(f"{there}: nothing was copied; choose another directory")
    for folder in FOLDERS:
        yield Path(shutil.copytree(shipped() / folder, place / folder))


def main(argv: list[str]) -> int:
    """Copy, and print what was; return the exit code."""
    options = command_line().parse_args(argv)
    return ended(lambda: copied(options.place))
