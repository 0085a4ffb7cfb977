"""One thread a rank for linear algebra: ranks share the cores, and bits depend on the number."""

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# that a library reads when it is loaded
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
OPENBLAS = (
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)  # its two functions


def limit_program() -> None:
    """Let what is loaded from now on have one thread, for as long as the process lives."""
    for name in VARIABLES:
        os.environ[name] = "1"


@contextmanager
def single_threaded() -> Iterator[bool]:
    """Let every OpenBLAS and torch have one thread, loaded now or later; put back what they had.

    Yields whether that is known to hold of the BLAS: another one keeps its number.
    """
    usual = first_number(os.environ.get(VARIABLES[0], "")) or len(os.sched_getaffinity(0))
    variables = {name: os.environ.get(name) for name in VARIABLES}
    before = {path: get() for path, get, _ in openblas()}
    torch: Any = sys.modules.get("torch")
    torch_before = torch.get_num_threads() if torch else usual
    limit_program()
    set_openblas({})
    if torch:
        torch.set_num_threads(1)
    try:
        yield bool(before) or all(variables[name] == "1" for name in VARIABLES)
    finally:
        for name, value in variables.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        set_openblas(before, usual)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(torch_before)


def first_number(text: str) -> int:
    """The number that a text begins with, 0 for none: OpenMP has lists, a number for each level."""
    found = re.match(r"\s*(\d+)", text)
    return int(found[1]) if found else 0


def mapped_files() -> list[str]:
    """List the files that this process has mapped, as libraries are, by their paths."""
    maps = Path("/proc/self/maps")
    lines = os.fsdecode(maps.read_bytes()).split("\n") if maps.exists() else []
    return sorted({line.split(maxsplit=5)[5] for line in lines if "/" in line})


def openblas() -> Iterator[tuple[str, Callable[[], int], Callable[[int], None]]]:
    """Yield each loaded OpenBLAS's file, and what gets and sets its number of threads."""
    for path in mapped_files():
        if "openblas" not in os.path.basename(path).lower():
            continue
        try:
            library = ctypes.CDLL(path)
        except (OSError, UnicodeError):  # no library, or one that was deleted since
            continue
        for name in OPENBLAS:
            get, put = name.format("get"), name.format("set")
            if hasattr(library, put):
                yield path, getattr(library, get), getattr(library, put)
                break


def set_openblas(numbers: Mapping[str, int], others: int = 1) -> None:
    """Give each loaded OpenBLAS so many threads, by its file; those without a number `others`."""
    for path, _, put in openblas():
        put(numbers.get(path, others))
