"""The line about rank 0's core: its limit, what torch's products make of it, the updates/s."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi import envs, learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import Config, updated
from esac_mpi.play.params import make_layout
from esac_mpi.training.check.report import Line

SECONDS = 0.3  # for which each is measured
SIDE = 256  # of the matrices
SLOWER = (  # variables by which libraries take other kernels than the core's, or fewer threads
    "OPENBLAS_CORETYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_CBWR",
    "ONEDNN_MAX_CPU_ISA",
    "OMP_DYNAMIC",
    "OMP_THREAD_LIMIT",
)
UNITS = {"avx512_bf16", "amx_bf16"}  # instruction sets by which products in bfloat16 are faster


def look(config: Config, env: envs.Env | None, info: Path = Path("/proc/cpuinfo")) -> list[Line]:
    """Return the line, of a learner on a CPU that can be made; it takes about a second."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    if learning is None or env is None:
        return []
    import torch

    if config.learner.device != "cpu" and torch.cuda.is_available():
        return []
    torch.set_num_threads(config.learner.threads)
    left, right = torch.rand(2, SIDE, SIDE)
    with torch.inference_mode():
        products = 2 * SIDE**3 * rate(lambda: torch.mm(left, right))
    found = f"torch's products {products / 1e9:.0f} GFLOP/s with {config.learner.threads} thread(s)"
    if (limit := learners.load("cpu").limit()) is not None:
        found = f"at most {limit / 1e9:.0f} GFLOP/s of a core; {found}"
    option, name = "", learning.learner(config)
    if own := updates(config, name, env):
        found += f"; {own:,.0f} updates/s ({config.learner.kernels}, {config.learner.precision})"
        flags = set(info.read_text(errors="replace").split()) if info.exists() else set()
        if config.learner.precision == "fp32" and flags & UNITS:
            other = {"learner.precision": "bf16", "learner.kernels": "torch"}
            half = updates(updated(config, other), name, env)
            if half > own:
                option = f"; a new run could take --learner.precision bf16: {half:,.0f}"
    return [Line("core", found + option, slowed(os.environ))]


def slowed(environ: Mapping[str, str]) -> str:
    """Return what to unset, as libraries are slower by it; empty where there is nothing."""
    named = [f"{name}={environ[name]}" for name in SLOWER if environ.get(name)]
    if not named:
        return ""
    remedy = "products may be made by older kernels, at half the speed"
    return f"unset {', '.join(named)} for all ranks: {remedy}"


def updates(config: Config, name: str, env: envs.Env) -> float:
    """Return the updates/s of the learner `name` for this task; 0 of one without such updates."""
    layout = make_layout(config, env)
    made = learners.make(name, config, layout, layout.initial(config.seed, 0))
    update: Any = getattr(made, "update", None)
    if not hasattr(update, "learn_critics"):
        return 0.0
    random = np.random.default_rng(0)
    update.rows[:] = random.uniform(-1, 1, update.rows.shape)
    update.noise[:] = random.standard_normal(update.noise.shape)
    update.start()

    def both() -> None:
        update.learn_critics()
        update.learn_actor()

    return rate(both)


def rate(action: Callable[[], object]) -> float:
    """Return how often an action is done in a second, at its median."""
    action()
    seconds: list[float] = []
    end = time.perf_counter() + SECONDS
    while (start := time.perf_counter()) < end or not seconds:
        action()
        seconds.append(time.perf_counter() - start)
    return 1 / float(np.median(seconds))
