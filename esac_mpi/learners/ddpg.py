"""Deep Deterministic Policy Gradient, on rank 0: networks, phases, update and checkpoint.

Source: Lillicrap et al. 2016 (arXiv:1509.02971), Algorithm 1: td3.py without its three changes.

Where we differ, or leave a choice:
- Exploration is Gaussian, as in Fujimoto et al. 2018, who found nothing in favour of the paper's
  Ornstein-Uhlenbeck process; it has no state, so that an episode may be cut between two phases. The
  first steps are uniform, as in their code.
- The critic sees the action in its first layer, not the second; no batch normalisation; hidden
  layers are `policy.hidden`.
- All networks start as this program's policies do (policy.py), not with a last layer near zero.
- The actor acts by tanh also under policy.output = "clip", where the evaluated policy acts by clip.
- Time limits are truncations: they bootstrap. So does the cut at the end of a phase.
"""

from esac_mpi.learners import Start
from esac_mpi.learners.deterministic import Deterministic
from esac_mpi.learners.td3 import CRITIC1


class DDPG(Deterministic):
    """The DDPG learner: one critic, no noise on the target's action, no delay."""

    NAME = "DDPG"

    def __init__(self, start: Start) -> None:
        """Take the initial actor; draw the critic."""
        options = start.config.ddpg
        super().__init__(start, options)
        critics = self.critics(start.layout, CRITIC1)
        rates, decay = (options.lr_actor, options.lr_critic), options.critic_weight_decay
        self.assemble(start, critics, *rates, weight_decay=decay)
