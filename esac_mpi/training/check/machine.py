"""The lines about the launch, the nodes, the libraries that do the work, the learner's device and the batch system."""

import importlib.metadata
import math
import re
import sys
import time
from collections.abc import Sequence
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
    r"SLURM_(JOB_ID|ARRAY_TASK_ID|NTASKS|STEP_NUM_TASKS|JOB_NUM_NODES|CPUS_PER_TASK|RESTART_COUNT|JOB_PARTITION|JOB_END_TIME)"
    r"|PBS_(JOBID|ARRAY_INDEX|NP|NODEFILE|QUEUE|ENVIRONMENT)"
)


def launch(ranks: list[Rank], world: World) -> list[Line]:
    """Return the lines about MPI, ranks and nodes."""
    module, level = binding()
    lines = [
        Line("MPI", f"{' '.join(world.library.split())}".split(", package")[0]),
        Line(
            "mpi4py",
            f"{importlib.metadata.version('mpi4py')}, module {module}, thread level {level}",
        ),
        Line("ranks", f"{world.size} on {world.nodes} node(s)"),
    ]
    for node in range(world.nodes):
        members = [r for r, rank in enumerate(ranks) if rank.node == node]
        allowed = [ranks[r].cores for r in members]
        union = sorted(set().union(*allowed))
        fewest, most = min(map(len, allowed)), max(map(len, allowed))
        each = str(most) if fewest == most else f"{fewest}-{most}"
        found = f"{ranks[members[0]].host}: ranks {spans(members)}; cores {spans(union)}, {each} for each rank"
        complaints = affinity.complaints([ranks[r].host for r in members], allowed, 0)
        lines.append(
            Line(f"node {node}", found, "; ".join(c.partition(": ")[2] for c in complaints))
        )
    return lines


def libraries(config: Config, ranks: list[Rank]) -> list[Line]:
    """Return the lines about the libraries that do the work, and the learner's device."""
    threads = sorted({rank.blas for rank in ranks})
    many = [text for text in threads if re.search(r"\b(?!1 )\d+ thread\(s\)", text)]
    kernel = sorted({rank.kernel for rank in ranks})
    return [
        Line(
            "BLAS",
            "; ".join(threads),
            "set OMP_NUM_THREADS=1 before numpy is imported" if many else "",
        ),
        Line("kernels", ", ".join(kernel), "" if kernel == ["compiled"] else slower(sys.path)),
        learner(config, ranks[0].cores, sum(rank.node == ranks[0].node for rank in ranks)),
    ]


def slower(places: Sequence[str], package: Path = PACKAGE) -> str:
    """Return how to have the compiled kernels, of a package that is without them; places: where Python looks for packages.

    In a checkout it is found before the installed one, which may have them.
    """
    others = [
        path
        for place in places
        if (path := Path(place or ".", package.name).resolve()) != package.resolve()
    ]
    if there := next(
        (
            path
            for path in others
            for suffix in EXTENSION_SUFFIXES
            if (path / f"_kernels{suffix}").is_file()
        ),
        None,
    ):
        remedy = f"pip install -e {package.parent}, or start elsewhere"
        return f"slower: {package} is what runs, and the compiled ones are in {there}: {remedy}"
    return "slower: install esac_mpi where there is a C compiler"


def learner(config: Config, cores: list[int], ranks: int) -> Line:
    """Return the line about torch, which rank 0 alone imports, and the GPUs that it sees; on its node there are `ranks`."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    if learning is None:
        return Line("torch", f"not used by {config.algorithm}")
    wanted, remedy = config.learner.device, ""
    start = time.perf_counter()
    try:
        learners.prepare(config, learning.learner(config))
    except learners.NoDevice as error:
        remedy = str(error)
    import torch

    seconds = time.perf_counter() - start
    gpus = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        if torch.cuda.is_available()
        else []
    )
    try:
        learners.load("gpu").choose(config.learner)
    except learners.NoDevice as error:
        remedy = "; ".join(filter(None, (remedy, str(error))))
    threads = f"learner.threads = {config.learner.threads}"
    found = f"{torch.__version__}, imported in {seconds:.1f} s on rank 0, which sees {', '.join(gpus) or 'no GPU'}; {threads}"
    if learning.learner(config) in learners.EXTRAS:
        try:
            learners.load(learning.learner(config))
        except learners.NotInstalled as error:
            remedy = "; ".join(filter(None, (remedy, str(error))))
    complaints = affinity.complaints([], [cores], config.learner.threads)
    more = threads_that_gain(config, cores, ranks)
    if more > config.learner.threads and (wanted == "cpu" or not gpus):
        found += (
            f"; {more - 1} core(s) have no rank, a new run could use them: --learner.threads {more}"
        )
    return Line(
        "torch", found, remedy or "; ".join(c.partition(": ")[2] for c in complaints), bool(remedy)
    )


def scheduler(environ: dict[str, str], seconds_left: float) -> list[Line]:
    """Return the lines about the batch system: what it set, and the time it leaves, inf where it does not say [s]."""
    seen = [
        f"{name}={value}" for name, value in sorted(environ.items()) if SCHEDULER.fullmatch(name)
    ]
    if seconds_left <= 0:
        remedy = "unset SLURM_JOB_END_TIME if it is another job's"
        left = Line("time left", "none: a run would stop at once", remedy, True)
    elif seconds_left < math.inf:
        left = Line(
            "time left",
            f"{seconds_left / 3600:.2f} h",
            "ask for more time" if seconds_left < 600 else "",
        )
    elif seen:
        left = Line(
            "time left",
            "not known",
            "give --max-hours, or the batch system kills the run at its limit",
        )
    else:
        left = Line("time left", "no limit known; --max-hours would set one")
    return [Line("scheduler", " ".join(seen) or "none seen"), left]
