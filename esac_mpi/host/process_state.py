"""What a task may change of its process, and how that is put back (docs/reference/tasks.md).

A task is code of a user's own: its module may do anything when it is imported, its class when it is
made, reset or stepped.
"""

import ctypes
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import numpy as np

from esac_mpi.host import streams, threads
from esac_mpi.host.invocation import directory

READ = (  # how variables begin that libraries, launchers and batch systems read; a task's own stay
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "CUDA_", "CUBLAS_",
    "NVIDIA_", "TORCH", "PYTORCH_", "SLURM", "PBS_", "LSB_", "SGE_", "JOB_", "NQUEUES", "OMPI_",
    "PMI", "MPI", "HYDRA_", "HDF5_", "MUJOCO_GL", "PYOPENGL_", "TERM",
)  # fmt: skip
LIBC = ctypes.CDLL(None)
ACTION = 256  # more than a struct sigaction has, and its first member, the handler [bytes]
POINTER = 8
CAUGHT = (  # signals by which a run is stopped, warned, or hears of its children and readers
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGXCPU, signal.SIGCHLD, signal.SIGCONT, signal.SIGPIPE,
)  # fmt: skip
PLAIN = 0, True  # rounds to the nearest, and has subnormal numbers
TORCH = (  # torch's functions that get a setting and set it, and what it begins with
    ("get_default_dtype", "set_default_dtype", "torch.float32"),
    ("get_default_device", "set_default_device", "cpu"),
    ("is_grad_enabled", "set_grad_enabled", True),
    ("get_deterministic_debug_mode", "set_deterministic_debug_mode", 0),
    ("get_num_threads", "set_num_threads", 1),
)


class Part(NamedTuple):
    """A part of the process: how it is now (no view), and what puts it as it was."""

    found: Callable[[], Any]
    put: Callable[[Any], object]


def set_directory(was: str) -> None:
    """Go back to a directory, unless somebody has moved or deleted it meanwhile."""
    with suppress(OSError):
        os.chdir(was)


def umask() -> int:
    """Read the umask, which can only be asked for by setting it."""
    now = os.umask(0o077)
    os.umask(now)
    return now


def handlers() -> dict[int, tuple[Any, bytes]]:
    """Read signals' handlers, Python's and the system's, which C code may have changed unseen."""
    action, found = ctypes.create_string_buffer(ACTION), dict[int, tuple[Any, bytes]]()
    for number in CAUGHT:
        LIBC.sigaction(number, None, action)
        found[number] = signal.getsignal(number), action.raw[:POINTER]
    return found


def set_handlers(was: dict[int, tuple[Any, bytes]]) -> None:
    """Restore signal handlers, in the main thread only."""
    now = handlers() if threading.current_thread() is threading.main_thread() else was
    for number, (handler, _) in was.items():
        if now[number] != was[number]:
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def variables() -> dict[str, str]:
    """Read the environment variables that others than the task read."""
    return {name: value for name, value in os.environ.items() if name.startswith(READ)}


def set_variables(was: dict[str, str]) -> None:
    """Restore the environment variables that others than the task read."""
    for name in variables().keys() - was.keys():
        del os.environ[name]
    os.environ.update(was)


def set_search_path(was: list[str]) -> None:
    """Restore the module search path, with a task's folders after it."""
    sys.path[:] = [*was, *(path for path in sys.path if path not in was)]


def loggers() -> tuple[int, dict[logging.Logger, tuple[bool, bool, int]]]:
    """Read which messages of all are dropped, and of our own loggers what decides on theirs."""
    ours = [
        each
        for name, each in logging.root.manager.loggerDict.copy().items()  # threads add to it
        if name.startswith("esac_mpi") and isinstance(each, logging.Logger)
    ]
    found = {each: (each.disabled, each.propagate, each.level) for each in ours}
    return logging.root.manager.disable, found


def set_loggers(was: tuple[int, dict[logging.Logger, tuple[bool, bool, int]]]) -> None:
    """Restore the logging configuration."""
    logging.disable(was[0])
    for each in loggers()[1]:  # one that was only a name before is as Python makes it
        each.disabled, each.propagate, level = was[1].get(each, (False, True, logging.NOTSET))
        each.setLevel(level)


def libm(name: str, *given: Any) -> int:
    """Call a function of the C library for mathematics; 0 for another one than glibc."""
    with suppress(OSError, AttributeError):
        return int(getattr(ctypes.CDLL("libm.so.6"), name)(*given))
    return 0


def reset_arithmetic(was: tuple[int, bool]) -> None:
    """Restore plain arithmetic."""
    if was == PLAIN:
        libm("fesetenv", ctypes.c_void_p(-1))  # FE_DFL_ENV


def blas() -> dict[str, int]:
    """Read the OpenBLAS libraries whose number of threads is not one."""
    return {path: number for path, get, _ in threads.openblas() if (number := get()) != 1}


