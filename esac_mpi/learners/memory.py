"""What a learner remembers beside its replay: networks, Adam and a count, as arrays and back; and the device they live on."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from esac_mpi.config import Learner
from esac_mpi.learners import LearnerNotFinite, NoDevice
from esac_mpi.learners.network import Adam, Network, assign
from esac_mpi.learners.replay import Held, Replay


def device(options: Learner) -> torch.device:
    """Return the device that the options name, and give torch its threads. Raises NoDevice."""
    torch.set_num_threads(options.threads)
    auto = "cuda" if torch.cuda.is_available() else "cpu"
    found = torch.device(auto if options.device == "auto" else options.device)
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise NoDevice(f"learner.device = {options.device}: torch sees {torch.cuda.device_count()} GPUs here")
    return found


class Memory:
    """What every learner remembers, and how it is held while a phase goes on; SAC, TD3 and DDPG are each one.

    A learner sets `adam` and `targets` by name, `replay`, `update` and `env_steps`.
    """

    NAME: str  # in messages
    adam: dict[str, Adam]
    targets: dict[str, Network]
    replay: Replay
    update: Any
    env_steps: int  # training steps ever
    _held: tuple[dict[str, np.ndarray], Held] | None = None

    @property
    def stored_replay(self) -> Replay | Held:
        """The replay that belongs to `arrays`: as it is, or as it was at `hold`."""
        return self._held[1] if self._held else self.replay

    def hold(self) -> None:
        """Remember the learner and its replay as they are: `arrays` and `stored_replay` stay with them until `release`."""
        self.release()
        self._held = self.arrays(), self.replay.hold()

    def release(self) -> None:
        """Let `arrays` and `stored_replay` be current again."""
        self._held = None
        self.replay.release()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return copies of all that the learner remembers but its replay, as it is or as it was at `hold`."""
        if self._held:
            return {name: array.copy() for name, array in self._held[0].items()}
        saved = {f"{name}_{part}": array for name, each in self.adam.items() for part, array in each.arrays().items()}
        followers = {name: network.values.cpu().numpy().copy() for name, network in self.targets.items()}
        return {**saved, **followers, "env_steps": np.array(self.env_steps)}

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        """Take over what `arrays` returned. Raises ValueError for another learner's."""
        self.release()
        expected = self.arrays().keys()
        if saved.keys() != expected:
            raise ValueError(f"learner arrays must be {sorted(expected)}, got {sorted(saved)}")
        for name, each in self.adam.items():
            each.load({key.removeprefix(f"{name}_"): array for key, array in saved.items() if key.startswith(f"{name}_")})
        for name, network in self.targets.items():
            assign(network.values, saved[name])
        self.env_steps = int(saved["env_steps"])

    def check_finite(self) -> None:
        """Raise LearnerNotFinite unless the parameters and the sums of a phase's losses are finite."""
        followers = {name: network.values for name, network in self.targets.items()}
        parts = {"losses": self.update.sums, **followers, **{name: each.values for name, each in self.adam.items()}}
        bad = [name for name, tensor in parts.items() if not torch.isfinite(tensor).all()]
        if bad:
            told = f"the {self.NAME} learner's {', '.join(bad)} are no longer finite"
            raise LearnerNotFinite(f"{told} at training step {self.env_steps}")
