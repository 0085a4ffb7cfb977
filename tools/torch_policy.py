"""A policy as a torch module. Part of tools/export.py."""

from typing import Any

import numpy as np


def fill(network: Any, arrays: list[np.ndarray]) -> None:
    """Put weight and bias of each layer in turn into a torch module."""
    import torch

    network.load_state_dict(dict(zip(network.state_dict(), map(torch.tensor, arrays), strict=True)))


def module(policy: Any) -> Any:
    """Return the policy as a torch module, all of its constants inside."""
    import torch
    from torch import nn

    views, normaliser = policy.layout.views(policy.theta), policy.normaliser
    parts: list[Any] = []
    for weight in views[::2]:
        parts += [nn.Linear(weight.shape[1], weight.shape[0]), nn.ReLU() if policy.activation == "relu" else nn.Tanh()]
    parts[-1] = nn.Tanh() if policy.output == "tanh" else nn.Hardtanh()  # which clips to [-1, 1]
    constants = {"centre": (policy.high + policy.low) / 2, "span": (policy.high - policy.low) / 2}
    if normaliser is not None:
        constants |= {"mean": normaliser.mean, "std": normaliser.std}

    class Actor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*parts)
            fill(self.layers, views)
            for name, values in constants.items():
                self.register_buffer(name, torch.tensor(values))

        def forward(self, x: Any) -> Any:
            if normaliser is not None:
                x = torch.clamp((x - self.mean) / self.std, -5.0, 5.0)
            return self.centre + self.span * self.layers(x)

    return Actor().requires_grad_(False).eval()
