"""Check and measure the learner on a GPU: all that could not be looked at where there was none, in one call.

    esac-mpi gpu_check [--seconds 540] [--only bits,promises,...]

bits         graphs = operations = again, to the bit; a CPU's losses within tolerances: every learner that has chunks
promises     whole runs: run = run, stop + resume = straight, 1 rank = 2 = 16, from the CPU to the GPU
trouble      cuda:99, a GPU that is full; --check
processes    of four ranks one is on the device
learner      bench learner --device cuda: ours, its peers, precisions, what determinism costs
kernels      where the time of an update goes
beside       what a phase beside the evaluation costs the ranks
precisions   returns of fp32, tf32 and bf16 on one task
scaling      bench scaling on 1, 2, 4, ... ranks beside the GPU, and simulated beyond

Nothing here has run on a device so far. In this order, until the time is over; what is left out is said.
Cost: at most ten minutes, of which the benchmarks take about seven. Needs one NVIDIA GPU
and `pip install esac_mpi[mpich,bench]`, a CUDA build of torch and, for torch.compile, a C compiler. Exits with 1 if a check
failed, 2 where torch sees no GPU.
"""

import argparse
import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))  # before numpy
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from esac_mpi.analysis.command import parser
from esac_mpi.benchmarks import gpu_bits, gpu_runs
from esac_mpi.benchmarks.gpu_bits import Finding
from esac_mpi.benchmarks.program import ROOT


def bench(*arguments: str, end: float) -> Iterator[Finding]:
    """Run a benchmark to its end or until the time is over; yield its lines as they come."""
    line = [sys.executable, "-m", "esac_mpi.commands", "bench", *arguments]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    with subprocess.Popen(line, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True) as run:
        try:
            output, _ = run.communicate(timeout=max(end - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGTERM)  # its ranks, too
            output, _ = run.communicate()
            output += "(the time was over)"
    yield Finding(f"bench {arguments[0]}", None if run.returncode in (0, -15) else False, f"\n{output}")


def parts(end: float) -> dict[str, Callable[[], Iterator[Finding]]]:
    """Return what there is to do, in order."""
    return {
        "bits": partial(gpu_bits.bits, "cuda"),
        "promises": gpu_runs.promises,
        "trouble": gpu_runs.trouble,
        "processes": gpu_runs.processes,
        "learner": partial(bench, "learner", "--device", "cuda", "--rounds", "2", end=end),
        "kernels": gpu_bits.kernels,
        "beside": gpu_runs.beside,
        "precisions": gpu_runs.precisions,
        "scaling": partial(bench, "scaling", "--rounds", "1", end=end),
    }


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    line.add_argument("--seconds", type=float, default=540, help="begin nothing later than this")
    line.add_argument("--only", default="", help="parts, by commas")
    return line


def main(argv: list[str]) -> int:
    """Do the parts; print what each came to."""
    line = command_line()
    options = line.parse_args(argv)
    start, failed = time.monotonic(), 0
    found = parts(start + options.seconds)
    if unknown := set(filter(None, options.only.split(","))) - found.keys():
        line.error(f"--only: no part {', '.join(sorted(unknown))}; there are {', '.join(found)}")
    told = gpu_bits.gpu_here()
    print(told or "torch sees no GPU here", flush=True)
    if not told:
        return 2
    for name, part in found.items():
        if options.only and name not in options.only.split(","):
            continue
        if time.monotonic() > start + options.seconds:
            print(f"LEFT OUT {name}: the time is over", flush=True)
            continue
        try:
            for finding in part():
                failed += finding.passed is False
                mark = {True: "ok", False: "FAILED", None: "figure"}[finding.passed]
                print(f"{time.monotonic() - start:6.1f} s  {mark:6}  {finding.what}: {finding.found}", flush=True)
        except Exception as error:  # the next part may still tell something
            failed += 1
            print(f"{time.monotonic() - start:6.1f} s  FAILED  {name}: {error!r}", flush=True)
    return int(failed > 0)
