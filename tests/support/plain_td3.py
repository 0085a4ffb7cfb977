"""Updates of TD3's critic, TD3, DDPG and ERL by modules, autograd and torch's Adam."""

import numpy as np
import pytest
import torch
from gradients import distance, flat, modules
from small_learners import learn


def named(columns, rows: np.ndarray) -> dict[str, torch.Tensor]:
    """Return a batch by the names of its columns, in double precision."""
    parts = columns._asdict().items()
    return {name: torch.from_numpy(rows[:, column]).double() for name, column in parts}


def descend(adam: torch.optim.Adam, loss: torch.Tensor, cut=lambda adam: None) -> float:
    """Step down a loss that also depends on others' parameters; return it."""
    parameters = adam.param_groups[0]["params"]
    for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        p.grad = gradient
    cut(adam)
    adam.step()
    return float(loss.detach())


def follow(targets, networks, tau: float) -> None:
    with torch.no_grad():
        for target, network in zip(targets, networks, strict=True):
            for p, new in zip(target.parameters(), network.parameters(), strict=True):
                p += tau * (new - p)


class PlainCritic:
    """A critic, one or twins, and its target."""

    def __init__(self, made, rate: float, decay: float = 0.0, form=modules):
        """form: a critic's modules, each of which sees observation and action side by side."""
        self.options, self.columns = made.options, made.replay.columns
        self.critic, self.target = form(made.critic), form(made.targets["target_critic"])
        self.norms: list[float] = []  # of the gradients before they are cut, where they are
        parameters = [p for critic in self.critic for p in critic.parameters()]
        self.adam = torch.optim.Adam(parameters, lr=rate, weight_decay=decay)

    def learn(self, actor, rows: np.ndarray, noise: np.ndarray | None) -> float:
        """Make an update by an actor's actions, smoothed by noise; return the loss before it."""
        batch, o = named(self.columns, rows), self.options
        with torch.no_grad():
            action = actor(batch["next_observation"]).tanh()
            if noise is not None:
                smoothing = o.policy_noise * torch.from_numpy(noise).double()
                action += smoothing.clamp(-o.noise_clip, o.noise_clip)
                action = action.clamp(-1, 1)
            following = torch.cat((batch["next_observation"], action), 1)
            least = torch.stack([q(following)[:, 0] for q in self.target]).amin(0)
            y = batch["reward"] + o.gamma * (1 - batch["terminated"]) * least
        taken = torch.cat((batch["observation"], batch["action"]), 1)
        loss = sum(torch.nn.functional.mse_loss(q(taken)[:, 0], y) for q in self.critic)
        return descend(self.adam, loss, self.cut)

    def cut(self, adam: torch.optim.Adam) -> None:
        """Cut the gradient that Adam takes to ERL's largest norm."""
        if limit := getattr(self.options, "gradient_clip", None):
            parameters = adam.param_groups[0]["params"]
            self.norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, limit)))

    def follow(self) -> None:
        follow(self.target, self.critic, self.options.tau)


class Plain:
    """TD3, DDPG or ERL: a critic, an actor and its target."""

    def __init__(self, made, name: str, activation: str, form=modules):
        o = self.options = made.options
        twins = name == "td3"
        decay = o.critic_weight_decay if name == "ddpg" else 0.0
        self.critic = PlainCritic(made, o.lr_td3 if twins else o.lr_critic, decay, form)
        self.actor, self.target_actor = (
            modules(n, activation)[0] for n in (made.actor, made.targets["target_actor"])
        )
        self.adam = torch.optim.Adam(self.actor.parameters(), o.lr_td3 if twins else o.lr_actor)

    def learn(self, rows: np.ndarray, noise: np.ndarray | None, actor: bool) -> tuple[float, float]:
        """Make an update; return the critic's loss, and the actor's before its step."""
        critic_loss = self.critic.learn(self.target_actor, rows, noise)
        observation = named(self.critic.columns, rows)["observation"]
        seen = torch.cat((observation, self.actor(observation).tanh()), 1)
        actor_loss = -self.critic.critic[0](seen).mean()
        if actor:
            descend(self.adam, actor_loss, self.critic.cut)
            self.critic.follow()
            follow([self.target_actor], [self.actor], self.options.tau)
        return critic_loss, float(actor_loss.detach())

    @property
    def networks(self) -> dict:
        actors = {"actor": [self.actor], "target_actor": [self.target_actor]}
        return {**actors, "critic": self.critic.critic, "target_critic": self.critic.target}


def assert_updates_are_autograds(made, plain, every=1, decay=0.0, after=lambda: None) -> None:
    """Make six updates, the actor's in every `every`th, beside `plain`: losses, gradients, results.

    decay: of the critic's weights, which torch adds to a copy of the gradient.
    """
    for step in range(6):
        actor = step % every == every - 1
        critic = made.critic.values.clone()
        means = learn(made, step, actor)
        noise = getattr(made.update, "noise", None)
        critic_loss, actor_loss = plain.learn(made.update.rows, noise, actor)
        assert means["critic_loss"] == pytest.approx(critic_loss, rel=1e-5)
        assert ("actor_loss" in means) == actor
        if actor:
            assert means["actor_loss"] == pytest.approx(actor_loss, rel=1e-5, abs=1e-6)
            assert means["actor_loss"] == -means["mean_q"]
            assert distance(made.actor.gradient, flat([plain.actor], "grad")) < 1e-5
        gradient = made.critic.gradient - decay * critic
        assert distance(gradient, flat(plain.critic.critic, "grad")) < 1e-5
        after()
    for part, members in plain.networks.items():
        values = getattr(made.update.parts, part).values.double()
        assert torch.allclose(values, flat(members), rtol=1e-4, atol=1e-6), part
