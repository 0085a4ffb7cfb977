"""Measure speed: ours against peers in the same run, taking turns.

    python -m tools.bench NAME [--json] [--quick] [--rounds N]

rollout      control steps/s of one rank over bare mj_step replaying the same actions      4 minutes
             from the same states; beside a torch module and EvoTorch's GymNE. Resets and
             bookkeeping count on our side and the peers', never on the replay's.
generation   seconds per generation by part, idle fraction of the ranks                    6 minutes
learner      SAC updates/s: ours, stable-baselines3's, SBX's, a CleanRL-style eager loop   5 minutes
startup      seconds from a rank's start to its first episode, resident memory             1 minute
scaling      seconds per generation at every rank count here; a SIMULATION beyond          9 minutes
clock        the computed clock of runs on other ranks over the measured one               8 minutes
history      an append, a publication, a checkpoint and memory, to 100,000 generations     5 minutes

--json prints one JSON object a line and figure: case, name, unit, min, median, max, rounds,
simulation (true: not measured). --quick takes seconds and shows that it works; its figures mean
little. Times are for 2 cores. The peers come with `pip install -c constraints.txt -e '.[bench]'`;
what is not installed or fails is left out, and said. Nothing else should run meanwhile.
"""

import os

from tools import ONE_THREAD, parser

os.environ.update(ONE_THREAD, MUJOCO_GL="disabled")  # nothing is drawn

import sys
from importlib import import_module

from esac_mpi.analysis.messages import Unusable
from esac_mpi.config.exact import whole
from esac_mpi.host.invocation import look_here
from esac_mpi.host.streams import answer_alone, as_json
from tools.bench.measurement import HEADER, say

NAMES = ("rollout", "generation", "learner", "startup", "scaling", "clock", "history")


def main(argv: list[str]) -> int:
    """Run a benchmark; print its figures as they come."""
    line = parser(__doc__)
    line.add_argument("name", choices=NAMES)
    line.add_argument("--json", action="store_true", help="one JSON object a line")
    line.add_argument("--quick", action="store_true", help="seconds, to see that it works")
    line.add_argument("--rounds", type=whole, default=0, help="0 = the benchmark's own number")
    options = line.parse_args(argv)
    look_here()
    if not options.json:
        print(HEADER, flush=True)
    try:
        with answer_alone(options.json) as answer:
            benchmark = import_module(f"tools.bench.{options.name}")
            for figure in benchmark.measurements(options.quick, options.rounds):
                answer(as_json(figure.plain()) if options.json else str(figure))
    except Unusable as error:
        say(str(error))
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
