"""What proves the program and is never installed: bench/, race/, torture.py, gpu_check.py.

May import: all of esac_mpi, which imports nothing of it. Called as `python -m tools.bench`.
Begin with: bench/__main__.py.
"""

import argparse
import re

# in the environment, before numpy is imported: libraries with a thread each
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def parser(about: str | None) -> argparse.ArgumentParser:
    """Make the command line of a tool, whose docstring is its help and names it."""
    text = about or ""
    prog = re.search(r"python -m tools\.[a-z_.]+", text)
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=prog and prog[0], description=text, formatter_class=raw)
