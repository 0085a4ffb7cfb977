"""One update of Soft Actor-Critic, forward and backward by hand.

Sources: Haarnoja et al. 2018a (arXiv:1801.01290, the form with a value network) and 2018b
(arXiv:1812.05905, twin critics with targets and the temperature). tests/learners/test_sac.py checks
it against the same formulas in plain torch with autograd.

All shapes are fixed, all buffers allocated once, and nothing waits for the device: an update is two
lists of operations, noted once. Done once where autograd does it twice: the actor's forward pass
for the observations and the next ones; through the critics only the gradient by the action is made,
for the lesser critic.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from esac_mpi import config
from esac_mpi.learners import updates
from esac_mpi.learners.network import TANH_BACKWARD, Adam, Network, Operations, Pass

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0  # public code of 2018a
STATISTICS = ("critic_loss", "actor_loss", "value_loss", "mean_q", "temperature", "entropy")


@dataclass(frozen=True)
class Parts:
    """What an update changes."""

    actor: Network  # its output is [mean; log std]
    critic: Network  # both of them
    value: Network | None
    target: Network  # of the critics, or of the value network where there is one
    temperature: Tensor  # []
    adam: dict[str, Adam]  # by name of the network; log_temperature if the temperature is tuned


class SACUpdate(updates.Update):
    """An update and its buffers, for batches of options.batch_size transitions.

    `noise` is [2, batch, a]. On a first axis of length 2, 0 is the action of the targets (at the
    next observation; for a value network at the observation), 1 the action from which the actor
    learns.
    """

    def __init__(self, parts: Parts, options: config.SAC) -> None:
        o = parts.actor.layout.sizes[0]
        a = parts.actor.layout.sizes[-1] // 2
        batch, like = options.batch_size, parts.actor.values
        # `batch_sums` are before the factors of `means`
        super().__init__(like, batch, o, a, len(STATISTICS))
        self.parts, self.options, self.actions = parts, options, a
        self._noise = self.take_noise(2, batch, a)

        observation = self.transitions.observation
        next_observation = self.transitions.next_observation
        self._taken = self.transitions.taken.expand(2, batch, o + a)
        pairs = like.new_empty(2, batch, o + a)  # (observation, action)
        self._sources = [
            (pairs[0, :, :o], observation if parts.value else next_observation),
            (pairs[1, :, :o], observation),
        ]
        self._pairs = [pair.expand(2, batch, o + a) for pair in pairs]
        self._paired_action, self._action = pairs[:, :, o:], like.new_empty(2, batch, a)
        # the actor sees the observations, and the next ones if there is no value network
        states = 1 if parts.value else 2
        self._actor_in = pairs[2 - states :].view(states * batch, o + a)[:, :o]

        self._actor_pass = Pass(parts.actor, states * batch)
        self._critic_pass = Pass(parts.critic, batch)
        self._value_pass = Pass(parts.value, batch) if parts.value else None
        self._mean, self._raw = self._actor_pass.output.view(states, batch, 2 * a).chunk(2, -1)
        self._log_std = like.new_empty(states, batch, a)
        self._deviation, self._log_prob = like.new_empty(2, batch, a), like.new_empty(2, batch)
        self._one = like.new_tensor(1.0)
        self._log = dict(zip(STATISTICS, self.batch_sums, strict=True))
        self.networks = [n for n in (parts.actor, parts.critic, parts.value, parts.target) if n]
        self._note_critics(self._critic)
        self._note_actor(self._actor)

    def means(self, updates: int) -> dict[str, float]:
        """Return the means of what `updates` updates measured; nothing if there was none."""
        if not updates:
            return {}
        sums = dict(zip(STATISTICS, (self.sums / (updates * self.batch)).tolist(), strict=True))
        losses = {
            "critic_loss": sums["critic_loss"] / 2,
            "actor_loss": sums["actor_loss"] - sums["mean_q"],
        }
        if self.parts.value:
            losses["value_loss"] = sums["value_loss"] / 2
        temperature = sums["temperature"] * self.batch
        return {
            **losses,
            "mean_q": sums["mean_q"],
            "temperature": temperature,
            "entropy": -sums["entropy"],
        }

    def _note_critics(self, do: Operations) -> None:
        parts = self.parts
        for observation, source in self._sources:
            do.note(observation.copy_, source)
        self._note_actions(do)
        q = self._critic_pass.forward(
            do, parts.critic if parts.value else parts.target, self._pairs[0]
        )[..., 0]
        batch = self.transitions
        value, backup = torch.empty_like(batch.reward), torch.empty_like(batch.reward)
        do.note(torch.minimum, q[0], q[1], out=value)
        do.note(value.addcmul_, parts.temperature, self._log_prob[0], value=-1)  # 2018b, Eq. 3
        if self._value_pass:
            self._note_fit(do, "value", self._value_pass, batch.observation, value)  # 2018a, Eq. 5
            value = self._value_pass.forward(do, parts.target, batch.next_observation)[:, 0]
        # only termination ends the sum of rewards
        do.note(torch.sub, self._one, batch.terminated, out=backup)
        do.note(torch.addcmul, batch.reward, backup, value, value=self.options.gamma, out=backup)
        # 2018b, Eq. 5; 2018a, Eq. 7: added
        self._note_fit(do, "critic", self._critic_pass, self._taken, backup)

    def _note_actor(self, do: Operations) -> None:
        parts, log = self.parts, self._log
        q = self._critic_pass.forward(do, parts.critic, self._pairs[1])[..., 0]
        lesser = torch.empty_like(self._log_prob)
        difference = torch.empty_like(self.transitions.reward)
        do.note(torch.sub, q[1], q[0], out=difference)
        do.note(torch.heaviside, difference, self._one / 2, out=lesser[0])
        do.note(torch.sub, self._one, lesser[0], out=lesser[1])
        do.note(torch.dot, lesser.view(-1), q.view(-1), out=log["mean_q"])
        do.note(torch.sum, self._log_prob[1], 0, out=log["entropy"])
        do.note(torch.mul, parts.temperature, log["entropy"], out=log["actor_loss"])
        do.note(log["temperature"].copy_, parts.temperature)

        delta = self._note_actor_gradient(do, lesser)
        self._actor_pass.tail(self.batch).backward(
            do, parts.actor, self._actor_in[-self.batch :], delta
        )
        self._note_step(do, "actor")
        if "log_temperature" in parts.adam:
            self._note_temperature(do)
        do.note(parts.target.values.lerp_, (parts.value or parts.critic).values, self.options.tau)
        do.note(parts.target.refresh)
        do.note(self.sums.add_, self.batch_sums)

    def _note_actions(self, do: Operations) -> None:
        """Note tanh-Gaussian actions and their log pi (2018a, Eq. 21)."""
        self._actor_pass.forward(do, self.parts.actor, self._actor_in)
        gaussian, softplus, terms = (torch.empty_like(self._noise) for _ in range(3))
        deviation, log_std, std = self._deviation, self._log_std, torch.empty_like(self._log_std)
        do.note(torch.clamp, self._raw, LOG_STD_MIN, LOG_STD_MAX, out=log_std)
        do.note(torch.exp, log_std, out=std)
        do.note(torch.mul, std, self._noise, out=deviation)
        do.note(torch.add, self._mean, deviation, out=gaussian)
        # with gaps, as its copy is, it would be three times slower
        do.note(torch.tanh, gaussian, out=self._action)
        do.note(self._paired_action.copy_, self._action)
        # log(1 - tanh(u)^2) = 2 log 2 - 2 log(2 cosh u): no cancellation where tanh saturates
        do.note(F.softplus, gaussian, -2.0, out=softplus)  # -log(1 + exp(-2u)) / 2
        do.note(gaussian.sub_, softplus, alpha=2)  # log(2 cosh u)
        constant = self._one * -(math.log(2 * math.pi) / 2 + 2 * math.log(2))
        do.note(torch.addcmul, constant, self._noise, self._noise, value=-0.5, out=terms)
        do.note(terms.sub_, log_std)
        do.note(terms.add_, gaussian, alpha=2)
        do.note(torch.sum, terms, -1, out=self._log_prob)

    def _note_actor_gradient(self, do: Operations, lesser: Tensor) -> Tensor:
        """Return the gradient of J_pi (2018b, Eq. 9) by the actor's outputs [batch, 2 a]."""
        a = self.actions
        batch = self.batch
        critic = self.parts.critic
        temperature = self.parts.temperature
        first = self._critic_pass.inputs_backward(do, critic, lesser[..., None])
        # [2, a, hidden]: from the first layer's sums back to the action
        to_action = critic.layers[0][0][:, -a:]
        by_action = first.new_empty(a, batch)  # wide, not tall: four times faster
        do.note(
            torch.addbmm, by_action, to_action, first.mT, beta=0, alpha=-1 / batch, out=by_action
        )
        gradient, action = torch.empty_like(self._actor_pass.output[:batch]), self._action[1]
        by_mean, by_log_std = gradient.chunk(2, -1)
        if by_action.dtype != gradient.dtype:
            do.note(by_mean.copy_, by_action.mT)
        source = by_action.mT if by_action.dtype == gradient.dtype else by_mean
        do.note(TANH_BACKWARD, source, action, grad_input=by_mean)
        do.note(by_mean.addcmul_, temperature, action, value=2 / batch)  # d log pi / d u = 2 tanh u
        do.note(torch.mul, by_mean, self._deviation[1], out=by_log_std)
        do.note(by_log_std.sub_, temperature, alpha=1 / batch)
        inside = torch.empty_like(action)
        do.note(torch.eq, self._raw[-1], self._log_std[-1], out=inside)
        do.note(by_log_std.mul_, inside)  # none where it was clamped
        return gradient

    def _note_fit(
        self, do: Operations, name: str, buffers: Pass, x: Tensor, target: Tensor
    ) -> None:
        """Note a descent step on (output - target)^2 / 2, batch mean, summed over the members."""
        network = getattr(self.parts, name)
        error = buffers.forward(do, network, x)
        flat = error.view(-1)
        do.note(error[..., 0].sub_, target)
        do.note(torch.dot, flat, flat, out=self._log[f"{name}_loss"])
        do.note(error.mul_, 1 / self.batch)
        buffers.backward(do, network, x, error)
        self._note_step(do, name)

    def _note_step(self, do: Operations, name: str) -> None:
        do.step(self.parts.adam[name])
        do.note(getattr(self.parts, name).refresh)

    def _note_temperature(self, do: Operations) -> None:
        """Note a descent of J(temperature) in its logarithm, target entropy -a (2018b, Eq. 18)."""
        adam, temperature = self.parts.adam["log_temperature"], self.parts.temperature
        do.note(torch.mul, temperature, self.actions, out=adam.gradient)
        do.note(adam.gradient.sub_, self._log["actor_loss"], alpha=1 / self.batch)
        do.step(adam)
        do.note(torch.exp, adam.values, out=temperature)
