"""Moments to hit: while a run starts, publishes, is in a generation with a learner's phase, or at any other; and the kill."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tools.processes import alive
from tools.stress.runs import (
    GENERATIONS,
    LAG,
    PATIENCE,
    Broken,
    Job,
    Part,
    inode,
    made,
    temporaries,
)

DOWN = 10.0  # longest time from a kill to the end of all processes [s]


def kill(part: Part, job: Job) -> str:
    """Kill one random rank or everything; wait until all is down; return the victim. Raises Broken."""
    ranks = [pid for pid, rank in job.processes.items() if rank]
    everything = [job.process.pid, *job.processes]
    victim = part.choose.choice(ranks) if ranks and part.choose.random() < 2 / 3 else 0
    start = time.monotonic()
    for pid in [victim] if victim else everything:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while time.monotonic() - start < DOWN and (
        job.process.poll() is None or any(map(alive, everything))
    ):
        time.sleep(0.005)
    took = time.monotonic() - start
    for pid in filter(alive, everything):
        os.kill(pid, signal.SIGKILL)
    job.process.wait()
    for file in job.shared:
        file.unlink(missing_ok=True)
    if took >= DOWN:
        raise Broken(f"not down {DOWN:.0f} s after the kill of {victim or 'everything'}")
    part.slowest = max(part.slowest, took)
    return (
        "everything" if not victim else "rank 0" if job.processes[victim] == "0" else "another rank"
    )


def wait(
    job: Job, condition: Callable[[], object], seconds: float = PATIENCE, pause: float = 0.002
) -> bool:
    """Return whether the condition came true before the run ended or the time was over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and job.process.poll() is None:
        if condition():
            return True
        time.sleep(pause)
    return False


def in_phase(part: Part, generation: int) -> bool:
    """Return whether a phase of the learner runs in a generation of this part (1, 2, ...)."""
    entered = np.diff(part.straight["metrics/learner_phases"], prepend=0)
    begun = part.straight.get("metrics/sac_phase", entered)
    if part.name == "ESAC virtual":  # one follows another
        return bool(begun[: generation - 1].any())
    first = generation - LAG if part.name == "ESAC beside" else generation
    return bool(begun[max(first - 1, 0) : generation].any())


def wait_for_moment(part: Part, job: Job, progress: bool) -> bool:
    """Wait for a random moment; return whether the run was still going on then. progress: not before the next checkpoint."""
    choose = part.choose
    kind = choose.choices(["start", "row", "publish", "phase"], [15, 30, 30, 25])[0]
    if kind == "start" and not progress:
        wait(job, lambda: False, choose.uniform(0, 3))
        job.look()
        return job.process.poll() is None
    if not wait(job, lambda: job.published):
        return False
    job.look()
    goal = min(made(job.path) + (5 if progress else choose.randrange(8)), GENERATIONS)
    wait(job, Grown(job, goal))
    if kind == "publish":
        some = choose.choice(["", "checkpoint", "checkpoint", "replay/"])
        wait(
            job,
            lambda: [name for name in temporaries(job.path) if name.startswith(some)],
            1.0,
            pause=0.0,
        )
    elif kind == "phase":
        wait(job, lambda: in_phase(part, made(job.path) + 1), 2.0)
    if kind != "publish":
        wait(job, lambda: False, choose.uniform(0, 0.1))
    return job.process.poll() is None


@dataclass
class Grown:
    """Whether a run has published `goal` rows; the file is read only when it is a new one."""

    job: Job
    goal: int
    seen: int = 0

    def __call__(self) -> bool:
        """Look again."""
        before, self.seen = self.seen, inode(self.job.path)
        return before != self.seen and made(self.job.path) >= self.goal


def moment(part: Part, job: Job) -> str:
    """Return what a killed run was doing, by what it left."""
    if left := temporaries(job.path):
        return f"publishing {left[0]}"
    if not job.published:
        return "starting"
    return (
        "generation with a phase"
        if in_phase(part, made(job.path) + 1)
        else "elsewhere in a generation"
    )
