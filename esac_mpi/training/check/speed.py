"""The line about rank 0's core: its limit, what torch's products make of it, the updates/s."""

import os
from collections.abc import Mapping
from pathlib import Path

from esac_mpi import envs, learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import Config, updated
from esac_mpi.play import epsilon
from esac_mpi.play.params import Params, make_layout
from esac_mpi.training.check.report import Line
from esac_mpi.training.forecast import phases
from esac_mpi.training.forecast.operators import usual

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


def look(
    config: Config,
    env: envs.Env | None,
    updating: float = 0.0,
    info: Path = Path("/proc/cpuinfo"),
) -> list[Line]:
    """Say how fast a learner's core is; updating: time of an update, 0: not measured [s]."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    if learning is None or env is None:
        return []
    import torch

    if config.learner.device != "cpu" and torch.cuda.is_available():
        return []
    torch.set_num_threads(config.learner.threads)
    left, right = torch.rand(2, SIDE, SIDE)
    with torch.inference_mode():
        products = 2e-9 * SIDE**3 / usual(lambda: torch.mm(left, right), SECONDS)
    found = f"torch's products {products:.0f} GFLOP/s with {config.learner.threads} thread(s)"
    if (limit := learners.load("cpu").limit()) is not None:
        found = f"at most {limit / 1e9:.0f} GFLOP/s of a core; {found}"
    if updating:
        kind = f"{config.learner.kernels}, {config.learner.precision}"
        found += f"; {1 / updating:,.0f} updates/s ({kind})"
        flags = set(info.read_text(errors="replace").split()) if info.exists() else set()
        if config.learner.precision == "fp32" and flags & UNITS:
            other = {"learner.precision": "bf16", "learner.kernels": "torch"}
            half = update_seconds(updated(config, other), env)
            if 0 < half < updating:
                found += f"; a new run could take --learner.precision bf16: {1 / half:,.0f}"
    return [Line("core", found, slowed(os.environ))]


def slowed(environ: Mapping[str, str]) -> str:
    """Say what to unset, as libraries are slower by it; empty where there is nothing."""
    named = [f"{name}={environ[name]}" for name in SLOWER if environ.get(name)]
    if not named:
        return ""
    remedy = "products may be made by older kernels, at half the speed"
    return f"unset {', '.join(named)} for all ranks: {remedy}"


def update_seconds(config: Config, env: envs.Env) -> float:
    """Measure an update of the learner for this task [s]; 0 where nothing learns."""
    params = Params(config, make_layout(config, env), env.horizon, epsilon.Philox(config.seed))
    ready = phases.prepare(params, env)
    return phases.measure(*ready, SECONDS)[1] if ready else 0.0
