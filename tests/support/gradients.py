"""A line to learn, plain modules to compare with, a phase among other things."""

import numpy as np
import torch
from torch import nn

from esac_mpi.envs import UnstablePhysics
from esac_mpi.learners.network import Network
from esac_mpi.play.learner_phases import Phase

FORMS = [  # hidden layers, policy.layer_norm, critic_layer_norm, policy.linear
    ((8, 8), False, False, False),
    ((16,), False, True, False),
    ((8, 12, 6), False, False, False),
    ((8, 12, 6), True, False, False),
    ((8, 12, 6), True, True, False),
    ((8,), False, False, True),
    ((8, 12, 6), True, False, True),
    ((), False, False, False),
]


class Line:
    """Observe x in [-1, 1], drawn at each step; pay -(a - x/2)^2 for the action before scaling."""

    id, observation_size, action_size, horizon = "Line", 1, 1, 20
    low, high = np.array([-3.0], np.float32), np.array([1.0], np.float32)
    unstable = False

    def __init__(self, terminate: bool = False):
        self.terminate = terminate
        self.seeds, self.actions = [], []

    def reset(self, seed):
        self.seeds.append(seed)
        self.random, self.length = np.random.default_rng(seed), 0
        return self.observe()

    def observe(self):
        self.x = self.random.uniform(-1, 1, 1).astype(np.float32)
        return self.x

    def step(self, action):
        assert action.dtype == np.float32
        assert action.shape == (1,)
        self.length += 1
        self.actions.append(float(action[0] + 1) / 2)
        reward = -float((self.actions[-1] - self.x[0] / 2) ** 2)
        end = self.length == self.horizon
        return self.observe(), reward, end and self.terminate, end and not self.terminate


class Breaking(Line):
    """In an episode's fourth step: raise, or answer with what must not be learned from."""

    def __init__(self, how: str):
        super().__init__()
        self.how = how

    def step(self, action):
        observation, reward, terminated, truncated = super().step(action)
        fourth = self.length == 4
        if fourth and self.how == "raise":
            raise UnstablePhysics
        self.unstable = fourth and self.how == "warn"
        observation = observation * np.nan if fourth and self.how == "observation" else observation
        # the second is finite in float64, not in a replay
        bad = {"reward": np.inf, "huge": -3.5e38}
        return observation, bad.get(self.how, reward) if fourth else reward, terminated, truncated


class Joined(nn.Sequential):
    """A perceptron whose last layer sees the inputs too, times `linear`."""

    linear = 0.0

    def forward(self, x):
        if not self.linear:
            return super().forward(x)
        return self[-1](torch.cat((self[:-1](x) / self.linear, self.linear * x), -1))


def modules(network: Network, activation: str = "relu") -> list[nn.Sequential]:
    """Return the members of a network as plain modules of the same weights, in double precision."""
    members = []
    for member in range(network.members):
        tensors = [t if network.members == 1 else t[member] for t in network.tensors]
        layers: list[nn.Module] = []
        for weight, bias, gain, shift in network.layout.grouped(tensors):
            layers.append(nn.Linear(*weight.shape))
            layers[-1].weight.data, layers[-1].bias.data = weight.T.clone(), bias[0].clone()
            if gain is not None:
                layers.append(nn.LayerNorm(gain.shape[1]))
                layers[-1].weight.data, layers[-1].bias.data = gain[0].clone(), shift[0].clone()
            layers.append({"relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU}[activation]())
        members.append(Joined(*layers[:-1]).double())
        members[-1].linear = network.layout.linear
    return members


def flat(members: list[nn.Sequential], what: str = "data") -> torch.Tensor:
    """Return parameters, or their gradients, of plain modules in the order of `Network.values`."""
    tensors = zip(*(list(m.parameters()) for m in members), strict=True)
    return torch.cat([getattr(p, what).flatten() for each in tensors for p in each])


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other).norm() / other.norm())


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    alike = one.keys() == other.keys()
    return alike and all(np.array_equal(one[name], other[name]) for name in one)


def through(work) -> tuple[int, Phase]:
    """Run a phase to its end, other things in between; return how often it yielded, and it."""
    other, pauses = Line(), 0
    while True:
        other.reset(pauses)
        other.step(np.zeros(1, np.float32))
        torch.rand(pauses % 7)
        np.random.rand(pauses % 5)  # noqa: NPY002
        try:
            next(work)
        except StopIteration as end:
            return pauses, end.value
        pauses += 1
