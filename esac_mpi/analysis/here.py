"""Where a task of one's own is found: as in training, also in the current directory. Part of the tools that make a task.

`python -m esac_mpi` looks there by itself, a script only beside itself.
"""

import os
import sys


def look_here() -> None:
    """Let modules of the current directory be imported, behind the tools' own."""
    if not sys.flags.safe_path and os.getcwd() not in sys.path:
        sys.path.insert(1, os.getcwd())
