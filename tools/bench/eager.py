"""SAC in the manner of CleanRL's sac_continuous_action.py: modules, Normal, two optim.Adam, an update of eager calls.

And in the manner of LeanRL's, which compiles that update by torch.compile and captures it as a CUDA graph.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from tools.bench.competitors import ACTION, OBSERVATION, STORED, chunks, transitions
from tools.bench.measurement import Timed


def network(sizes: tuple[int, ...], device: str) -> Any:
    """Return layers with ReLU between them."""
    from torch import nn

    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).to(device)


class Eager:
    """Actor, two critics and their targets, and the transitions to sample from."""

    def __init__(self, hidden: tuple[int, ...], batch: int, device: str, **adam: Any) -> None:
        """adam: more options of torch's Adam."""
        from torch import optim

        self.batch, self.device = batch, device
        self.actor = network((OBSERVATION, *hidden, 2 * ACTION), device)
        critics = [network((OBSERVATION + ACTION, *hidden, 1), device) for _ in range(4)]
        self.qf1, self.qf2, self.target1, self.target2 = critics
        self.q_optimizer = optim.Adam(
            [*self.qf1.parameters(), *self.qf2.parameters()], lr=3e-4, **adam
        )
        self.actor_optimizer = optim.Adam(self.actor.parameters(), lr=3e-4, **adam)
        self.columns = [np.array(c, np.float32) for c in zip(*transitions(), strict=True)]
        self.random = np.random.default_rng(0)

    def get_action(self, observation: Any) -> tuple[Any, Any]:
        """Return sampled actions and their log-probabilities."""
        import torch
        from torch.distributions import Normal

        mean, log_std = self.actor(observation).chunk(2, -1)
        normal = Normal(mean, (-5 + 3.5 * (torch.tanh(log_std) + 1)).exp())
        x = normal.rsample()
        action = torch.tanh(x)
        return action, (normal.log_prob(x) - torch.log(1 - action.pow(2) + 1e-6)).sum(
            1, keepdim=True
        )

    def update(self) -> None:
        """Update critics, actor and targets from one batch."""
        import torch

        rows = self.random.integers(STORED, size=self.batch)
        self.learn(*(torch.as_tensor(c[rows], device=self.device) for c in self.columns))

    def learn(self, observation: Any, action: Any, reward: Any, following: Any) -> None:
        """Update critics, actor and targets from these transitions."""
        import torch

        with torch.no_grad():
            next_action, next_log_prob = self.get_action(following)
            joined = torch.cat([following, next_action], 1)
            least = torch.min(self.target1(joined), self.target2(joined)) - 0.2 * next_log_prob
            target = reward + 0.99 * least.view(-1)
        self._update_critics(torch.cat([observation, action], 1), target)
        made, log_prob = self.get_action(observation)
        joined = torch.cat([observation, made], 1)
        actor_loss = (0.2 * log_prob - torch.min(self.qf1(joined), self.qf2(joined))).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        for follower, leader in ((self.target1, self.qf1), (self.target2, self.qf2)):
            for slow, fast in zip(follower.parameters(), leader.parameters(), strict=True):
                slow.data.copy_(0.005 * fast.data + 0.995 * slow.data)

    def _update_critics(self, joined: Any, target: Any) -> None:
        from torch.nn import functional

        q_loss = functional.mse_loss(self.qf1(joined).view(-1), target) + functional.mse_loss(
            self.qf2(joined).view(-1), target
        )
        self.q_optimizer.zero_grad()
        q_loss.backward()
        self.q_optimizer.step()


class Captured(Eager):
    """The same update, compiled and captured on the current CUDA device, with its transitions there. Never run on one so far."""

    def __init__(self, hidden: tuple[int, ...], batch: int, device: str) -> None:
        import torch
        from torch.distributions import Distribution

        Distribution.set_default_validate_args(False)  # it waits for the device
        super().__init__(hidden, batch, device, capturable=True)
        self._stored = [torch.as_tensor(column, device=device) for column in self.columns]
        self._batch = [column[:batch].clone() for column in self._stored]
        learn, side = torch.compile(self.learn), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                learn(*self._batch)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            learn(*self._batch)

    def update(self) -> None:
        """Draw a batch on the device, and launch the graph."""
        import torch

        rows = torch.randint(STORED, (self.batch,), device=self.device)
        for into, column in zip(self._batch, self._stored, strict=True):
            torch.index_select(column, 0, rows, out=into)
        self._graph.replay()


def eager_sac(
    hidden: tuple[int, ...],
    batch: int,
    device: str,
    threads: int,
    seconds: float,
    kind: type[Eager] = Eager,
) -> Callable[[], Timed]:
    """Return a turn of its updates; the learner is made in the first one."""
    import torch

    made: list[Eager] = []

    def update(count: int) -> int:
        if not made:
            made.append(kind(hidden, batch, device))
        for _ in range(count):
            made[0].update()
        if device == "cuda":
            torch.cuda.synchronize()
        return count

    return chunks(update, threads, seconds, device)
