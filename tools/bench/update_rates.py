"""Turns of our learners' updates from random transitions of HalfCheetah's sizes; competitors.py has others' beside them."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from esac_mpi import learners
from esac_mpi.config import Config, updated
from esac_mpi.host import cooperative
from esac_mpi.operators.policy import Layout
from tools.bench.measurement import Timed

OBSERVATION = 17  # of HalfCheetah-v5
ACTION = 6
STORED = 10_000  # transitions to sample from


def chunks(
    update: Callable[[int], int],
    threads: int,
    seconds: float,
    device: str = "cpu",
    at_once: int = 100,
) -> Callable[[], Timed]:
    """Return a turn: `update(count)` repeated for so many seconds with so many torch threads; it returns the updates made.

    at_once: of which so many on a GPU, since their end is waited for there.
    """
    import torch

    at_once = 10 if device == "cpu" else at_once

    def work() -> Timed:
        torch.set_num_threads(threads)
        start, made = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            made += update(at_once)
        return made, time.perf_counter() - start

    return work


def transitions() -> Iterator[tuple[np.ndarray, np.ndarray, float, np.ndarray]]:
    """Yield random transitions: observation, action, reward, next observation."""
    random = np.random.default_rng(0)
    for _ in range(STORED):
        observations = random.standard_normal((2, OBSERVATION), dtype=np.float32)
        action = random.uniform(-1, 1, ACTION).astype(np.float32)
        yield observations[0], action, float(random.standard_normal()), observations[1]


def ours(
    name: str, hidden: tuple[int, ...], batch: int, device: str, threads: int, seconds: float, changes: dict[str, Any],
    captured: bool = True,
) -> Callable[[], Timed]:  # fmt: skip
    """Return a turn of our learner: whole phases with 50 updates a step, of steps that others played and nobody stored.

    captured: on a GPU, as graphs; else one operation after another.
    """
    fields = {
        "policy.hidden": hidden, f"{name}.batch_size": batch, f"{name}.start_steps": 0, f"{name}.updates_per_step": 50.0,
        "learner.threads": threads, "learner.device": device, **changes,
    }  # fmt: skip
    config = updated(Config(), fields)
    layout = Layout(
        (OBSERVATION, *hidden, ACTION), config.policy.layer_norm, config.policy.path_gain
    )
    learner = learners.make(name, config, layout, layout.initial(0, 0))
    for observation, action, reward, next_observation in transitions():
        learner.replay.add(observation, action, reward, next_observation, False)
    if not captured:
        learner.chunks = None
        for adam in learner.adam.values():
            adam.take_rates(None)
    phases, nothing = iter(range(10**9)), np.zeros((0, learner.replay.width), np.float32)

    def update(count: int) -> int:
        return cooperative.run(
            learner.take([(nothing, 0.0, max(1, count // 50))], next(phases))
        ).gradient_updates

    return chunks(update, threads, seconds, device, at_once=500)
