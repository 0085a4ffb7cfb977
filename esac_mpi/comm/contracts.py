"""What algorithms may use of the ranks and of a learner: types only, for who must not load MPI."""

from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from esac_mpi.comm.world import World as World
else:
    World = Any


class Memory(Protocol):
    """What the ranks of a node share: all that the start of a run needs."""

    def shared(self, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        """Return a zeroed array, one per node, shared by all its ranks. Raises MemoryError."""

    def share(self, values: np.ndarray) -> np.ndarray:
        """Return a shared array of `values`, equal on all ranks. Raises MemoryError."""

    def reserve(self, count: int, columns: int) -> None:
        """Make the boards of a `map` of this count and columns now. Raises MemoryError."""

    def over_blocks(
        self, work: Callable[[int], np.ndarray], count: int, columns: int, checksum: bool = False
    ) -> np.ndarray:
        """Sum work(block) over all blocks on each node, in block order, float64 [columns].

        checksum: the first column is a checksum of the parameters' blocks; nodes compare its sum at
        the next exchange, and it is not among the sums returned.
        """


class Learner(Protocol):
    """A gradient learner, on a rank that learns."""

    NAME: str  # in messages
    replay: Any  # what it learns from; None where that is its last rollout alone
    # sums over the observations that a phase acted on, float64 [3, o], if given sums
    seen: np.ndarray | None

    @property
    @abstractmethod
    def theta(self) -> np.ndarray:
        """A copy of the actor, float32 [d], in the order of the policy's layout."""

    @abstractmethod
    def begin(
        self,
        env: Any,
        k: int,
        episodes: int,
        steps: int,
        cut: bool = False,
        sums: np.ndarray | None = None,
        every: int = 0,
    ) -> Generator[int, None, Any]:
        """Play at least `episodes` whole episodes and `steps` steps in phase k, and learn.

        With `cut`, play exactly `steps` steps; the episode in progress at their end does not count
        as complete. Yields after each step and each part of an update, whether it was one of an
        update. The phase is a function of the learner at its start and of the address (seed, k),
        whatever is done between its parts. sums: over earlier observations, by which this phase's
        are standardised; `seen` is then the phase's own. None: they are not. every: steps between
        updates; 0: all are made after the last step. Raises LearnerNotFinite.
        """

    def hold(self) -> None:
        """Keep what checkpoints have of it as it is now, until `release`."""

    def release(self) -> None:
        """Let checkpoints have it as it is."""


class EpisodeLearner(Learner, Protocol):
    """A learner that takes over episodes that others played."""

    env_steps: int  # training steps ever

    def take(
        self,
        played: Sequence[tuple[np.ndarray, float, int]],
        k: int,
        sums: np.ndarray | None = None,
    ) -> Generator[int, None, Any]:
        """Return the phase of generation k, of episodes played by others; sums: as in `begin`.

        played: of each episode its transitions [n, width], return and steps.
        """

    def critic_vector(self) -> np.ndarray:
        """Return a copy of the critic, float32 [critic_size]."""


class CriticLearner(EpisodeLearner, Protocol):
    """A learner of a critic that individuals of a distribution climb."""

    taught: list[np.ndarray]  # the critic, float32 [d], after each actor of the last phase

    def teach(
        self, actors: Sequence[np.ndarray], updates: int, k: int, added: int | None = None
    ) -> Generator[int, None, Any]:
        """Return the phase of generation k: updates for each actor [d] in turn.

        added: the replay as it was with so many transitions added.
        """

    def advance(self, transitions: int, steps: int) -> None:
        """Take in transitions that ranks have put into the replay, and count their steps."""

    def hold_critic(self) -> None:
        """Keep the critic as it is, as `hold` does; the replay goes on."""
