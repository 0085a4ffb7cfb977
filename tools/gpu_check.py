"""Check and measure the learner on a GPU: all that could not be looked at where there was none, in one call.

    python -m tools.gpu_check [--part NAME ...] [--minutes 9]

bits         graphs = operations = again, to the bit; a CPU's losses within tolerances: every learner that has chunks
trouble      --check; cuda:99, a GPU that is full
updates      updates/s of SAC in four sizes, and what they cost the host's core
peers        stable-baselines3 and a CleanRL-style loop beside ours
compiled     that loop compiled and captured, as LeanRL has it, beside ours
promises     whole runs: stop + resume = straight, 1 rank = 2 = 16, run = run, from the CPU to the GPU
processes    of four ranks one is on the device
beside       what a phase beside the evaluation costs the ranks
kernels      where the time of an update goes
ways         ours without determinism, in tf32 and bf16, without graphs
precisions   returns of fp32, tf32 and bf16 on one task
scaling      measured on 16, 4, ... ranks beside the GPU over simulated, and a SIMULATION beyond

Nothing here has run on a device so far. Parts come in this order, each in a process of its own, which is ended when its share
of the time is over; what one leaves is the next one's. Every figure is printed when it is found. Where --minutes are too few for
all, the last parts are left out; at the end a line says what was left out or cut, and how to go on with it.
Cost: nine minutes at most. Needs one NVIDIA GPU and `pip install esac_mpi[mpich,bench]`, a CUDA build of torch and, for
torch.compile, a C compiler: a peer that fails is a line that says so. Exits with 1 if a check failed, 75 if something was left
out or cut, 2 where torch sees no GPU. Of several GPUs it takes the first one of CUDA_VISIBLE_DEVICES. --device cpu shows that it
works; its figures mean nothing.
"""

import argparse
import os

os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
)  # before numpy

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from tools import processes
from tools.bench import gpu_bits, gpu_rates, gpu_runs, gpu_scaling
from tools.bench.gpu_bits import Finding
from tools.bench.program import environ
from tools.parsing import parser

MACHINE, FIRST = (
    "machine",
    60.0,
)  # what is asked first, and how long at most: the first import of torch is slow [s]
FAILED, AGAIN, NO_GPU = 1, 75, 2  # exit codes


class Part(NamedTuple):
    """Something to check or measure."""

    share: float  # of nine minutes, one of which may pass before the first one [s]
    work: Callable[[str], Iterator[Finding]]  # on a device


PARTS = {
    "bits": Part(70, gpu_bits.bits),
    "trouble": Part(40, gpu_runs.trouble),
    "updates": Part(30, gpu_rates.updates),
    "peers": Part(50, lambda device: gpu_rates.competing(device, gpu_rates.PEERS)),
    "compiled": Part(70, lambda device: gpu_rates.competing(device, gpu_rates.COMPILED)),
    "promises": Part(70, gpu_runs.promises),
    "processes": Part(15, gpu_runs.processes),
    "beside": Part(30, gpu_runs.beside),
    "kernels": Part(15, gpu_bits.kernels),
    "ways": Part(30, lambda device: gpu_rates.competing(device, gpu_rates.WAYS)),
    "precisions": Part(30, gpu_runs.precisions),
    "scaling": Part(30, gpu_scaling.scaling),
}


def planned(names: Sequence[str], seconds: float) -> dict[str, float]:
    """Return the parts that there is time for, in order, each with the time at which it has to end [s].

    The first one always; shares grow with the time, so that what is left over goes to those that are done.
    """
    ends = list(accumulate(PARTS[name].share for name in names))
    taken = [end for i, end in enumerate(ends) if not i or end <= seconds]
    return {name: end * seconds / taken[-1] for name, end in zip(names, taken, strict=False)}


def carried_out(name: str, device: str) -> int:
    """Do a part in this process; print what each of its checks came to. Return an exit code."""
    found = []
    try:
        for finding in gpu_bits.gpu_here() if name == MACHINE else PARTS[name].work(device):
            mark = {True: "ok", False: "FAILED", None: "figure"}[finding.passed]
            print(f"{mark:6}  {finding.what}: {finding.found}", flush=True)
            found.append(finding.passed)
    except Exception as error:  # whatever it is, the next part may still tell something
        print(f"FAILED  {name}: {type(error).__name__}: {error}", flush=True)
        return FAILED
    return NO_GPU if name == MACHINE and not found else FAILED if False in found else 0


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    line.add_argument(
        "--part",
        nargs="+",
        choices=list(PARTS),
        default=list(PARTS),
        metavar="NAME",
        help="these alone",
    )
    line.add_argument("--minutes", type=float, default=9.0, help="that all may take")
    line.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to see that it works"
    )
    line.add_argument(
        "--here", choices=[MACHINE, *PARTS], help=argparse.SUPPRESS
    )  # a part's own process
    return line


def main(argv: list[str]) -> int:
    """Do the parts, one process after another; say what was left out."""
    options = command_line().parse_args(argv)
    if options.here:
        return carried_out(options.here, options.device)
    start = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - start:6.1f} s  {line}", flush=True)

    if (
        options.device != "cpu"
        and (code := in_a_process(MACHINE, options.device, FIRST, tell)) != 0
    ):
        tell("torch sees no GPU here" if code == NO_GPU else "this GPU does not answer")
        return NO_GPU
    names, begun = [name for name in PARTS if name in options.part], time.monotonic()
    plan = planned(names, 60 * options.minutes - (begun - start))
    failed, unfinished = 0, [name for name in names if name not in plan]
    for name, end in plan.items():
        left = end - (time.monotonic() - begun)
        tell(f"------  {name}: {left:.0f} s")
        code = in_a_process(name, options.device, max(left, 1.0), tell)
        if code is None:
            tell(f"CUT     {name}: its time was over")
            unfinished.append(name)
        elif code not in (0, FAILED):
            tell(f"FAILED  {name}: exit {code}")
        failed += code not in (0, None)
    if unfinished:
        again = [name for name in names if name in unfinished]
        tell(
            f"LEFT    {' '.join(again)}: python -m tools.gpu_check --part {' '.join(again)} goes on with it"
        )
    return FAILED if failed else AGAIN if unfinished else 0


def in_a_process(
    name: str, device: str, seconds: float, tell: Callable[[str], object]
) -> int | None:
    """Do a part in a process of its own, so that it can be ended and leaves nothing on the device; return how it ended."""
    line = [sys.executable, "-m", "tools.gpu_check", "--here", name, "--device", device]
    return processes.follow(line, seconds, tell, environ())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
