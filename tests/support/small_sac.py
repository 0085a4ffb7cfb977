"""A SAC learner small enough for a test."""

import math
from functools import partial

import small_learners
import torch

FORMS: list[dict] = [
    {},
    {"sac__value_network": True},
    {"sac__automatic_temperature": True},
    {"sac__interleaved": True},
]
learner = partial(small_learners.learner, "sac")


def entropy_where_tanh_saturates(sac, sign: int) -> tuple[float, float]:
    """Update once at u = 30 sign + 0.5 in a batch of one; return -log pi, measured and precise.

    log pi = log N - log(1 - tanh(u)^2), the latter 2 log 2 - 2 |u| to double precision.
    """
    sac.actor.values.zero_()
    sac.actor.values[-2:] = torch.tensor([30.0 * sign, 0.0])  # biases of mean and log std
    small_learners.fill(sac)
    sac.update.noise[:] = 0.5
    sac.update.learn_critic()
    sac.update.learn_actor()
    log_prob = -0.125 - math.log(2 * math.pi) / 2 - 2 * math.log(2) + 2 * abs(sign * 30.0 + 0.5)
    return sac.update.means(1)["entropy"], -log_prob
