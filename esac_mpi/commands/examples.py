"""Copy the configurations and job scripts of the package to a directory of yours.

    esac-mpi examples [DIR]

Examples:
    esac-mpi examples                   # to the current directory
    esac-mpi examples ~/locomotion      # to another one
    cd $(mktemp -d) && esac-mpi examples && ls configs jobs

Writes DIR/configs (a file for each task of the papers; quickstart.toml; tuned/; experiments/) and
DIR/jobs (Slurm, PBS). Nothing is ever overwritten: exit code 2 if one exists. Cost: 0.1 s.
"""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

from esac_mpi.analysis.messages import Unusable
from esac_mpi.host.data_files import data_folder
from esac_mpi.host.errors import NotSaved
from esac_mpi.host.paths import read_path

FOLDERS = ("configs", "jobs")


def add_arguments(line: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its line."""
    here = "default: the current directory"
    line.add_argument("place", nargs="?", type=read_path, default=Path(), metavar="DIR", help=here)


def main(options: argparse.Namespace) -> Iterator[Path]:
    """Copy the folders; yield the copies. Raises Unusable where there is one."""
    place = options.place
    for folder in FOLDERS:
        if (place / folder).exists():
            there = f"{place / folder} is there already"
            raise Unusable(f"{there}: nothing was copied; choose another directory")
    for folder in FOLDERS:
        try:
            yield Path(shutil.copytree(data_folder() / folder, place / folder))
        except (shutil.Error, KeyboardInterrupt) as error:
            for copied in FOLDERS:  # which were not there: the same command is to begin anew
                shutil.rmtree(place / copied, ignore_errors=True)
            if isinstance(error, KeyboardInterrupt):
                raise
            _, file, why = error.args[0][0]  # of each file, as on a full disk
            raise Unusable(f"{file}: {why}", NotSaved.code) from error
