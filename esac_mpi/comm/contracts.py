"""What algorithms may use of the ranks and of a learner: types only, for who must not load MPI."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from esac_mpi.config import Config

if TYPE_CHECKING:
    from esac_mpi.comm.world import World as World
else:
    World = Any


class Memory(Protocol):
    """What the ranks of a node share: all that the start of a run needs."""

    def shared(self, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        """Return a zeroed array that lives once per node and that all its ranks see. Raises MemoryError."""

    def share(self, values: np.ndarray) -> np.ndarray:
        """Return a shared array that holds `values`, which are equal on all ranks. Raises MemoryError."""

    def reserve(self, count: int, columns: int) -> None:
        """Make the boards of a `map` of this count and columns now. Raises MemoryError."""

    def over_blocks(
        self, work: Callable[[int], np.ndarray], count: int, columns: int, checksum: bool = False
    ) -> np.ndarray:
        """Run work(block) -> [columns] for all blocks on each node; return the sums, float64 [columns], in block order.

        checksum: the first column says what the blocks of the parameters have become; nodes compare its sum at the next exchange,
        and it is not among the sums returned.
        """


class Learner(Protocol):
    """A gradient learner, on a rank that learns."""

    NAME: str  # in messages

    @property
    def theta(self) -> np.ndarray:
        """The actor, float32 [d]."""

    @property
    def replay(self) -> Any:
        """What it learns from; None where that is its last rollout alone."""

    @property
    def seen(self) -> np.ndarray | None:
        """Sums over the observations that a phase acted on, float64 [3, o], where it was given sums."""

    def begin(
        self,
        env: Any,
        k: int,
        episodes: int,
        steps: int,
        cut: bool = False,
        sums: np.ndarray | None = None,
    ) -> Generator[int, None, Any]:
        """Return the phase of generation k: at least `episodes` whole episodes and `steps` steps; see learning.Steps.

        sums: over observations seen before it, [3, o], by which it standardises its own; None: it takes them as they are.
        """

    def hold(self) -> None:
        """Keep what `arrays` gives as it is now, until `release`."""

    def release(self) -> None:
        """Let `arrays` be current again."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return copies of all that makes it but its replay, as it is or as it was at `hold`."""

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        """Take over what `arrays` returned."""

    def fitting(self, saved: Mapping[str, np.ndarray], before: Config) -> dict[str, np.ndarray]:
        """Return what `load` takes of `arrays` of another run of the configuration `before`. Raises ValueError: nothing fits."""


class EpisodeLearner(Learner, Protocol):
    """A learner that takes over episodes that others played."""

    env_steps: int  # training steps ever

    def take(
        self,
        played: Sequence[tuple[np.ndarray, float, int]],
        k: int,
        sums: np.ndarray | None = None,
    ) -> Generator[int, None, Any]:
        """Return the phase of generation k, of episodes: transitions [n, width], return and steps of each; sums: as in `begin`."""

    def critic_vector(self) -> np.ndarray:
        """Return a copy of the critic, float32 [critic_size]."""


class CriticLearner(Learner, Protocol):
    """A learner of a critic that individuals of a distribution climb."""

    taught: list[np.ndarray]  # the critic, float32 [d], after each actor of the last phase

    def teach(
        self, actors: Sequence[np.ndarray], updates: int, k: int, added: int | None = None
    ) -> Generator[int, None, Any]:
        """Return the phase of generation k: updates for each actor [d] in turn, with the replay as it was at `added`."""

    def critic_vector(self) -> np.ndarray:
        """Return a copy of the critic, float32 [critic_size]."""

    def advance(self, transitions: int, steps: int) -> None:
        """Take in transitions that ranks have put into the replay, and count their steps."""

    def hold_critic(self) -> None:
        """Keep the critic as it is, as `hold` does; the replay goes on."""
