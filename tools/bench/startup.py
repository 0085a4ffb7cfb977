"""Seconds from a rank's start to its first episode, and resident memory."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.bench.measurement import Figure, is_installed
from tools.bench.program import launch, learner_phase

# A look of a program at its own process: seconds since it began [s], and memory [MB].
SINCE = """
import json, os, sys, time
def look():
    ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    status = dict(line.split(":") for line in open("/proc/self/status"))
    return {"seconds": seconds, "memory": int(status["VmRSS"].split()[0]) / 1024}
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
json.dump([seen[0], seen[-1]], open(f"{{place}}/rank{{MPI.COMM_WORLD.rank}}.json", "w"))
sys.exit(code)
"""
EVOTORCH = f"""{SINCE}
import torch
from torch import nn
from evotorch.neuroevolution import GymNE
network = "Linear(obs_length, 512) >> ReLU() >> Linear(512, 512) >> ReLU() >> \
Linear(512, act_length)"
problem = GymNE("HalfCheetah-v5", network, num_actors=None, episode_length=100)
batch, first = problem.generate_batch(1), look()
problem.evaluate(batch)
json.dump([first, look()], open(sys.argv[1] + "/rank0.json", "w"))
"""
TASKS = "HalfCheetah-v5", "dm_control/cheetah-run-v0"
Look = dict[str, float]


def measurements(quick: bool, rounds: int) -> Iterator[Figure]:
    """Measure the time to the first episode, and the memory of ranks."""
    evotorch = not quick and is_installed("evotorch")
    for task in TASKS[: 1 if quick else 2]:
        looks: dict[str, list[list[Look]]] = {}
        for _ in range(rounds or (1 if quick else 4)):
            for algorithm in ("es", "esac"):
                for role, look in zip(
                    ("rank 0", "an evaluating rank"), of_ranks(algorithm, task), strict=True
                ):
                    looks.setdefault(f"{algorithm} {task}: {role}", []).append(look)
            if evotorch and task == TASKS[0]:
                looks.setdefault(f"EvoTorch {task}: its process", []).append(of_evotorch())
        for case, found in looks.items():
            seconds = [first["seconds"] for first, _ in found]
            yield Figure(case, "start of process to first episode", "s", seconds)
            memory = [last["memory"] for _, last in found]
            yield Figure(case, "resident at the end", "MB", memory)


def of_ranks(algorithm: str, task: str) -> list[list[Look]]:
    """Run on 2 ranks; return what each saw at its first episode and at the end."""
    phases = learner_phase(300, 0.1, 1) if algorithm == "esac" else ()
    with tempfile.TemporaryDirectory() as place:
        launch(
            2, ["-c", PROBE], place, "--run-dir", f"{place}/run",
            "--algorithm", algorithm, "--task.id", task,
            "--task.horizon", 100, "--budget.generations", 2,
            f"--{algorithm}.population_size", 10, "--evaluation.every", 10,
            "--evaluation.episodes", 2, *phases,
        )  # fmt: skip
        return [json.loads((Path(place) / f"rank{rank}.json").read_text()) for rank in range(2)]


def of_evotorch() -> list[Look]:
    """Read what EvoTorch's process saw at its first episode and at the end."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, "-c", EVOTORCH, place], check=True, capture_output=True)
        return json.loads((Path(place) / "rank0.json").read_text())
