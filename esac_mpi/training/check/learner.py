"""The lines about the learner on rank 0: torch, its GPU, and how fast its core or device is."""

import os
import time
from itertools import pairwise
from pathlib import Path

from esac_mpi import envs, learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm.world import World
from esac_mpi.config import NAMES, Config, amend, table_of, value_of
from esac_mpi.host import affinity
from esac_mpi.play.params import make_params
from esac_mpi.training import provenance, set_up
from esac_mpi.training.check.memory import make_counted
from esac_mpi.training.check.ranks import Rank, shorten
from esac_mpi.training.check.report import Line
from esac_mpi.training.ended import REFUSALS
from esac_mpi.training.forecast import measured

# multiplications of a matrix product worth a thread: 2x128 in batches of 256 gain by two
# (performance.md)
SHARE = 128**3


def library(config: Config, ranks: list[Rank]) -> Line:
    """Look at torch and the GPUs that rank 0 sees."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    if learning is None:
        return Line("torch", f"not used by {config.algorithm}")
    name, remedies = learning.learner(config), []
    start = time.perf_counter()
    for needs in (
        lambda: learners.prepare(config, name),
        lambda: learners.load("gpu").choose(config.learner),
        lambda: learners.load(name),
    ):
        try:
            needs()
        except (learners.NoDevice, ImportError) as error:
            remedies.append(str(error))
    import torch

    seconds = time.perf_counter() - start
    gpus = []
    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    cores, on_node = ranks[0].cores, sum(rank.node == ranks[0].node for rank in ranks)
    threads, more = config.learner.threads, threads_that_gain(config, name, cores, on_node)
    found = f"{torch.__version__}, imported in {seconds:.1f} s on rank 0"
    found += f", which sees {', '.join(gpus) or 'no GPU'}; learner.threads = {threads}"
    if more > threads and (config.learner.device == "cpu" or not gpus):
        spare = f"{more - 1} core(s) have no rank"
        found += f"; {spare}, a new run could use them: --learner.threads {more}"
    remedy = "; ".join(remedies) or shorten(affinity.complaints([], [cores], threads))
    return Line("torch", found, remedy, bool(remedies))


def threads_that_gain(config: Config, learner: str, cores: list[int], ranks: int) -> int:
    """Count the threads that make a learner faster without taking a core from another rank.

    cores: those that rank 0 may run on; ranks: of its node.
    """
    sizes = [f"{table}.batch_size" for table in (learner, table_of(config.algorithm))]
    names = [name for name in sizes if name in NAMES]
    widest = max((a * b for a, b in pairwise(config.policy.hidden)), default=0)
    product = value_of(config, names[0]) * widest if names else 0
    return max(1, min(1 + len(cores) - ranks, product // SHARE))


UPDATING = 2.0  # of a GPU's updates that are measured [s]


def gpu(config: Config, env: envs.Env, world: World) -> list[Line]:
    """Look at the learner's GPU; nothing on a CPU, or where the line about torch says why not.

    It is made as a run's is, with the room that its replay has beside the capacity.
    """
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    if learning is None or config.learner.device == "cpu":
        return []
    import torch

    if not torch.cuda.is_available():
        return []
    try:
        params, state, _ = make_counted(config, env, 1)
        made = set_up.make_learner(params, env, state, world)
    except REFUSALS as error:
        return [Line("GPU", "not to be used", str(error), True)]
    free, total = torch.cuda.mem_get_info()
    found = f"{torch.cuda.get_device_name()}, {total:,} bytes of memory"
    found += f", {free:,} free beside this learner"
    if getattr(made, "chunks", None):
        try:
            rate = learners.load("chunks").updates_per_second(made, UPDATING)
        except RuntimeError as error:
            why = learners.load("gpu").first_sentence(error, 2)
            return [Line("GPU", f"{found}; its updates fail", why, True)]
        found += f"; {rate:,.0f} updates/s, {config.learner.precision}"
    return [Line("GPU", found)]


SECONDS = 0.3  # for which each is measured
SIDE = 256  # of the matrices
# variables by which libraries take other kernels than the core's, or fewer threads
SLOWER = (*provenance.KERNELS, "OMP_DYNAMIC", "OMP_THREAD_LIMIT")
UNITS = {"avx512_bf16", "amx_bf16"}  # instruction sets by which products in bfloat16 are faster


def core(
    config: Config, env: envs.Env, updating: float, info: Path = Path("/proc/cpuinfo")
) -> list[Line]:
    """Say how fast a learner's core is; updating: time of an update, 0: not measured [s]."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    if learning is None:
        return []
    import torch

    if config.learner.device != "cpu" and torch.cuda.is_available():
        return []
    torch.set_num_threads(config.learner.threads)
    left, right = torch.rand(2, SIDE, SIDE)
    with torch.inference_mode():
        products = 2e-9 * SIDE**3 / measured.median_of_calls(lambda: torch.mm(left, right), SECONDS)
    found = f"torch's products {products:.0f} GFLOP/s with {config.learner.threads} thread(s)"
    if (limit := learners.load("cpu").limit()) is not None:
        found = f"at most {limit / 1e9:.0f} GFLOP/s of a core; {found}"
    if updating:
        kind = f"{config.learner.kernels}, {config.learner.precision}"
        found += f"; {1 / updating:,.0f} updates/s ({kind})"
        flags = set(info.read_text(errors="replace").split()) if info.exists() else set()
        if config.learner.precision == "fp32" and flags & UNITS:
            other = {"learner.precision": "bf16", "learner.kernels": "torch"}
            half = update_seconds(amend(config, other), env)
            if 0 < half < updating:
                found += f"; a new run could take --learner.precision bf16: {1 / half:,.0f}"
    remedy = ""
    if slowing := [f"{name}={os.environ[name]}" for name in SLOWER if os.environ.get(name)]:
        remedy = f"unset {', '.join(slowing)} for all ranks: products may be at half the speed"
    return [Line("core", found, remedy)]


def update_seconds(config: Config, env: envs.Env) -> float:
    """Measure an update of the learner for this task [s]; 0 where nothing learns."""
    return measured.measure(measured.prepare(make_params(config, env), env), SECONDS)[1]
