"""The lines about launch, nodes, libraries, the learner's device and the batch system."""

import importlib.metadata
import math
import re
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from esac_mpi import learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm import World, binding
from esac_mpi.config import Config
from esac_mpi.host import affinity
from esac_mpi.host.data_files import PACKAGE
from esac_mpi.training.check.rank import Rank
from esac_mpi.training.check.report import Line, spans
from esac_mpi.training.forecast.learners import threads_that_gain

SCHEDULER = re.compile(
    r"SLURM_(JOB_ID|ARRAY_TASK_ID|NTASKS|STEP_NUM_TASKS|JOB_NUM_NODES|CPUS_PER_TASK|RESTART_COUNT"
    r"|JOB_PARTITION|JOB_END_TIME)|PBS_(JOBID|ARRAY_INDEX|NP|NODEFILE|QUEUE|ENVIRONMENT)"
)


def launch(ranks: list[Rank], world: World) -> list[Line]:
    """Look at MPI, ranks and nodes."""
    module, level = binding()
    version = importlib.metadata.version("mpi4py")
    lines = [
        Line("MPI", f"{' '.join(world.library.split())}".split(", package")[0]),
        Line("mpi4py", f"{version}, module {module}, thread level {level}"),
        Line("ranks", f"{world.size} on {world.nodes} node(s)"),
    ]
    for node in range(world.nodes):
        members = [r for r, rank in enumerate(ranks) if rank.node == node]
        allowed = [ranks[r].cores for r in members]
        union = sorted(set().union(*allowed))
        fewest, most = min(map(len, allowed)), max(map(len, allowed))
        each = str(most) if fewest == most else f"{fewest}-{most}"
        cores = f"cores {spans(union)}, {each} for each rank"
        found = f"{ranks[members[0]].host}: ranks {spans(members)}; {cores}"
        complaints = affinity.complaints([ranks[r].host for r in members], allowed, 0)
        lines.append(Line(f"node {node}", found, in_short(complaints)))
    return lines


def in_short(complaints: Iterable[str]) -> str:
    """Join complaints without the hosts that they begin with."""
    return "; ".join(complaint.partition(": ")[2] for complaint in complaints)


def libraries(config: Config, ranks: list[Rank]) -> list[Line]:
    """Look at the libraries that do the work, and at the learner's device."""
    threads = sorted({rank.blas for rank in ranks})
    many = any(re.search(r"\b(?!1 )\d+ thread\(s\)", text) for text in threads)
    one = "set OMP_NUM_THREADS=1 before numpy is imported"
    kernel = sorted({rank.kernel for rank in ranks})
    on_node = sum(rank.node == ranks[0].node for rank in ranks)
    return [
        Line("BLAS", "; ".join(threads), one if many else ""),
        Line("kernels", ", ".join(kernel), "" if kernel == ["compiled"] else slower(sys.path)),
        learner(config, ranks[0].cores, on_node),
    ]


def slower(places: Sequence[str], package: Path = PACKAGE) -> str:
    """Say how to have the compiled kernels; places: where Python looks for packages.

    In a checkout it is found before the installed one, which may have them.
    """
    for place in places:
        path = Path(place or ".", package.name).resolve()
        built = any((path / f"_kernels{suffix}").is_file() for suffix in EXTENSION_SUFFIXES)
        if path != package.resolve() and built:
            what = f"{package} is what runs, and the compiled ones are in {path}"
            return f"slower: {what}: pip install -e {package.parent}, or start elsewhere"
    return "slower: install esac_mpi where there is a C compiler"


def learner(config: Config, cores: list[int], ranks: int) -> Line:
    """Look at torch and the GPUs that rank 0 sees; ranks: of its node."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    if learning is None:
        return Line("torch", f"not used by {config.algorithm}")
    name, remedies = learning.learner(config), []
    start = time.perf_counter()
    try:
        learners.prepare(config, name)
    except learners.NoDevice as error:
        remedies.append(str(error))
    import torch

    seconds = time.perf_counter() - start
    gpus = []
    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    try:
        learners.load("gpu").choose(config.learner)
    except learners.NoDevice as error:
        remedies.append(str(error))
    try:
        if name in learners.EXTRAS:
            learners.load(name)
    except learners.NotInstalled as error:
        remedies.append(str(error))
    threads, more = config.learner.threads, threads_that_gain(config, cores, ranks)
    found = f"{torch.__version__}, imported in {seconds:.1f} s on rank 0"
    found += f", which sees {', '.join(gpus) or 'no GPU'}; learner.threads = {threads}"
    if more > threads and (config.learner.device == "cpu" or not gpus):
        spare = f"{more - 1} core(s) have no rank"
        found += f"; {spare}, a new run could use them: --learner.threads {more}"
    remedy = "; ".join(remedies) or in_short(affinity.complaints([], [cores], threads))
    return Line("torch", found, remedy, bool(remedies))


def scheduler(environ: dict[str, str], seconds_left: float) -> list[Line]:
    """Look at what the batch system set, and the time it leaves, inf where it does not say [s]."""
    seen = [
        f"{name}={value}" for name, value in sorted(environ.items()) if SCHEDULER.fullmatch(name)
    ]
    found, remedy = "no limit known; --max-hours would set one", ""
    if seconds_left <= 0:
        found = "none: a run would stop at once"
        remedy = "unset SLURM_JOB_END_TIME if it is another job's"
    elif seconds_left < math.inf:
        found = f"{seconds_left / 3600:.2f} h"
        remedy = "ask for more time" if seconds_left < 600 else ""
    elif seen:
        found = "not known"
        remedy = "give --max-hours, or the batch system kills the run at its limit"
    left = Line("time left", found, remedy, seconds_left <= 0)
    return [Line("scheduler", " ".join(seen) or "none seen"), left]
