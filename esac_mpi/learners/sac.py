"""Soft Actor-Critic, on rank 0: networks, phases and checkpoint. Its update: sac_update.py.

Sources: Haarnoja et al. 2018a (arXiv:1801.01290, the form with a value network) and 2018b
(arXiv:1812.05905, twin critics with targets and the temperature); ESAC's Algorithm 1, lines 13-23.

Where we differ, or the sources leave a choice:
- The actor's hidden layers and mean are `theta`, in the layout of the ES policy; its log standard
  deviation is a head of its own, which never leaves the learner. With policy.linear both heads see
  the observation beside the last hidden units.
- The actor is a tanh-squashed Gaussian also under policy.output = "clip". There the evaluated
  policy acts by clip(mean) where the learner's own would by tanh(mean): the same sign and the same
  bounds, other values between.
- The two critics' losses are added, and one step is taken (public ESAC code: one step each, with
  one Adam).
- Time limits are truncations: they bootstrap. So does the cut at the end of a phase.
- Updates follow the whole collection; `interleaved` makes them step by step, as the public code
  does.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from esac_mpi import config as configuration
from esac_mpi.envs import Env
from esac_mpi.host import affinity
from esac_mpi.learners import Start, training
from esac_mpi.learners.base import GradientLearner
from esac_mpi.learners.compiled import CompiledUpdate
from esac_mpi.learners.explorers import CompiledExplorer, Explorer
from esac_mpi.learners.network import Adam, Network
from esac_mpi.learners.sac_update import LOG_STD_MAX, LOG_STD_MIN, Parts, SACUpdate
from esac_mpi.operators.policy import Layout

# which network initial weights are drawn for
LOG_STD_HEAD, CRITIC1, CRITIC2, VALUE = 16, 17, 18, 19


class SAC(GradientLearner):
    """The SAC learner: networks, Adam, temperature, replay and its count of training steps."""

    NAME = "SAC"

    def __init__(self, start: Start) -> None:
        """Take the initial actor; draw the other networks."""
        config, layout, theta = start.config, start.layout, start.theta
        super().__init__(start, config.sac)
        o, *hidden, a = layout.sizes
        head = Layout((layout.sizes[-2], a)).initial(config.seed, LOG_STD_HEAD)
        # a linear path into it begins at zero
        rows = np.pad(head[:-a].reshape(a, -1), [(0, 0), (0, layout.path)])
        # its last layer is [mean; log std]
        actor = np.concatenate([theta[:-a], rows.ravel(), theta[-a:], head[-a:]])
        self._trunk = layout.d - a
        self.actor = self.actor_network(
            Layout((o, *hidden, 2 * a), layout.layer_norm, layout.linear), actor
        )
        critic, value = ((o + a, *hidden, 1), CRITIC1, CRITIC2), ((o, *hidden, 1), VALUE)
        # both of them: outputs are [2, batch, 1]
        self.critic = critics = self.network(*critic)
        self.value = self.network(*value) if config.sac.value_network else None
        # at first equal to the one it follows
        self.target = self.network(*(value if self.value else critic))
        self.targets = {"target": self.target}
        self.temperature = torch.tensor(config.sac.temperature, device=self.device)
        self.adam = {"actor": self._adam(self.actor), "critic": self._adam(critics)}
        if self.value:
            self.adam["value"] = self._adam(self.value)
        if config.sac.automatic_temperature:
            log_temperature = torch.log(self.temperature)
            self.adam["log_temperature"] = Adam(
                log_temperature, torch.zeros_like(log_temperature), config.sac.lr_sac
            )
            self.temperature = log_temperature.exp()  # the same bits as after a restart
        parts = Parts(self.actor, critics, self.value, self.target, self.temperature, self.adam)
        if self.compiled:  # more threads than cores would wait for each other
            threads = min(config.learner.threads, len(affinity.cores()))
            self.update = CompiledUpdate(parts, config.sac, threads)
        else:
            self.update = SACUpdate(parts, config.sac)
        self.ready()

    @property
    def theta(self) -> np.ndarray:
        """A copy of the actor's hidden layers and mean, float32 [d], in the policy's layout."""
        values, a = self.actor.values.cpu().numpy(), self._actions
        return np.concatenate([values[: self._trunk], values[-2 * a : -a]])

    def _explorer(self, env: Env, random: np.random.Generator) -> Explorer:
        if self.compiled:
            return CompiledExplorer(self.actor, env, self.normaliser, random)
        return super()._explorer(env, random)

    def _explored(self, output: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draw an action in [-1, 1], float32 [a]: tanh of a Gaussian; output: [mean; log std]."""
        mean, log_std = output[: self._actions], output[self._actions :]
        noise = random.standard_normal(self._actions, dtype=np.float32)
        return np.tanh(
            mean + np.exp(np.maximum(np.minimum(log_std, LOG_STD_MAX), LOG_STD_MIN)) * noise
        )

    def _updates_due(self, since: int) -> int:
        """Count the updates that the training steps after `since` call for."""
        return training.count_due(self.options.updates_per_step, since, self.env_steps)

    def _load(self, saved: Mapping[str, np.ndarray]) -> None:
        """Take over what `arrays` returned, and the temperature by its logarithm."""
        super()._load(saved)
        if "log_temperature" in self.adam:
            torch.exp(self.adam["log_temperature"].values, out=self.temperature)

    def carried(self) -> list[Tensor]:
        """List what an update changes and a later one starts from: the temperature, too."""
        return [*super().carried(), self.temperature]

    def fitting(
        self, saved: Mapping[str, np.ndarray], before: configuration.Config
    ) -> dict[str, np.ndarray]:
        """Pick what `load` takes of another run's SAC.

        A temperature that was set anew, or becomes automatic, begins anew.
        """
        own = self.arrays()
        own = {name: own[name] for name in own if name.startswith("log_temperature")}
        if own.keys() <= saved.keys() and before.sac.temperature == self.options.temperature:
            own = {}
        return super().fitting({**saved, **own}, before)

    def _adam(self, network: Network) -> Adam:
        return Adam(network.values, network.gradient, self.options.lr_sac)
