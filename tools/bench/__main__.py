"""Measure speed: ours against peers in the same run, taking turns, as ratios with minimum, median and maximum over rounds.

    python -m tools.bench NAME [--json] [--quick] [--rounds N]

rollout      closed-loop control steps/s of one rank over bare mj_step replaying the same actions from the same states; beside a
             torch module in a loop and EvoTorch's GymNE. Resets and bookkeeping count on our side and the peers', never on the
             replay's.                                                                                     about 4 minutes
generation   seconds per generation by part, idle fraction of the ranks, time outside episodes             about 6 minutes
learner      SAC updates/s: ours, stable-baselines3's and SBX's SAC, a CleanRL-style eager loop            about 5 minutes
             [--device cuda]: also without graphs, tf32, bf16, the loop compiled and captured (never run so far)
rivals       TD3 and DDPG updates/s: ours, stable-baselines3's                                             about 1 minute
pderl        a generation of PDERL by part on 1 and 2 ranks, and over the serial order of the public code  about 6 minutes
aes          share of two ranks' time that is waited, CEM-RL, P-CEM-RL and AES-RL; a SIMULATION beyond      about 8 minutes
startup      seconds from a rank's start to its first episode, resident memory                             about 1 minute
scaling      seconds per generation at every rank count here, and a SIMULATION beyond (simulation.py)       about 6 minutes
             [--task ID] [--latency S] [--bandwidth BYTES/S] [--cores-per-node N] [--out FILE.png]
             [--updates-per-second U --host-per-update S]: with a GPU for the updates, which takes so much of rank 0's core
clock        the computed clock of runs on other ranks over the measured one, on 1 and 2 ranks              about 8 minutes
history      an append, a publication, a checkpoint and rank 0's memory, to 100,000 generations            about 5 minutes

--json prints one JSON object a line and measurement: benchmark, case, figure, unit, min, median, max, rounds, simulation (true:
not measured). --quick takes seconds and shows that it works; its figures mean
little. Times are for 2 cores. The peers come with `pip install esac_mpi[bench]`; what is not installed is left out, and said.
Nothing else should run meanwhile.
"""

import argparse
import os

os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
)  # before numpy
os.environ["MUJOCO_GL"] = "disabled"  # nothing is drawn

import sys
from importlib import import_module

from esac_mpi.analysis.command import refuse_unread
from esac_mpi.analysis.messages import Unusable
from esac_mpi.comm.clock.cluster import HOST_PER_UPDATE, Cluster
from esac_mpi.config.exact import whole
from esac_mpi.host.invocation import look_here
from esac_mpi.host.paths import given
from esac_mpi.host.streams import answer_alone, as_json
from tools.bench.measurement import HEADER
from tools.parsing import parser

OF_SCALING = (
    "task",
    "latency",
    "bandwidth",
    "cores_per_node",
    "updates_per_second",
    "host_per_update",
    "out",
)
READS = {  # modules of tools.bench: options that not all of them read
    "rollout": ("rounds",),
    "generation": ("rounds",),
    "learner": ("rounds", "device", "bf16"),
    "rivals": ("rounds",),
    "pderl": ("rounds",),
    "aes": ("rounds",),
    "startup": ("rounds",),
    "scaling": ("rounds", *OF_SCALING),
    "clock": ("rounds",),
    "history": (),
}
OPTIONS = sorted({name for names in READS.values() for name in names})


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    line.add_argument("name", choices=tuple(READS))
    line.add_argument("--json", action="store_true", help="one JSON object a line")
    line.add_argument(
        "--quick", action="store_true", help="seconds in place of minutes, to see that it works"
    )
    line.add_argument(
        "--rounds",
        type=whole,
        default=0,
        help="turns of each competitor; 0 = the benchmark's own number",
    )
    line.add_argument(
        "--device", choices=("cpu", "cuda"), default="", help="learner: this one alone"
    )
    line.add_argument(
        "--bf16",
        action="store_true",
        help="learner: bf16 on the CPU, too; minutes where it has no units for it",
    )
    line.add_argument(
        "--task",
        nargs="+",
        default=[],
        metavar="ID",
        help="scaling: whose episodes and learner",
    )
    line.add_argument(
        "--latency", type=float, default=Cluster.latency, help="scaling: of a message [s]"
    )
    line.add_argument(
        "--bandwidth",
        type=float,
        default=Cluster.bandwidth,
        help="scaling: of the network [bytes/s]",
    )
    line.add_argument(
        "--cores-per-node",
        type=whole,
        default=Cluster.cores_per_node,
        help="scaling: ranks of a node",
    )
    line.add_argument(
        "--updates-per-second",
        type=float,
        default=0.0,
        help="scaling: of a simulated GPU; 0 = none",
    )
    line.add_argument(
        "--host-per-update",
        type=float,
        default=HOST_PER_UPDATE,
        help="scaling: of rank 0's core for that GPU [s]",
    )
    line.add_argument("--out", type=given, help="scaling: the picture, runs/scaling.png")
    return line


def name_first(words: list[str]) -> list[str]:
    """Return a command line with the benchmark's name in front, where no option that takes several values counts it as one."""
    places = [i for i, word in enumerate(words) if word in READS and words[i - 1 : i] != ["--out"]]
    return [words.pop(i) for i in places[:1]] + words


def main(argv: list[str]) -> int:
    """Run a benchmark; print its measurements as they come."""
    line = command_line()
    options = line.parse_args(name_first([*argv]))
    if not (options.rounds >= 0 and options.cores_per_node >= 1):
        line.error("--rounds must be at least 0, --cores-per-node at least 1")
    try:
        refuse_unread(
            line,
            options,
            options.name,
            [name for name in OPTIONS if name not in READS[options.name]],
        )
    except Unusable as problem:
        line.error(str(problem))
    look_here()
    if not options.json:
        print(HEADER, flush=True)
    try:
        with answer_alone(options.json) as answer:
            for measurement in import_module(f"tools.bench.{options.name}").measurements(options):
                answer(as_json(measurement.plain()) if options.json else measurement.line())
    except Unusable as error:
        print(error, file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
