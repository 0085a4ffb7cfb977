"""A policy as a torch module, and as the actor of stable-baselines3's SAC."""

from typing import Any, cast

import numpy as np

from esac_mpi.operators.kernels import LAYER_NORM_EPSILON


def fill(network: Any, arrays: list[np.ndarray]) -> None:
    """Put the tensors of each layer in turn into a torch module."""
    import torch

    network.load_state_dict(dict(zip(network.state_dict(), map(torch.tensor, arrays), strict=True)))


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
            fill(self.layers, views)
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


def sac(policy: Any) -> Any:
    """Make a stable-baselines3 SAC of the policy, with least deviation and untrained critics."""
    from gymnasium.spaces import Box
    from stable_baselines3 import SAC
    from torch import nn

    activation = nn.ReLU if policy.activation == "relu" else nn.Tanh
    shape = {"net_arch": list(policy.layout.sizes[1:-1]), "activation_fn": activation}
    entropy, nothing = -float(len(policy.low)), cast(Any, None)  # no environment
    options = {
        "buffer_size": 1,
        "target_entropy": entropy,
        "policy_kwargs": shape,
        "device": "cpu",
        "_init_setup_model": False,
    }
    model: Any = SAC("MlpPolicy", nothing, **cast(Any, options))
    model.observation_space = Box(-np.inf, np.inf, policy.layout.sizes[:1], np.float32)
    model.action_space, model.n_envs = Box(policy.low, policy.high), 1
    model._setup_model()
    views = policy.layout.views(policy.theta)
    fill(
        model.actor, [*views, 0 * views[-2], 0 * views[-1] - 20]
    )  # the head of the standard deviation, at SB3's LOG_STD_MIN
    return model
