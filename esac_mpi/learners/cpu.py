"""Which kernels make a learner's updates on a CPU (learner.kernels), and what brings them in.

compiled   SAC's whole update in C (_learner.c), and its own actions (explorers.py); the same bits
           on every CPU with AVX2 or AVX-512
mkl        torch after a library that answers for MKL (_mkl.c), which is fast on AMD, too, by that
torch      torch as it is
"""

import ctypes
import importlib.util
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from esac_mpi.config import Config
from esac_mpi.host import threads
from esac_mpi.host.data_files import extension
from esac_mpi.host.errors import WrongUsage

MOST_HIDDEN = 7  # layers; _learner.c has it too
BUILT = importlib.util.find_spec("esac_mpi.learners._learner") is not None
INTERFACE = 4  # what _learner.c takes and returns
LEARNER: Any = extension("esac_mpi.learners._learner", INTERFACE) if BUILT else None
KIND = LEARNER.KIND if BUILT else ""  # the widest vectors that it has for this CPU
NAMES = {"compiled": "compiled kernels", "mkl": "MKL's fast path"}  # in a device's name
NOT_BUILT = "this installation has none of them; install esac_mpi where there is GCC, on x86-64"


class NoDevice(WrongUsage):
    """The device, or the kernels, that the configuration names are not there."""


def resolve_auto(config: Config, learner: str) -> Config:
    """The configuration with what "auto" means on this machine. learner: a key of LEARNERS."""
    kernels = config.learner.kernels
    if kernels == "auto":
        kernels = "torch" if why_not_mkl() or not is_amd() else "mkl"
        kernels = kernels if why_not_compiled(config, learner) else "compiled"
    return replace(config, learner=replace(config.learner, kernels=kernels))


def prepare(config: Config, learner: str) -> Config:
    """Bring in the kernels that the configuration names, before torch is imported.

    Returns it settled. Raises NoDevice.
    """
    config = resolve_auto(config, learner)
    kernels = config.learner.kernels
    if why := why_not(config, learner):
        raise NoDevice(f"learner.kernels = {kernels}: {why}")
    if kernels == "mkl" and not answers_for_mkl():
        ctypes.CDLL(str(mkl_library()), mode=ctypes.RTLD_GLOBAL)
    return config


def why_not(config: Config, learner: str) -> str:
    """Say why this process cannot have the kernels that are named; empty if it can."""
    kernels = config.learner.kernels
    if kernels == "torch":
        reason = "a training before has led MKL to its fast path in this process"
        return f"{reason}: start another one for this training" if answers_for_mkl() else ""
    return why_not_mkl() if kernels == "mkl" else why_not_compiled(config, learner)


def why_not_compiled(config: Config, learner: str) -> str:
    """Return why SAC's update in C cannot make the updates; empty if it can."""
    table, policy = config.learner, config.policy
    if learner != "sac":
        return f"they make SAC's updates, and algorithm = {config.algorithm} has none"
    wanted = {
        "policy.activation = relu": policy.activation == "relu",
        "policy.layer_norm = false": not policy.layer_norm,
        "sac.critic_layer_norm = false": not config.sac.critic_layer_norm,
        f"policy.hidden of 1 to {MOST_HIDDEN} layers": 1 <= len(policy.hidden) <= MOST_HIDDEN,
        "sac.value_network = false": not config.sac.value_network,
        "learner.precision = fp32": table.precision == "fp32",
    }
    if missing := [name for name, met in wanted.items() if not met]:
        return f"they need {', '.join(missing)}; torch takes all"
    if not BUILT:
        return NOT_BUILT
    return "" if KIND else "they need a CPU with AVX2 and FMA"


def why_not_mkl() -> str:
    """Return why MKL cannot be led to its fast path; empty if it can."""
    if mkl_library() is None:
        return NOT_BUILT
    late = "torch" in sys.modules and not answers_for_mkl()
    reason = "this process has imported torch before, and MKL has made its choice"
    return f"{reason}: start the training first" if late else ""


def mkl_library() -> Path | None:
    """Return the path of the library that answers for MKL, None if it was not built."""
    found = importlib.util.find_spec("esac_mpi.learners._mkl")
    return Path(found.origin) if found and found.origin else None


def answers_for_mkl() -> bool:
    """Return whether this process has the library that answers for MKL."""
    library = mkl_library()
    return library is not None and os.path.realpath(library) in threads.mapped_files()


def limit(rounds: int = 50_000, repeats: int = 50) -> float | None:
    """Floating-point operations of this core at best [1/s]; None where that cannot be told."""
    if not KIND:
        return None
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        rates.append(LEARNER.multiply_adds(rounds) / (time.perf_counter() - start))
    return float(max(rates))


def is_amd(info: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether this CPU is one of AMD's, which MKL does not take for what it is."""
    return info.exists() and "AuthenticAMD" in info.read_text(errors="replace")
