"""Soft Actor-Critic, on rank 0.

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

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from esac_mpi.config import Config
from esac_mpi.envs import Env, UnstablePhysics
from esac_mpi.learners import NoDevice
from esac_mpi.learners.network import Adam, Network, assign, forward
from esac_mpi.learners.phase import Phase
from esac_mpi.learners.replay import Replay
from esac_mpi.noise import Purpose, generator, integer
from esac_mpi.policy import Layout

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0  # public code of 2018a
LOG_STD_HEAD, CRITIC1, CRITIC2, VALUE = 16, 17, 18, 19  # which network initial weights are drawn for


class LearnerNotFinite(Exception):
    """The learner's parameters, losses or actions are no longer finite; the message says which."""


class Streams(NamedTuple):
    """The random numbers of a phase."""

    exploration: np.random.Generator
    sampling: np.random.Generator
    reparameterisation: np.random.Generator


class SAC:
    """The SAC learner: networks, Adam, temperature, replay and its count of training steps."""

    def __init__(self, config: Config, layout: Layout, theta: np.ndarray) -> None:
        """Take the initial actor `theta`, float32 [d]; draw the other networks."""
        torch.set_num_threads(config.learner.threads)
        auto = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(auto if config.learner.device == "auto" else config.learner.device)
        if self.device.type == "cuda" and (self.device.index or 0) >= torch.cuda.device_count():
            raise NoDevice(f"learner.device = {config.learner.device}: torch sees {torch.cuda.device_count()} GPUs here")
        self.seed, self.options, self._activation = config.seed, config.sac, config.policy.activation
        o, *hidden, a = layout.sizes
        self.replay = Replay(config.sac.replay_capacity, o, a)
        self.env_steps = 0  # training steps ever

        head = Layout((layout.sizes[-2], a)).initial(config.seed, LOG_STD_HEAD)
        actor = np.concatenate([theta[:-a], head[:-a], theta[-a:], head[-a:]])  # its last layer is [mean; log std]
        self._trunk, self._actions = layout.d - a, a
        self.actor = Network(Layout((o, *hidden, 2 * a)), [actor], self._activation, self.device)
        critic, value = ((o + a, *hidden, 1), CRITIC1, CRITIC2), ((o, *hidden, 1), VALUE)
        self.critic = self._network(*critic)  # both of them: outputs are [2, batch, 1]
        self.value = self._network(*value) if config.sac.value_network else None
        self.target = self._network(*(value if self.value else critic))  # at first equal to the one it follows
        self.temperature = torch.tensor(config.sac.temperature, device=self.device)
        self.adam = {"actor": self._adam(self.actor), "critic": self._adam(self.critic)}
        if self.value:
            self.adam["value"] = self._adam(self.value)
        if config.sac.automatic_temperature:
            log_temperature = torch.log(self.temperature)
            self.adam["log_temperature"] = Adam(log_temperature, torch.zeros_like(log_temperature), config.sac.lr_sac)
            self.temperature = log_temperature.exp()  # the same bits as after a restart
        self._measured = ["critic_loss", "actor_loss", "mean_q", "entropy", "temperature"] + ["value_loss"] * bool(self.value)

    @property
    def theta(self) -> np.ndarray:
        """A copy of the actor's hidden layers and mean, float32 [d], in the order of the policy's layout."""
        values, a = self.actor.values.cpu().numpy(), self._actions
        return np.concatenate([values[: self._trunk], values[-2 * a : -a]])

    def phase(self, env: Env, k: int, episodes: int, steps: int, cut: bool = False) -> Phase:
        """Play at least `episodes` whole episodes and `steps` steps, and learn from them: Algorithm 1, lines 13-23.

        With `cut`, play exactly `steps` steps; the episode in progress at their end is no complete one. The phase is a
        function of the learner at its start and of the address (seed, k). Raises LearnerNotFinite.
        """
        random = Streams(*(generator(self.seed, Purpose.LEARNER, k, member) for member in range(3)))
        first, updates = self.env_steps, 0
        returns: list[float] = []
        sums = torch.zeros(len(self._measured), dtype=torch.float64, device=self.device)
        for _ in self._play(env, k, random.exploration, episodes, steps, cut, returns):
            if self.options.interleaved:
                updates += self._learn(self.env_steps - 1, random, sums)
        if not self.options.interleaved:
            updates = self._learn(first, random, sums)
        self._check_finite(sums)
        complete = [r for r in returns if math.isfinite(r)]
        means = (sums / updates).tolist() if updates else [math.nan] * len(sums)
        return Phase(
            self.env_steps - first, len(complete), len(returns) - len(complete), updates,
            float(np.mean(complete)) if complete else math.nan, **dict(zip(self._measured, means, strict=True)),
        )  # fmt: skip

    def _play(
        self, env: Env, k: int, random: np.random.Generator, episodes: int, steps: int, cut: bool, returns: list[float]
    ) -> Iterator[None]:
        """Play the episodes of a phase into the replay; yield after each step, append each episode's return (nan: unstable)."""
        stop = self.env_steps + steps
        actor = self.actor.numpy()
        while self.env_steps < stop or (len(returns) < episodes and not cut):
            try:
                observation = env.reset(integer(self.seed, Purpose.LEARNER_EPISODE, k, block=len(returns)))
            except UnstablePhysics:
                returns.append(math.nan)
                if len(returns) > stop:  # more episodes than steps: no start state can be made
                    raise
                continue
            total, ended = 0.0, False
            while not ended and not (cut and self.env_steps == stop):
                action = self._action(actor, observation, random)
                self.env_steps += 1
                transition = _step(env, action)
                if transition is None:
                    total, ended = math.nan, True
                else:
                    next_observation, reward, terminated, truncated = transition
                    self.replay.add(observation, action, reward, next_observation, terminated)
                    total, ended, observation = total + reward, terminated or truncated, next_observation
                yield
                if self.options.interleaved:
                    actor = self.actor.numpy()
            if ended:
                returns.append(total)

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

    def _learn(self, since: int, random: Streams, sums: Tensor) -> int:
        """Make the updates due for the training steps after `since`; add what they measure to `sums`; return their number."""
        rate, batch_size = self.options.updates_per_step, self.options.batch_size
        if len(self.replay) < batch_size:
            return 0
        updates = round(rate * self.env_steps) - round(rate * since)  # no fraction is lost between phases
        for _ in range(updates):
            batch = {name: self._tensor(column) for name, column in self.replay.sample(random.sampling, batch_size).items()}
            noise = random.reparameterisation.standard_normal((2, batch_size, self._actions), dtype=np.float32)
            sums += torch.stack(self.update(batch, *self._tensor(noise)))
        return updates

    def update(self, batch: dict[str, Tensor], noise1: Tensor, noise2: Tensor) -> list[Tensor]:
        """Make one gradient update with standard normal noise [batch, a], twice; return what `_measured` names."""
        value_loss = [self.adam["value"].descend(self.value_loss(batch, noise1))] if self.value else []
        critic_loss = self.adam["critic"].descend(self.critic_loss(batch, noise1))
        log_prob, q = self.evaluate_actor(batch, noise2)
        temperature = self.temperature
        actor_loss = self.adam["actor"].descend(temperature * log_prob - q)  # 2018b, Eq. 9
        if "log_temperature" in self.adam:
            self._tune_temperature(log_prob)
        self.target.values.lerp_((self.value or self.critic).values, self.options.tau)
        return [critic_loss, actor_loss, q.detach(), -log_prob.detach(), temperature, *value_loss]

    def value_loss(self, batch: dict[str, Tensor], noise: Tensor) -> Tensor:
        """Return J_V (2018a, Eq. 5)."""
        assert self.value
        with torch.no_grad():
            action, log_prob = self.sample_action(batch["observation"], noise)
            target = self.min_q(batch["observation"], action) - self.temperature * log_prob
        return (self.value(batch["observation"]).squeeze(-1) - target).square().mean() / 2

    def critic_loss(self, batch: dict[str, Tensor], noise: Tensor) -> Tensor:
        """Return J_Q of both critics, added (2018b, Eq. 5; 2018a, Eq. 7). Only termination ends the sum of rewards."""
        with torch.no_grad():
            value = self.next_value(batch["next_observation"], noise)
            target = torch.addcmul(batch["reward"], 1 - batch["terminated"], value, value=self.options.gamma)
        q = self.critic(torch.cat((batch["observation"], batch["action"]), -1)).squeeze(-1)  # [2, batch]
        return (q - target).square().mean()  # the mean over both is the sum of their halves

    def next_value(self, observation: Tensor, noise: Tensor) -> Tensor:
        """Return the target's estimate of V [batch] (2018b, Eq. 3), by V's own target if there is a value network."""
        if self.value:
            return self.target(observation, constant=True).squeeze(-1)
        action, log_prob = self.sample_action(observation, noise)
        q = self.target(torch.cat((observation, action), -1), constant=True)
        return q.amin(0).squeeze(-1) - self.temperature * log_prob

    def evaluate_actor(self, batch: dict[str, Tensor], noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means of log pi and of min Q over the actor's own actions: the two terms of J_pi (2018b, Eq. 9)."""
        action, log_prob = self.sample_action(batch["observation"], noise)
        return log_prob.mean(), self.min_q(batch["observation"], action).mean()

    def min_q(self, observation: Tensor, action: Tensor) -> Tensor:
        """Return the lesser of the two critics' values [batch]; no gradient reaches the critics."""
        return self.critic(torch.cat((observation, action), -1), constant=True).amin(0).squeeze(-1)

    def sample_action(self, observation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return tanh-Gaussian actions [batch, a] made of `noise`, and their log pi [batch] (2018a, Eq. 21)."""
        mean, log_std = self.actor(observation).chunk(2, -1)
        log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
        gaussian = torch.addcmul(mean, log_std.exp(), noise)
        # log(1 - tanh(u)^2) = 2 log 2 - 2 log(2 cosh u): no cancellation where tanh saturates
        log_2cosh = torch.sub(gaussian, F.softplus(gaussian, beta=-2.0), alpha=2)  # softplus here is -log(1 + exp(-2u)) / 2
        density = noise.square().sum(-1) / 2 + self._actions * (math.log(2 * math.pi) / 2 + 2 * math.log(2))
        log_prob = (
            torch.sub(log_2cosh, log_std, alpha=0.5).sum(-1) * 2 - density
        )  # log(1 - tanh(u)^2) = 2 log 2 - 2 log(2 cosh u)
        return torch.tanh(gaussian), log_prob

    def _tune_temperature(self, log_prob: Tensor) -> None:
        """Descend J(temperature) by its logarithm, towards an entropy of -a (2018b, Eq. 18)."""
        adam = self.adam["log_temperature"]
        adam.gradient.copy_(-self.temperature * (log_prob.detach() - self._actions))
        adam.step()
        self.temperature = adam.values.exp()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all that the learner remembers but its replay."""
        saved = {f"{name}_{part}": array for name, adam in self.adam.items() for part, array in adam.arrays().items()}
        return {**saved, "target": self.target.values.cpu().numpy().copy(), "env_steps": np.array(self.env_steps)}

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over what `arrays` returned. Raises ValueError for another learner's."""
        if arrays.keys() != self.arrays().keys():
            raise ValueError(f"learner arrays must be {sorted(self.arrays())}, got {sorted(arrays)}")
        for name, adam in self.adam.items():
            adam.load({key.removeprefix(f"{name}_"): array for key, array in arrays.items() if key.startswith(f"{name}_")})
        assign(self.target.values, arrays["target"])
        self.env_steps = int(arrays["env_steps"])
        if "log_temperature" in self.adam:
            self.temperature = self.adam["log_temperature"].values.exp()

    def _check_finite(self, sums: Tensor) -> None:
        """Raise LearnerNotFinite unless the parameters and the phase's losses are finite."""
        parts = {"losses": sums, "target": self.target.values, **{name: adam.values for name, adam in self.adam.items()}}
        bad = [name for name, tensor in parts.items() if not torch.isfinite(tensor).all()]
        if bad:
            raise LearnerNotFinite(f"the SAC learner's {', '.join(bad)} are no longer finite at training step {self.env_steps}")

    def _network(self, sizes: tuple[int, ...], *members: int) -> Network:
        layout = Layout(sizes)
        return Network(layout, [layout.initial(self.seed, member) for member in members], "relu", self.device)

    def _adam(self, network: Network) -> Adam:
        return Adam(network.values, network.gradient, self.options.lr_sac)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)


def _step(env: Env, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool] | None:
    """Take an action in [-1, 1]; return the environment's answer, or None if it is not to be learned from."""
    try:
        answer = env.step((env.high + env.low) / 2 + (env.high - env.low) / 2 * action)
    except UnstablePhysics:
        return None
    observation, reward, *_ = answer
    return answer if math.isfinite(reward) and np.isfinite(observation).all() and not env.unstable else None
