"""The line about the GPU that the learner would have: whether it has room there, and how fast it is. Rank 0 alone asks.

Never run on a device so far; tests/test_gpu.py holds its words where torch's answers are made up.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from esac_mpi import envs, learners, turns
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.check.report import Line
from esac_mpi.config import Config
from esac_mpi.params import make_layout

SECONDS = 2.0  # of updates that are measured


def learner(config: Config, env: envs.Env | None) -> list[Line]:
    """Return the line about the GPU; none where the learner would be on a CPU, or machine.py has said why it cannot be."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    if learning is None or env is None or config.learner.device == "cpu":
        return []
    import torch

    if not torch.cuda.is_available():
        return []
    layout, discrete, name = make_layout(config, env), envs.is_discrete(env), learning.learner(config)
    try:
        made = learners.make(name, config, layout, layout.initial(config.seed, 0), discrete=discrete)
    except (learners.NoDevice, learners.NotInstalled) as error:
        return [Line("GPU", "not to be used", str(error), True)]
    (free, total), driver = torch.cuda.mem_get_info(), learners.load("gpu").driver()
    found = f"{torch.cuda.get_device_name()}, {total:,} bytes of memory, {free:,} free beside this learner"
    found += f"; driver {driver or 'not told'}"
    if getattr(made, "chunks", None):
        try:
            found += f"; {updates_per_second(made, SECONDS):,.0f} updates/s, {config.learner.precision}"
        except RuntimeError as error:
            return [Line("GPU", f"{found}; its updates fail", learners.load("gpu").sentence(error, 2), True)]
    return [Line("GPU", found)]


def updates_per_second(learner: Any, seconds: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how many updates a new learner with chunks makes a second, from random transitions; it is spoilt by that."""
    from esac_mpi.learners import chunks, training

    rows = np.random.default_rng(0).uniform(-1, 1, (len(learner.update.rows), learner.replay.width))
    learner.replay.add_rows(rows.astype(np.float32))
    learner.update.start()
    random, several, made = training.streams(0, 0), 4 * chunks.CHUNK, 0
    turns.run(learner.chunks.make(several, random))  # captures
    start = now = clock()
    while now < start + seconds:
        turns.run(learner.chunks.make(several, random))
        made, now = made + several, clock()
    return made / (now - start)
