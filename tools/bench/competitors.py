"""Learners as competitors: turns of updates from random transitions of HalfCheetah's sizes, ours and stable-baselines3's."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from tools.bench.measurement import Timed
from tools.bench.update_rates import (
    ACTION,
    OBSERVATION,
    STORED,
    chunks,
    ours,
    transitions,
)

__all__ = [
    "ACTION",
    "OBSERVATION",
    "STORED",
    "chunks",
    "ours",
    "sb3",
    "sbx",
    "trained",
    "transitions",
]


def sb3(
    name: str, hidden: tuple[int, ...], batch: int, device: str, threads: int, seconds: float
) -> Callable[[], Timed]:
    """Return a turn of stable-baselines3's train; its DDPG has no weight decay, where ours has."""
    import stable_baselines3

    return trained(
        getattr(stable_baselines3, name.upper()), name, hidden, batch, device, threads, seconds
    )


def sbx(
    hidden: tuple[int, ...], batch: int, device: str, threads: int, seconds: float
) -> Callable[[], Timed]:
    """Return a turn of SBX's SAC, in JAX on one thread: all updates of a call are one compiled program."""
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"  # before JAX is imported
    )
    import sbx

    return trained(sbx.SAC, "sac", hidden, batch, device, threads, seconds, at_once=50)


def trained(
    kind: Any, name: str, hidden: tuple[int, ...], batch: int, device: str, threads: int, seconds: float,
    at_once: int | None = None,
) -> Callable[[], Timed]:  # fmt: skip
    """Return a turn of `train` of a learner by stable-baselines3's interface. at_once: updates of a call."""
    import gymnasium
    from stable_baselines3.common.logger import configure

    class Spaces(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (ACTION,), np.float32)

    model = kind(
        "MlpPolicy", Spaces(), batch_size=batch, buffer_size=STORED, device=device, policy_kwargs={"net_arch": list(hidden)},
        **({"ent_coef": 0.2} if name == "sac" else {}),
    )  # fmt: skip
    model.set_logger(configure(None, []))
    assert model.replay_buffer is not None
    for observation, action, reward, next_observation in transitions():
        moved = observation[None], next_observation[None], action[None]
        model.replay_buffer.add(*moved, np.array([reward]), np.zeros(1), [{}])

    def update(count: int) -> int:
        model.train(at_once or count, batch)
        return at_once or count

    return chunks(update, threads, seconds, device)
