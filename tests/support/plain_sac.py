"""SAC's update from the papers' formulas, and learners that are put where it is hard."""

import math

import numpy as np
import pytest
import torch
from gradients import distance, flat, modules
from plain_td3 import descend, follow, named
from small_learners import learn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from esac_mpi.learners.sac import SAC


class Plain:
    """SAC's update by modules, autograd and torch.optim.Adam, in double precision."""

    def __init__(self, sac: SAC):
        self.options, self.columns = sac.options, sac.replay.columns
        activation = sac._activation
        self.networks = {"actor": modules(sac.actor, activation), "critic": modules(sac.critic)}
        if sac.value:
            self.networks["value"] = modules(sac.value)
        self.target = modules(sac.target)
        self.adam = {
            name: self.optimiser([p for m in ms for p in m.parameters()])
            for name, ms in self.networks.items()
        }
        start = math.log(float(sac.temperature))
        self.log_temperature = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        if sac.options.automatic_temperature:
            self.adam["log_temperature"] = self.optimiser([self.log_temperature])

    def optimiser(self, parameters) -> torch.optim.Adam:
        return torch.optim.Adam(parameters, lr=self.options.lr_sac)

    def policy(self, observation, noise):
        """Return action and log pi by torch's own distributions."""
        mean, log_std = self.networks["actor"][0](observation).chunk(2, -1)
        scale = log_std.clamp(-20, 2).exp()
        gaussian = mean + scale * noise
        plain = Independent(Normal(mean, scale), 1)
        squashed = TransformedDistribution(plain, [TanhTransform(cache_size=1)])
        action = squashed.transforms[0](gaussian)
        return action, squashed.log_prob(action)

    def q(self, critics, observation, action) -> list[torch.Tensor]:
        return [critic(torch.cat((observation, action), 1))[:, 0] for critic in critics]

    def learn(self, rows: np.ndarray, noise: np.ndarray) -> dict[str, float]:
        """Update value, critics, actor, temperature, target; return what is measured."""
        batch = named(self.columns, rows)
        observation, following = batch["observation"], batch["next_observation"]
        noise1, noise2 = torch.from_numpy(noise).double()
        temperature, measured = self.log_temperature.exp().detach(), {}
        with torch.no_grad():
            if "value" in self.networks:
                action, log_prob = self.policy(observation, noise1)
                least = torch.minimum(*self.q(self.networks["critic"], observation, action))
                wanted = least - temperature * log_prob
                value = self.target[0](following)[:, 0]
            else:
                action, log_prob = self.policy(following, noise1)
                least = torch.minimum(*self.q(self.target, following, action))
                value = least - temperature * log_prob
            backup = batch["reward"] + self.options.gamma * (1 - batch["terminated"]) * value
        if "value" in self.networks:
            loss = ((self.networks["value"][0](observation)[:, 0] - wanted) ** 2).mean() / 2
            measured["value_loss"] = descend(self.adam["value"], loss)
        losses = [
            ((q - backup) ** 2).mean() / 2
            for q in self.q(self.networks["critic"], observation, batch["action"])
        ]
        measured["critic_loss"] = descend(self.adam["critic"], sum(losses))
        action, log_prob = self.policy(observation, noise2)
        q = torch.minimum(*self.q(self.networks["critic"], observation, action))
        measured |= {
            "mean_q": q.mean().item(),
            "temperature": temperature.item(),
            "entropy": -log_prob.mean().item(),
        }
        measured["actor_loss"] = descend(self.adam["actor"], (temperature * log_prob - q).mean())
        if "log_temperature" in self.adam:
            excess = log_prob.detach() - action.shape[1]
            descend(self.adam["log_temperature"], -(self.log_temperature.exp() * excess).mean())
        followed = self.networks.get("value") or self.networks["critic"]
        follow(self.target, followed, self.options.tau)
        return measured


def saturated(sac: SAC) -> SAC:
    """Move the medians of both log standard deviations to the bounds: about half are outside."""
    observations = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (500, 3)))
    median = modules(sac.actor, sac._activation)[0](observations)[:, -2:].detach().median(0).values
    sac.actor.tensors[-1][0, -2:] += torch.tensor([2.0, -20.0]) - median
    return sac


def assert_updates_are_autograds(sac: SAC, after=lambda: None) -> None:
    """Make five updates beside `Plain`: what is measured, gradients, then all that they moved."""
    plain = Plain(sac)
    for step in range(5):
        measured = learn(sac, step)
        expected = plain.learn(sac.update.rows, sac.update.noise)
        assert measured == pytest.approx(expected, rel=1e-5, abs=1e-6)
        for name, members in plain.networks.items():
            assert distance(getattr(sac, name).gradient, flat(members, "grad")) < 1e-5, (name, step)
        after()
    for name, members in {**plain.networks, "target": plain.target}.items():
        values = getattr(sac, name).values.double()
        assert torch.allclose(values, flat(members), rtol=1e-4, atol=1e-6), name
    assert sac.temperature.item() == pytest.approx(plain.log_temperature.exp().item(), rel=1e-6)
