"""What a learner remembers beside its replay: networks, Adam and a count, as arrays and back; and the device they live on."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from esac_mpi.config import Learner
from esac_mpi.learners import LearnerNotFinite, NoDevice
from esac_mpi.learners.network import Adam, Network, assign


def device(options: Learner) -> torch.device:
    """Return the device that the options name, and give torch its threads. Raises NoDevice."""
    torch.set_num_threads(options.threads)
    auto = "cuda" if torch.cuda.is_available() else "cpu"
    found = torch.device(auto if options.device == "auto" else options.device)
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise NoDevice(f"learner.device = {options.device}: torch sees {torch.cuda.device_count()} GPUs here")
    return found


def arrays(adam: Mapping[str, Adam], targets: Mapping[str, Network], env_steps: int) -> dict[str, np.ndarray]:
    """Return copies of all of it, by name."""
    saved = {f"{name}_{part}": array for name, each in adam.items() for part, array in each.arrays().items()}
    followers = {name: network.values.cpu().numpy().copy() for name, network in targets.items()}
    return {**saved, **followers, "env_steps": np.array(env_steps)}


def load(saved: Mapping[str, np.ndarray], adam: Mapping[str, Adam], targets: Mapping[str, Network]) -> int:
    """Take over what `arrays` returned; return env_steps. Raises ValueError for another learner's."""
    expected = arrays(adam, targets, 0).keys()
    if saved.keys() != expected:
        raise ValueError(f"learner arrays must be {sorted(expected)}, got {sorted(saved)}")
    for name, each in adam.items():
        each.load({key.removeprefix(f"{name}_"): array for key, array in saved.items() if key.startswith(f"{name}_")})
    for name, network in targets.items():
        assign(network.values, saved[name])
    return int(saved["env_steps"])


def check_finite(who: str, sums: Tensor, adam: Mapping[str, Adam], targets: Mapping[str, Network], env_steps: int) -> None:
    """Raise LearnerNotFinite unless the parameters and the sums of a phase's losses are finite."""
    followers = {name: network.values for name, network in targets.items()}
    parts = {"losses": sums, **followers, **{name: each.values for name, each in adam.items()}}
    bad = [name for name, tensor in parts.items() if not torch.isfinite(tensor).all()]
    if bad:
        raise LearnerNotFinite(f"the {who} learner's {', '.join(bad)} are no longer finite at training step {env_steps}")
