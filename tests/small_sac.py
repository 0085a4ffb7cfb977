"""A SAC learner small enough for a test."""

import numpy as np

from esac_mpi.config import Config, updated
from esac_mpi.learners import make
from esac_mpi.learners.sac import SAC
from esac_mpi.policy import Layout

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
FORMS: list[dict] = [{}, {"sac__value_network": True}, {"sac__automatic_temperature": True}, {"sac__interleaved": True}]


def learner(sizes: tuple[int, ...] = (1, 8, 8, 1), reserve: int = 0, **values) -> SAC:
    config = updated(Config(), {**SMALL, **{name.replace("__", "."): value for name, value in values.items()}})
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
    sac.update.learn_critics()
    sac.update.learn_actor()
    return sac.update.means(1)
