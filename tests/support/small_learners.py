"""Learners small enough for a test, by name, and one update of theirs."""

from dataclasses import fields
from functools import partial

import numpy as np
import torch
from gradients import Line
from words import named

from esac_mpi.config import Config, amend
from esac_mpi.host import cooperative
from esac_mpi.learners import make
from esac_mpi.operators.policy import Layout

RIVALS = ["td3", "ddpg"]
OFF_POLICY = {"replay_capacity", "start_steps"}  # what a learner without a replay lacks
PLAIN = {
    "learner.device": "cpu",
    "learner.kernels": "torch",
    "policy.linear": False,
    "sac.lr_sac": 3e-4,
    "sac.temperature": 0.2,
    "sac.automatic_temperature": False,
}


def learner(
    name: str, sizes: tuple[int, ...] = (1, 8, 8, 1), reserve: int = 0, seed: int = 0, **values
):
    """Return a small learner; `values`: fields of its table, or others as section__field."""
    small = {"batch_size": 16, "replay_capacity": 500, "start_steps": 30, **values}
    for key in OFF_POLICY - {f.name for f in fields(getattr(Config(), name))}:
        small.pop(key)
    chosen = {**PLAIN, "policy.hidden": sizes[1:-1], **named(name, seed=seed, **small)}
    config = amend(Config(), chosen)
    layout = Layout(sizes, config.policy.layer_norm, config.policy.path_gain(sizes[0]))
    return make(name, config, layout, layout.initial(config.seed, 1), reserve)


def run_phase(made, *arguments, **more):
    return cooperative.run(made.begin(*arguments, **more))


def fill(made, seed: int = 0) -> None:
    """Give the next update a batch, every third transition of which is terminal, and noise."""
    random, rows = np.random.default_rng(seed), made.update.rows
    rows[:] = random.uniform(-1, 1, rows.shape)
    rows[:, made.replay.columns.terminated] = np.arange(len(rows)) % 3 == 0
    if hasattr(made.update, "noise"):
        made.update.noise[:] = random.standard_normal(made.update.noise.shape)


def learn(made, seed: int = 0, actor: bool = True) -> dict[str, float]:
    fill(made, seed)
    made.update.start()
    made.update.learn_critic()
    if actor:
        made.update.learn_actor()
    return made.update.means(1)


def played(made, k: int, steps: int, sums: np.ndarray | None = None):
    """Let a learner play and learn; one that plays no episodes takes over what others played."""
    if made.NAME != "ERL":
        return run_phase(made, Line(), k, 1, steps, sums=sums)
    rows = np.random.default_rng(k).uniform(-1, 1, (steps, made.replay.width)).astype(np.float32)
    return cooperative.run(made.take([(rows, 0.0, steps)], k, sums))


def perturbed(made):
    """Move all weights: no bias is zero, and no target equals what it follows."""
    random = torch.Generator().manual_seed(3)
    followed = [adam.values for name, adam in made.adam.items() if name != "log_temperature"]
    for values in (*(target.values for target in made.targets.values()), *followed):
        values.add_(0.3 * torch.randn(values.shape, generator=random))
    return made


sac = partial(learner, "sac")
SAC_FORMS: list[dict] = [
    {},
    {"sac__value_network": True},
    {"sac__automatic_temperature": True},
    {"sac__interleaved": True},
]
