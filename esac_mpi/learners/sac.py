"""Soft Actor-Critic, on rank 0: its parts, its phases, what a checkpoint takes of it. The update is in update.py.

Sources: Haarnoja et al. 2018a (arXiv:1801.01290, the form with a value network) and 2018b (arXiv:1812.05905, twin critics
with targets and the temperature); ESAC's Algorithm 1, lines 13-23.

Where we differ, or the sources leave a choice:
- The actor's hidden layers and mean are `theta`, in the layout of the ES policy; its log standard deviation is a head of
  its own, which never leaves the learner.
- The actor is a tanh-squashed Gaussian also under policy.output = "clip". There the policy that is evaluated acts by
  clip(mean) where the learner's own would by tanh(mean): the same sign and the same bounds, other values between.
- The two critics' losses are added, and one step is taken (public ESAC code: one step each, with one Adam).
- Time limits are truncations: they bootstrap. So does the cut at the end of a phase.
- Updates follow the whole collection; `interleaved` makes them step by step, as the public code does.
"""

from collections.abc import Generator, Mapping

import numpy as np
import torch

from esac_mpi.config import Config
from esac_mpi.envs import Env
from esac_mpi.learners import LearnerNotFinite, memory, training
from esac_mpi.learners.network import Adam, Network, forward
from esac_mpi.learners.phase import Phase
from esac_mpi.learners.replay import Replay
from esac_mpi.learners.training import Streams
from esac_mpi.learners.update import LOG_STD_MAX, LOG_STD_MIN, Parts, Update
from esac_mpi.policy import Layout

LOG_STD_HEAD, CRITIC1, CRITIC2, VALUE = 16, 17, 18, 19  # which network initial weights are drawn for


class SAC(memory.Memory):
    """The SAC learner: networks, Adam, temperature, replay and its count of training steps."""

    NAME = "SAC"

    def __init__(self, config: Config, layout: Layout, theta: np.ndarray, reserve: int = 0) -> None:
        """Take the initial actor `theta`, float32 [d]; draw the other networks.

        While its state is held, phases may add `reserve` transitions.
        """
        self.device = memory.device(config.learner)
        self.seed, self.options, self._activation = config.seed, config.sac, config.policy.activation
        o, *hidden, a = layout.sizes
        self.replay = Replay(config.sac.replay_capacity, o, a, reserve)
        self.env_steps = 0  # training steps ever

        head = Layout((layout.sizes[-2], a)).initial(config.seed, LOG_STD_HEAD)
        actor = np.concatenate([theta[:-a], head[:-a], theta[-a:], head[-a:]])  # its last layer is [mean; log std]
        self._trunk, self._actions = layout.d - a, a
        self._products = torch.bfloat16 if config.learner.precision == "bf16" else torch.float32
        self.actor = Network(Layout((o, *hidden, 2 * a)), [actor], self._activation, self.device, self._products)
        critic, value = ((o + a, *hidden, 1), CRITIC1, CRITIC2), ((o, *hidden, 1), VALUE)
        self.critic = self._network(*critic)  # both of them: outputs are [2, batch, 1]
        self.value = self._network(*value) if config.sac.value_network else None
        self.target = self._network(*(value if self.value else critic))  # at first equal to the one it follows
        self.targets = {"target": self.target}
        self.temperature = torch.tensor(config.sac.temperature, device=self.device)
        self.adam = {"actor": self._adam(self.actor), "critic": self._adam(self.critic)}
        if self.value:
            self.adam["value"] = self._adam(self.value)
        if config.sac.automatic_temperature:
            log_temperature = torch.log(self.temperature)
            self.adam["log_temperature"] = Adam(log_temperature, torch.zeros_like(log_temperature), config.sac.lr_sac)
            self.temperature = log_temperature.exp()  # the same bits as after a restart
        parts = Parts(self.actor, self.critic, self.value, self.target, self.temperature, self.adam)
        self.update = Update(parts, config.sac)

    @property
    def theta(self) -> np.ndarray:
        """A copy of the actor's hidden layers and mean, float32 [d], in the order of the policy's layout."""
        values, a = self.actor.values.cpu().numpy(), self._actions
        return np.concatenate([values[: self._trunk], values[-2 * a : -a]])

    def phase(self, env: Env, k: int, episodes: int, steps: int, cut: bool = False) -> Phase:
        """Run `begin` to its end. Raises LearnerNotFinite."""
        return training.run(self.begin(env, k, episodes, steps, cut))

    def begin(self, env: Env, k: int, episodes: int, steps: int, cut: bool = False) -> Generator[None, None, Phase]:
        """Play at least `episodes` whole episodes and `steps` steps, and learn from them: Algorithm 1, lines 13-23.

        With `cut`, play exactly `steps` steps; the episode in progress at their end is no complete one. Yields after each
        step and each part of an update; returns the phase. It is a function of the learner at its start and of the address
        (seed, k), whatever is done between its parts. Raises LearnerNotFinite.
        """
        phase = yield from training.begin(self, self._action, self._learn, env, k, episodes, steps, cut)
        self.check_finite()
        return phase

    def _action(self, actor: list[np.ndarray], observation: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draw an action in [-1, 1], float32 [a]: uniform in the first start_steps, then from the actor's `Network.numpy()`."""
        if self.env_steps < self.options.start_steps:
            return random.uniform(-1.0, 1.0, self._actions).astype(np.float32)
        output = forward(actor, self._activation, observation)
        mean, log_std = output[: self._actions], output[self._actions :]
        noise = random.standard_normal(self._actions, dtype=np.float32)
        action = np.tanh(mean + np.exp(np.maximum(np.minimum(log_std, LOG_STD_MAX), LOG_STD_MIN)) * noise)
        if not np.isfinite(action).all():
            raise LearnerNotFinite(f"the actor's action is not finite at training step {self.env_steps}")
        return action

    def _learn(self, since: int, random: Streams) -> Generator[None, None, int]:
        """Make the updates due for the training steps after `since`; return their number."""
        update = self.update
        if len(self.replay) < self.options.batch_size:
            return 0
        updates = training.due(self.options.updates_per_step, since, self.env_steps)
        for _ in range(updates):
            self.replay.sample(random.sampling, update.rows)
            random.update.standard_normal(dtype=np.float32, out=update.noise)
            update.learn_critics()
            yield
            update.learn_actor()
            yield
        return updates

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        """Take over what `arrays` returned. Raises ValueError for another learner's."""
        super().load(saved)
        if "log_temperature" in self.adam:
            torch.exp(self.adam["log_temperature"].values, out=self.temperature)

    def _network(self, sizes: tuple[int, ...], *members: int) -> Network:
        layout = Layout(sizes)
        return Network(layout, [layout.initial(self.seed, member) for member in members], "relu", self.device, self._products)

    def _adam(self, network: Network) -> Adam:
        return Adam(network.values, network.gradient, self.options.lr_sac)
