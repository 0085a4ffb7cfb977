"""The critics by which an ERL run judges actions, whoever its learner is: how many numbers they have, and how ERL's own begins.

ERL's own critic (public code) sees observation and action through a layer each, then both through one that is normalised; ELU
follows every layer but the last. In its flat vector the two first layers come one after the other, then the joint rest.
"""

import numpy as np

from esac_mpi.config import Config
from esac_mpi.operators import genetics
from esac_mpi.operators.policy import Layout

OBSERVATION, ACTION, JOINT = 17, 18, 19  # which network initial weights are drawn for


def layouts(config: Config, layout: Layout) -> list[Layout]:
    """Return the layouts whose vectors, one after the other, are a critic of the learner; layout: of the policy."""
    o, *hidden, a = layout.sizes
    if config.erl.learner != "ddpg":
        return [Layout((o + a, *hidden, 1), getattr(config, config.erl.learner).critic_layer_norm)]
    side, joint = config.erl.critic_hidden
    return [Layout((o, side)), Layout((a, side)), Layout((2 * side, joint, 1), layer_norm=True)]


def critic_size(config: Config, layout: Layout) -> int:
    """Return how many numbers a critic of the learner has; layout: of the policy."""
    return sum(part.d for part in layouts(config, layout))


def initial(config: Config, layout: Layout) -> np.ndarray:
    """Return ERL's own critic at the start, float32 [critic_size]: as policies start, the last layer as that of ERL's actors."""
    *sides, joint = layouts(config, layout)
    drawn = [
        side.initial(config.seed, network)
        for side, network in zip(sides, (OBSERVATION, ACTION), strict=True)
    ]
    return np.concatenate([*drawn, genetics.initial(joint, config.seed, JOINT)])
