"""A policy as a torch module."""

from typing import Any

from esac_mpi.operators.kernels import LAYER_NORM_EPSILON


def module(policy: Any) -> Any:
    """Return the policy as a torch module, all of its constants inside."""
    import torch
    from torch import nn

    views, normaliser = policy.layout.views(policy.theta), policy.normaliser
    views[-2] = policy.layout.unscaled(views[-2])
    parts: list[Any] = []
    for layer in policy.layout.grouped(views):
        parts.append(nn.Linear(layer.weight.shape[1], layer.weight.shape[0]))
        parts += (
            [] if layer.gain is None else [nn.LayerNorm(len(layer.gain), eps=LAYER_NORM_EPSILON)]
        )
        parts.append(nn.ReLU() if policy.activation == "relu" else nn.Tanh())
    parts[-1] = nn.Tanh() if policy.output == "tanh" else nn.Hardtanh()  # which clips to [-1, 1]
    low, high = policy.low, policy.high
    constants = {"low": low, "high": high, "centre": (high + low) / 2, "span": (high - low) / 2}
    if normaliser is not None:
        constants |= {"mean": normaliser.mean, "std": normaliser.std}

    class Actor(nn.Module):
        low: Any
        high: Any

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*parts)
            arrays = zip(self.layers.state_dict(), map(torch.tensor, views), strict=True)
            self.layers.load_state_dict(dict(arrays))
            for name, values in constants.items():
                self.register_buffer(name, torch.tensor(values))

        def forward(self, x: Any) -> Any:
            if normaliser is not None:
                x = torch.clamp((x - self.mean) / self.std, -5.0, 5.0)
            if policy.layout.path:
                x = torch.cat([self.layers[:-2](x), x], -1)
            y = self.layers[-2:](x) if policy.layout.path else self.layers(x)
            return torch.clamp(self.centre + self.span * y, self.low, self.high)

    return Actor().requires_grad_(False).eval()
