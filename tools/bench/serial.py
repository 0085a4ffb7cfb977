"""PDERL in the manner of its public code: one process, autograd, children one after the other.

Of the paper's sizes. Layers are normalised by torch's own module, where the public code has one in
Python, and batches are rows of arrays, where it puts tuples together: both to its advantage.
"""

import copy
from itertools import pairwise
from typing import Any

import numpy as np

from tools.bench.learner import ACTION, OBSERVATION, STORED, transitions
from tools.bench.plain import Plain

HIDDEN, SIDE, JOINT = (128, 128), 200, 300  # units of an actor; of the critic
BATCH, MUTATION_BATCH, MAGNITUDE = 128, 256, 0.1


def actor() -> Any:
    """Return an actor."""
    from torch import nn

    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise((OBSERVATION, *HIDDEN)):
        layers += [nn.Linear(fan_in, fan_out), nn.LayerNorm(fan_out), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(HIDDEN[-1], ACTION), nn.Tanh())


def critic() -> Any:
    """Return a critic, of (observations, actions)."""
    import torch
    from torch import nn

    class Critic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sides = nn.ModuleList([nn.Linear(OBSERVATION, SIDE), nn.Linear(ACTION, SIDE)])
            self.joint = nn.Sequential(
                nn.Linear(2 * SIDE, JOINT), nn.LayerNorm(JOINT), nn.ELU(), nn.Linear(JOINT, 1)
            )

        def forward(self, observation: Any, action: Any) -> Any:
            first = [
                nn.functional.elu(side(x))
                for side, x in zip(self.sides, (observation, action), strict=True)
            ]
            return self.joint(torch.cat(first, 1))

    return Critic()


class Serial:
    """Networks, optimisers and transitions; each method is a piece of a generation."""

    def __init__(self, task: str) -> None:
        from torch import optim

        self.env, self.actor, self.critic, self.parents = (
            Plain(task),
            actor(),
            critic(),
            (actor(), actor()),
        )
        self.targets = copy.deepcopy((self.actor, self.critic))
        self.optimisers = (
            optim.Adam(self.actor.parameters(), lr=5e-5),
            optim.Adam(self.critic.parameters(), lr=5e-4),
        )
        self.columns = [np.array(column, np.float32) for column in zip(*transitions(), strict=True)]
        self.random = np.random.default_rng(0)

    def batch(self, size: int) -> list[Any]:
        """Return so many transitions: observations, actions, rewards, next observations."""
        import torch

        rows = self.random.integers(STORED, size=size)
        return [torch.from_numpy(column[rows]) for column in self.columns]

    def episode(self, steps: int) -> None:
        """Play so many steps, each transition kept."""
        import torch

        observation, kept = self.env.reset(0), []
        for _ in range(steps):
            with torch.no_grad():
                action = (
                    self.actor(torch.from_numpy(observation).float().unsqueeze(0)).numpy().ravel()
                )
            following, ended = self.env.step(action)
            kept.append((observation, action, following))
            observation = self.env.reset(0) if ended else following

    def child(self, steps: int) -> None:
        """Let a child imitate its parents; each step asks both and the critic in its batch."""
        import torch
        from torch import optim

        child = copy.deepcopy(self.parents[0])
        optimiser = optim.Adam(child.parameters(), lr=1e-3)
        for _ in range(steps):
            states = self.batch(BATCH)[0]
            with torch.no_grad():
                first, second = (parent(states) for parent in self.parents)
                better = self.critic(states, first) > self.critic(states, second)
                wanted = torch.where(better, first, second)
            acted = child(states)
            loss = (acted - wanted).pow(2).sum() + acted.pow(2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    def mutation(self) -> None:
        """Mutate an actor by the sensitivity of each of its outputs."""
        import torch

        mutated = copy.deepcopy(self.actor)
        acted = mutated(self.batch(MUTATION_BATCH)[0])
        squares = [torch.zeros_like(each) for each in mutated.parameters()]
        for output in acted.sum(0):
            mutated.zero_grad()
            output.backward(retain_graph=True)
            for square, each in zip(squares, mutated.parameters(), strict=True):
                square += each.grad.pow(2)
        with torch.no_grad():
            for square, each in zip(squares, mutated.parameters(), strict=True):
                if each.dim() == 2:
                    scale = square.sqrt()
                    each += (
                        MAGNITUDE
                        * torch.randn_like(each)
                        / torch.where(scale == 0, 1.0, scale.clamp(min=0.01))
                    )

    def update(self) -> None:
        """Update critic, actor and targets from one batch."""
        import torch
        from torch import nn

        observation, action, reward, following = self.batch(BATCH)
        with torch.no_grad():
            backup = reward[:, None] + 0.99 * self.targets[1](following, self.targets[0](following))
        losses = (
            lambda: -self.critic(observation, self.actor(observation)).mean(),
            lambda: nn.functional.mse_loss(self.critic(observation, action), backup),
        )
        for network, optimiser, loss in reversed(
            list(zip((self.actor, self.critic), self.optimisers, losses, strict=True))
        ):
            optimiser.zero_grad()
            loss().backward()
            nn.utils.clip_grad_norm_(network.parameters(), 10)
            optimiser.step()
        for follower, leader in zip(self.targets, (self.actor, self.critic), strict=True):
            for slow, fast in zip(follower.parameters(), leader.parameters(), strict=True):
                slow.data.copy_(0.001 * fast.data + 0.999 * slow.data)
