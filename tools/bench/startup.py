"""Seconds from a rank's start to its first episode, and resident memory."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.bench.measurement import Measurement, installed
from tools.bench.program import launch

# The program with a look at its own process: seconds since the process began [s] and memory [MB], at each episode's start.
SINCE = """
import json, os, sys, time
def look():
    ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    lines = dict(line.split(":") for line in open("/proc/self/status") if line.startswith(("VmRSS", "VmHWM", "RssAnon")))
    return {"seconds": seconds, **{name: int(value.split()[0]) / 1024 for name, value in lines.items()}}
"""
PROBE = f"""{SINCE}
from esac_mpi import __main__, envs
make, seen = envs.make, []
def watched(*arguments):
    env = make(*arguments)
    reset = env.reset
    def first(seed):
        seen.append(look())
        return reset(seed)
    env.reset = first
    return env
envs.make = watched
place, *arguments = sys.argv[1:]
code = __main__.main(arguments)
from mpi4py import MPI
json.dump([seen[0], {{**seen[-1], "VmHWM": look()["VmHWM"]}}], open(f"{{place}}/rank{{MPI.COMM_WORLD.rank}}.json", "w"))
sys.exit(code)
"""
EVOTORCH = f"""{SINCE}
import torch
from torch import nn
from evotorch.neuroevolution import GymNE
network = "Linear(obs_length, 512) >> ReLU() >> Linear(512, 512) >> ReLU() >> Linear(512, act_length)"
problem = GymNE("HalfCheetah-v5", network, num_actors=None, episode_length=100)
batch, first = problem.generate_batch(1), look()
problem.evaluate(batch)
json.dump([first, look()], open(sys.argv[1] + "/rank0.json", "w"))
"""


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure the time to the first episode and the memory of a rank that evaluates and of rank 0."""
    rounds, tasks = (
        (1, ("HalfCheetah-v5",))
        if options.quick
        else (options.rounds or 4, ("HalfCheetah-v5", "dm_control/cheetah-run-v0"))
    )
    evotorch = not options.quick and installed("evotorch")
    for task in tasks:
        looks: dict[str, list[list[dict[str, float]]]] = {}
        for _ in range(rounds):
            for algorithm in ("es", "esac"):
                for rank, look in enumerate(startup_looks(algorithm, task)):
                    role = "rank 0" if rank == 0 else "an evaluating rank"
                    looks.setdefault(f"{algorithm} {task}: {role}", []).append(look)
            if evotorch and not task.startswith("dm_control/"):
                looks.setdefault(f"EvoTorch {task}: its process", []).append(one_look())
        for case, found in looks.items():
            yield Measurement.of(
                "startup",
                case,
                "start of process to first episode",
                "s",
                [first["seconds"] for first, _ in found],
            )
            for name, figure in (
                ("VmRSS", "resident at the end"),
                ("VmHWM", "resident at most"),
                ("RssAnon", "its own pages"),
            ):
                yield Measurement.of(
                    "startup", case, figure, "MB", [last[name] for _, last in found]
                )


def startup_looks(algorithm: str, task: str) -> list[list[dict[str, float]]]:
    """Run two generations on 2 ranks; return what each rank saw at its first episode and at the end."""
    phases = (
        "--esac.reading", "mended", "--esac.gradient_interval", 1, "--esac.sac_episodes", 1, "--esac.sac_min_steps", 300,
        "--sac.updates_per_step", 0.1,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        launch(
            2, ["-c", PROBE], place, "--run-dir", f"{place}/run", "--algorithm", algorithm, "--task.id", task,
            "--task.horizon", 100, "--budget.generations", 2, f"--{algorithm}.population_size", 10, "--evaluation.every", 10,
            "--evaluation.episodes", 2, "--display.style", "plain",
            *(phases if algorithm == "esac" else ()),
        )  # fmt: skip
        return [json.loads((Path(place) / f"rank{rank}.json").read_text()) for rank in range(2)]


def one_look() -> list[dict[str, float]]:
    """Return what EvoTorch's process saw at its first episode and at the end."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, "-c", EVOTORCH, place], check=True, capture_output=True)
        return json.loads((Path(place) / "rank0.json").read_text())
