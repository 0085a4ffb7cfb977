"""A PPO learner small enough for a test, and its tasks."""

import numpy as np
from gradients import Line

from esac_mpi.config import Config, amend
from esac_mpi.learners import make
from esac_mpi.operators.policy import Layout

KINDS = ["continuous", "categorical", "gaussian_argmax"]


class Choice(Line):
    """The line in a discrete task: guess whether x is positive; a wrong guess ends it."""

    action_size = 2
    low, high = -np.ones(2, np.float32), np.ones(2, np.float32)
    discrete = True

    def step(self, action):
        assert action.dtype == np.float32
        assert sorted(action) == [-1, 1]
        self.actions.append(int(np.argmax(action)))
        self.length += 1
        right = self.actions[-1] == (self.x[0] > 0)
        end = self.length == self.horizon
        return self.observe(), float(right), not right and self.length > 12, end


def task(kind: str):
    return Line() if kind == "continuous" else Choice()


def learner(
    kind: str = "continuous",
    sizes: tuple[int, ...] | None = None,
    seed: int = 0,
    activation="tanh",
    **values,
):
    """Return a small learner; `values` are fields of its table."""
    sizes = sizes or (1, 8, 8, 1 if kind == "continuous" else 2)
    small = {"steps_per_generation": 50, "batch_size": 16, "epochs": 2, **values}
    small |= {"action": kind} if kind != "continuous" else {}
    chosen = {"seed": seed, "policy.hidden": sizes[1:-1], "policy.activation": activation}
    chosen |= {"learner.device": "cpu", **{f"ppo.{key}": value for key, value in small.items()}}
    config, theta = amend(Config(), chosen), np.zeros(Layout(sizes).d, np.float32)
    return make("ppo", config, Layout(sizes), theta, discrete=kind != "continuous")