def torch() -> list[Any]:
    """Read torch's settings; of one that is not loaded, those that it begins with."""
    loaded: Any = sys.modules.get("torch")
    if not hasattr(loaded, "get_default_device"):
        return [*(begins for *_, begins in TORCH), "highest", True]
    kind, device, *others = [getattr(loaded, get)() for get, *_ in TORCH]
    precision = None
    with suppress(RuntimeError):  # it has been set by torch's newer names, which must not be mixed
        precision = loaded.get_float32_matmul_precision()
    fills = loaded.utils.deterministic.fill_uninitialized_memory
    return [str(kind), str(device), *others, precision, fills]


def set_torch(was: list[Any]) -> None:
    """Restore torch's settings, if it is loaded."""
    loaded: Any = sys.modules.get("torch")
    if not hasattr(loaded, "get_default_device"):
        return
    kind, device, *others, precision, fills = was
    values = getattr(loaded, kind.partition(".")[2]), None if device == "cpu" else device, *others
    for (_, put, _), value in zip(TORCH, values, strict=True):
        getattr(loaded, put)(value)
    if precision is not None:
        loaded.set_float32_matmul_precision(precision)
    loaded.utils.deterministic.fill_uninitialized_memory = fills


def torch_devices() -> list[Any]:
    """Read the states of torch's random numbers, and those of GPUs and the one in use, if any."""
    loaded: Any = sys.modules.get("torch")
    if not hasattr(loaded, "get_default_device"):
        return []
    if not loaded.cuda.is_initialized():
        return [loaded.get_rng_state()]
    return [loaded.get_rng_state(), loaded.cuda.get_rng_state_all(), loaded.cuda.current_device()]


def set_torch_devices(was: list[Any]) -> None:
    """Restore what torch_devices read; what was not there then is left as it is."""
    if was:
        loaded: Any = sys.modules["torch"]
        puts = loaded.set_rng_state, loaded.cuda.set_rng_state_all, loaded.cuda.set_device
        for put, part in zip(puts, was, strict=False):
            put(part)


LIGHT = {  # takes microseconds
    "the current directory": Part(directory, set_directory),
    "the umask": Part(umask, os.umask),
    "handlers of signals": Part(handlers, set_handlers),
    "blocked signals": Part(
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        lambda was: signal.pthread_sigmask(signal.SIG_SETMASK, was),
    ),
    "environment variables": Part(variables, set_variables),
    "sys.argv": Part(lambda: sys.argv[:], lambda was: setattr(sys, "argv", was)),
    "sys.path": Part(lambda: sys.path[:], set_search_path),
    "filters of warnings": Part(
        lambda: [*warnings.filters], lambda was: setattr(warnings, "filters", was)
    ),
    "loggers": Part(loggers, set_loggers),
    "numpy's errors": Part(np.geterr, lambda was: np.seterr(**was)),
}  # fmt: skip
BITS = {  # that decide what a run computes
    "the cores that it may run on": Part(
        lambda: os.sched_getaffinity(0), lambda was: os.sched_setaffinity(0, was)
    ),
    # how this thread rounds, and whether it has subnormals: a library built for speed has none
    "how numbers are rounded": Part(
        lambda: (libm("fegetround"), sys.float_info.min / 2 > 0), reset_arithmetic
    ),
    "the threads of BLAS": Part(blas, threads.set_openblas),
    "torch's settings": Part(torch, set_torch),
}
GUEST = (  # what a training changes beside threads in a process that goes on after it
    LIGHT["environment variables"],
    BITS["torch's settings"],
    Part(random.getstate, random.setstate),
    Part(np.random.get_state, np.random.set_state),
    Part(torch_devices, set_torch_devices),
)
# all the time: not to be changed in each episode
NEEDED = {"handlers of signals", "blocked signals", *BITS}


@contextmanager
def preserve_state(wholly: bool = True) -> Iterator[list[str]]:
    """Restore process state afterwards; the yielded list then names what had changed.

    wholly: BITS too, for some milliseconds. Else nothing in another thread than the main one, whose
    changes are its own. A child process that was forked meanwhile, and comes back here, ends.
    """
    process, changed = os.getpid(), list[str]()
    light = wholly or threading.current_thread() is threading.main_thread()
    parts = {**(LIGHT if light else {}), **(BITS if wholly else {})}
    before = {name: part.found() for name, part in parts.items()}
    try:
        with streams.preserve_streams() if light else nullcontext():
            yield changed
    finally:
        end_child(process)
        changed += [name for name, was in before.items() if parts[name].found() != was]
        for name in changed:
            parts[name].put(before[name])


def end_child(process: int) -> None:
    """End this process at once if it is a child of `process`: a run goes on in one alone."""
    if os.getpid() != process:
        os._exit(1)
