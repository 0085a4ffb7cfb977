"""A SAC learner small enough for a test."""

import math

import numpy as np
import torch

from esac_mpi.config import Config, updated
from esac_mpi.learners import make
from esac_mpi.learners.sac import SAC
from esac_mpi.operators.policy import Layout

SMALL = {
    "policy.hidden": (8, 8),
    "sac.batch_size": 16,
    "sac.replay_capacity": 500,
    "sac.start_steps": 30,
    "learner.device": "cpu",
    "learner.kernels": "torch",
    "policy.linear": False,
    "sac.lr_sac": 3e-4,
    "sac.temperature": 0.2,
    "sac.automatic_temperature": False,
}
FORMS: list[dict] = [
    {},
    {"sac__value_network": True},
    {"sac__automatic_temperature": True},
    {"sac__interleaved": True},
]


def learner(sizes: tuple[int, ...] = (1, 8, 8, 1), reserve: int = 0, **values) -> SAC:
    config = updated(
        Config(), {**SMALL, **{name.replace("__", "."): value for name, value in values.items()}}
    )
    layout = Layout(sizes, config.policy.layer_norm, config.policy.path_gain)
    return make("sac", config, layout, layout.initial(config.seed, 1), reserve)


def fill(sac: SAC, seed: int = 0) -> None:
    """Give the next update a batch, every third transition of which is terminal, and noise."""
    random, rows, columns = np.random.default_rng(seed), sac.update.rows, sac.replay.columns
    rows[:] = random.uniform(-1, 1, rows.shape)
    rows[:, columns.terminated] = np.arange(len(rows)) % 3 == 0
    sac.update.noise[:] = random.standard_normal(sac.update.noise.shape)


def learn(sac: SAC, seed: int = 0) -> dict[str, float]:
    """Make an update; return what it measured."""
    fill(sac, seed)
    sac.update.start()
    sac.update.learn_critic()
    sac.update.learn_actor()
    return sac.update.means(1)


def entropy_where_tanh_saturates(sac: SAC, sign: int) -> tuple[float, float]:
    """Update once at u = 30 sign + 0.5 in a batch of one; return -log pi, measured and precise.

    Precise: as it is to double precision.

    log pi = log N - log(1 - tanh(u)^2), the latter 2 log 2 - 2 |u|.
    """
    sac.actor.values.zero_()
    sac.actor.values[-2:] = torch.tensor([30.0 * sign, 0.0])  # biases of mean and log std
    fill(sac)
    sac.update.noise[:] = 0.5
    sac.update.learn_critic()
    sac.update.learn_actor()
    log_prob = -0.125 - math.log(2 * math.pi) / 2 - 2 * math.log(2) + 2 * abs(sign * 30.0 + 0.5)
    return sac.update.means(1)["entropy"], -log_prob
