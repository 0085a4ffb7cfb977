"""TD3 (twin delayed DDPG), on rank 0: networks, phases, update and checkpoint.

Source: Fujimoto et al. 2018 (arXiv:1802.09477), Algorithm 1, and the authors' later public code.
ddpg.py is this file without its three changes: twin critics, of which targets take the lesser;
noise on the target's action; actor and targets once in policy_delay updates. Actor and critics
share one learning rate here, and nothing decays.

Where we differ, or leave a choice:
- Hidden layers are `policy.hidden`; all networks start as this program's policies do (policy.py).
- The actor acts by tanh also under policy.output = "clip", where the evaluated policy acts by clip.
- Time limits are truncations: they bootstrap. So does the cut at the end of a phase.
"""

from esac_mpi.learners import Start
from esac_mpi.learners.deterministic import Deterministic

CRITIC1, CRITIC2 = 17, 18  # which network initial weights are drawn for


class TD3(Deterministic):
    """The TD3 learner: networks, Adam, replay and its count of training steps."""

    NAME = "TD3"

    def __init__(self, start: Start) -> None:
        """Take the initial actor; draw the critics."""
        options = start.config.td3
        super().__init__(start, options)
        critics = self.critics(start.layout, CRITIC1, CRITIC2)
        smoothing, delay = (options.policy_noise, options.noise_clip), options.policy_delay
        rates = options.lr_td3, options.lr_td3
        self.assemble(start, critics, *rates, smoothing=smoothing, delay=delay)
