"""Updates/s of learners on a GPU, beside their peers', and what they cost the core of the host that launches them.

Never run on a device so far.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from esac_mpi import learners
from esac_mpi.host.cooperative import ON_DEVICE
from tools.bench import gpu_bits, learner
from tools.bench.competitors import ACTION
from tools.bench.gpu_bits import Finding
from tools.bench.measurement import against, failed, turns

PEERS = ("ours", "stable-baselines3", "CleanRL-style")
COMPILED = ("ours", "compiled, captured")
WAYS = ("ours", "ours, determinism off", "ours tf32", "ours bf16", "ours one by one")
HUMANOID = 17  # numbers of an action: what is drawn for it takes most
PAUSE = 1e-3  # between two looks at the device, as beside an evaluation [s]


def updates(device: str, seconds: float = 1.5) -> Iterator[Finding]:
    """Measure SAC updates/s of each size, and what an update costs the host."""
    from esac_mpi.learners.chunks import updates_per_second

    for hidden, batch in learner.ON_GPU:
        learners.clear()  # of the size before
        made = gpu_bits.made("SAC", device, device != "cpu", hidden, batch_size=batch)
        rate = updates_per_second(made, seconds)
        host, drawn = host_seconds(made, max(int(rate * seconds), 1)), drawing(batch, ACTION)
        found = f"{rate:,.0f} updates/s; of the host {1e6 * host:.1f} us an update, {1e6 * drawn:.1f} of them to draw "
        found += f"({1e6 * drawing(batch, HUMANOID):.1f} for {HUMANOID} numbers an action): {host * rate:.1%} of a core, "
        found += f"{max(host - drawn, 0) * rate:.1%} without"
        yield Finding(f"SAC {case(hidden, batch)}", None, found)


def host_seconds(made: Any, count: int) -> float:
    """Return the time of the host's core that an update takes where its end is not waited for [s]."""
    from esac_mpi.learners import training

    start = time.thread_time()
    for part in made.chunks.make(count, training.streams(0, 3)):
        if part == ON_DEVICE:
            time.sleep(PAUSE)
    return (time.thread_time() - start) / count


def drawing(batch: int, action: int, count: int = 256) -> float:
    """Return the time of a core in which places and noise of a SAC update are drawn [s]."""
    from esac_mpi.learners import training
    from esac_mpi.learners.replay import Replay

    replay, random, noise = (
        Replay(1, 1, 1),
        training.streams(0, 4),
        np.empty((count, 2, batch, action), np.float32),
    )
    start = time.thread_time()
    replay.places(random.sampling, (count, batch), added=10**6, newest=10**6)
    random.update.standard_normal(dtype=np.float32, out=noise)
    return (time.thread_time() - start) / count


def competing(
    device: str, names: tuple[str, ...], seconds: float = 0.7, rounds: int = 2
) -> Iterator[Finding]:
    """Measure the updates/s of some of the competitors of `bench learner`, size by size, taking turns."""
    for hidden, batch in learner.ON_GPU:
        learners.clear()
        found = learner.on_gpu(hidden, batch, device, 1, seconds)
        rates = turns({name: turn for name, turn in found.items() if name in names}, rounds, failed)
        for each in against("learner", case(hidden, batch), rates, "updates/s"):
            told = f"{each.median:,.4g} {each.unit} ({each.min:,.4g} to {each.max:,.4g})"
            yield Finding(f"{each.case}: {each.figure}", None, told)


def case(hidden: tuple[int, ...], batch: int) -> str:
    """Return the name of a size."""
    return f"{len(hidden)}x{hidden[0]} batch={batch}"
