"""The learner of Evolutionary Reinforcement Learning, on rank 0: networks, update, checkpoint.

Sources: Khadka and Tumer 2018 (arXiv:1805.07917), whose learner is DDPG (Lillicrap et al. 2016)
with networks of its own, and their public code, which PDERL (Bodnar et al. 2020) shares. Episodes
that others played, the population's and its own, come by `take`.

Where we differ, or the sources leave a choice:
- Layers are normalised as torch does it (policy.py); the public code has a variant.
- All networks start as this program's policies do, with a tenth of the last layer (public code: of
  PyTorch's initial weights).
- Time limits are as the algorithm records them: erl.time_limits.
- Updates begin once the replay holds a batch; in the public code, five.
"""

from esac_mpi.learners import Start, critics
from esac_mpi.learners.critics import Critic
from esac_mpi.learners.deterministic import Deterministic


class ERL(Deterministic):
    """ERL's learner: networks, Adam, replay and training steps, the population's and its own."""

    NAME = "ERL"

    def __init__(self, start: Start) -> None:
        """Take the initial actor; draw the critic. Gradients are clipped."""
        config, options = start.config, start.config.erl
        super().__init__(start, options)
        layouts = critics.layouts(config, start.layout)
        theta = critics.initial(config, start.layout)
        made = layouts, theta, self.device, self._products
        rates = options.lr_actor, options.lr_critic
        self.assemble(start, (Critic(*made), Critic(*made)), *rates, clip=options.gradient_clip)
