"""What gradient learners with a replay share: their start, their phases, what a checkpoint takes of them and how that is held."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from esac_mpi import config as configuration
from esac_mpi.envs import Env
from esac_mpi.host import cooperative
from esac_mpi.learners import LearnerNotFinite, Start, gpu, training
from esac_mpi.learners.chunks import Chunks
from esac_mpi.learners.network import Adam, Network, Operations, assign
from esac_mpi.learners.replay import Held, Replay
from esac_mpi.learners.training import Streams
from esac_mpi.operators.kernels import layer_normalised
from esac_mpi.operators.policy import Layer, Layout, Normaliser
from esac_mpi.play.learner_phases import Phase, Steps


def device(options: configuration.Learner) -> torch.device:
    """Return the device that the options name, and give torch its threads. Raises NoDevice."""
    torch.set_num_threads(options.threads)
    return gpu.choose(options)


def check_names(saved: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError for the arrays of another learner."""
    if saved.keys() != expected.keys():
        raise ValueError(f"learner arrays must be {sorted(expected.keys())}, got {sorted(saved)}")


def fitted(own: Mapping[str, np.ndarray], saved: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return those of a learner's arrays that another one has too. Raises ValueError where they are not of one kind."""
    for name, array in own.items():
        if name not in saved:
            raise ValueError(f"it has no {name}")
        if saved[name].shape != array.shape:
            raise ValueError(f"{name} {list(saved[name].shape)} is {list(array.shape)} here")
    return {name: saved[name] for name in own}


def refuse(name: str, bad: Sequence[str], env_steps: int) -> None:
    """Raise LearnerNotFinite if there are `bad` parts of a learner."""
    if bad:
        raise LearnerNotFinite(
            f"the {name} learner's {', '.join(bad)} are no longer finite at training step {env_steps}"
        )


class Following(Protocol):
    """A network that follows another."""

    values: Tensor


class GradientLearner(ABC):
    """What SAC, TD3, DDPG and ERL's learner are: an actor and what judges it, learning from a replay of episodes.

    Each makes its networks, sets `actor`, `critic`, `adam`, `targets` and `update`, calls `ready`, and says how it makes the
    updates that are due (`_learn`) and, if it plays its own episodes, how it explores (`_explored`).
    """

    NAME: str  # in messages
    actor: Network
    critic: Any  # all of them; `vector` gives one
    adam: dict[str, Adam]  # by name of what it steps
    targets: Mapping[str, Following]  # networks that follow others, by name
    update: Any
    normaliser: Normaliser | None = (
        None  # by which a phase sees observations; its replay has them as they were
    )
    seen: np.ndarray | None = (
        None  # sums over the observations that a phase acted on, float64 [3, o], where they are asked for
    )
    chunks: Chunks | None = None  # how a GPU makes updates; None: one by one, as a CPU does
    _held: tuple[dict[str, np.ndarray], Replay | Held] | None = None

    def __init__(self, start: Start, options: Any) -> None:
        """Take what all have in common; options: the learner's table."""
        config, (o, *_, a) = start.config, start.layout.sizes
        self.device = device(config.learner)
        self.device_name = gpu.named(self.device, config.learner.kernels)
        self.compiled = self.device.type == "cpu" and config.learner.kernels == "compiled"
        self.seed, self.options, self._activation = config.seed, options, config.policy.activation
        self._actions = a
        self._products = torch.bfloat16 if config.learner.precision == "bf16" else torch.float32
        self.replay = Replay(options.replay_capacity, o, a, start.reserve, start.rows)
        self.env_steps = 0  # training steps ever

    def ready(self) -> None:
        """Take up the way in which the device makes updates.

        Raises NoDevice where it has no room for what that takes.
        """
        if self.device.type == "cuda":
            what = f"{self.NAME}'s replay of {len(self.replay.ring):,} transitions and what updates draw"
            # which a capture makes, and lets go of
            copies = sum(tensor.nbytes for tensor in self.kept())
            gpu.refuse_too_large(Chunks.bytes(self) + copies, what)
            self.chunks = Chunks(self, gpu.Cuda())

    def due(self) -> tuple[Operations, ...]:
        """Return what the next update is made of."""
        return self.update.lists

    def kept(self) -> list[Tensor]:
        """Return what an update changes and a later one starts from."""
        adams = [
            tensor
            for each in self.adam.values()
            for tensor in (each.values, each.moment1, each.moment2)
        ]
        return [*adams, *(network.values for network in self.targets.values()), self.update.sums]

    def network(self, sizes: tuple[int, ...], *members: int) -> Network:
        """Return a network that judges: critics or values, each drawn for its number."""
        layout = Layout(sizes, self.options.critic_layer_norm)
        return Network(
            layout,
            [layout.initial(self.seed, member) for member in members],
            "relu",
            self.device,
            self._products,
        )

    def actor_network(self, layout: Layout, theta: np.ndarray) -> Network:
        """Return a network that acts, of these parameters."""
        return Network(layout, [theta], self._activation, self.device, self._products)

    @property
    def theta(self) -> np.ndarray:
        """A copy of the actor, float32 [d], in the order of the policy's layout."""
        return self.actor.values.cpu().numpy().copy()

    def critic_vector(self) -> np.ndarray:
        """Return a copy of the first critic, float32 [d], as judges.py takes it."""
        return self.critic.vector(0)

    def phase(
        self,
        env: Env,
        k: int,
        episodes: int,
        steps: int,
        cut: bool = False,
        sums: np.ndarray | None = None,
    ) -> Phase:
        """Run `begin` to its end. Raises LearnerNotFinite."""
        return cooperative.run(self.begin(env, k, episodes, steps, cut, sums))

    def begin(
        self,
        env: Env,
        k: int,
        episodes: int,
        steps: int,
        cut: bool = False,
        sums: np.ndarray | None = None,
    ) -> Steps:
        """Play at least `episodes` whole episodes and `steps` steps, and learn from them; see `training.begin`.

        sums: over observations seen before, by which those of this phase are standardised; `seen` is then the phase's own.
        None: they are plain. Raises LearnerNotFinite.
        """
        self.normaliser, self.seen = training.sight(sums)
        phase = yield from training.begin(
            self, self._action, self._learn, env, k, episodes, steps, cut
        )
        self.check_finite()
        return phase

    def take(
        self,
        played: Sequence[tuple[np.ndarray, float, int]],
        k: int,
        sums: np.ndarray | None = None,
    ) -> Steps:
        """Take over episodes that others played, and learn from them; see `training.take`. Raises LearnerNotFinite.

        sums: as in `begin`.
        """
        self.normaliser, self.seen = training.sight(sums)
        phase = yield from training.take(self, self._learn, played, k)
        self.check_finite()
        return phase

    def _action(
        self, actor: list[Layer], observation: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        """Draw an action in [-1, 1], float32 [a]: uniform in the first start_steps, then by the actor's `Network.numpy()`."""
        if self.env_steps < self.options.start_steps:
            return random.uniform(-1.0, 1.0, self._actions).astype(np.float32)
        if self.normaliser is not None:
            observation = self.normaliser(observation)
        action = self._explored(
            forward(actor, self._activation, observation, self.actor.layout.linear), random
        )
        if not np.isfinite(action).all():
            raise LearnerNotFinite(
                f"the actor's action is not finite at training step {self.env_steps}"
            )
        return action

    @abstractmethod
    def _explored(self, output: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draw an action in [-1, 1], float32 [a], from the actor's output."""

    @abstractmethod
    def _learn(self, since: int, random: Streams) -> Generator[int, None, int]:
        """Make the updates due for the training steps after `since`, a part at a time; return their number."""

    @property
    def stored_replay(self) -> Replay | Held:
        """The replay that belongs to `arrays`: as it is, or as it was at `hold`."""
        return self._held[1] if self._held else self.replay

    def hold(self) -> None:
        """Keep the learner and its replay as they are: `arrays` and `stored_replay` stay with them until `release`."""
        self.release()
        self._held = self.arrays(), self.replay.hold()

    def release(self) -> None:
        """Let `arrays` and `stored_replay` be current again."""
        self._held = None
        self.replay.release()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return copies of all that makes the learner but its replay, as it is or as it was at `hold`."""
        if self._held:
            return {name: array.copy() for name, array in self._held[0].items()}
        saved = {
            f"{name}_{part}": array
            for name, each in self.adam.items()
            for part, array in each.arrays().items()
        }
        followers = {
            name: network.values.cpu().numpy().copy() for name, network in self.targets.items()
        }
        return {**saved, **followers, "env_steps": np.array(self.env_steps)}

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        """Take over what `arrays` returned. Raises ValueError for another learner's."""
        self.release()
        check_names(saved, self.arrays())
        for name, each in self.adam.items():
            each.load(
                {
                    key.removeprefix(f"{name}_"): array
                    for key, array in saved.items()
                    if key.startswith(f"{name}_")
                }
            )
        for name, network in self.targets.items():
            assign(network.values, saved[name])
        self.env_steps = int(saved["env_steps"])

    def fitting(
        self, saved: Mapping[str, np.ndarray], before: configuration.Config
    ) -> dict[str, np.ndarray]:
        """Return what `load` takes of another run's learner of this kind. Raises ValueError, saying what does not fit."""
        return fitted(self.arrays(), saved)

    def check_finite(self) -> None:
        """Raise LearnerNotFinite unless the parameters and the sums of a phase's losses are finite."""
        followers = {name: network.values for name, network in self.targets.items()}
        parts = {
            "losses": self.update.sums,
            **followers,
            **{name: each.values for name, each in self.adam.items()},
        }
        refuse(
            self.NAME,
            [name for name, tensor in parts.items() if not torch.isfinite(tensor).all()],
            self.env_steps,
        )


def forward(
    layers: Sequence[Layer], activation: str, x: np.ndarray, linear: float = 0.0
) -> np.ndarray:
    """Return the output [out] for one input x [in] by `Network.numpy()`, without torch's overhead at every step.

    linear: of the network's layout.
    """
    seen = x
    for weight, bias, gain, shift in layers[:-1]:
        x = x @ weight + bias[0]
        if gain is not None:
            x = layer_normalised(x, gain[0], shift[0])
        x = np.maximum(x, 0.0) if activation == "relu" else np.tanh(x)
    if len(x) < len(layers[-1].weight):
        x = np.concatenate([np.float32(1 / linear) * x, np.float32(linear) * seen])
    return x @ layers[-1].weight + layers[-1].bias[0]
