"""What algorithms, and the rooms that they share, may use of the ranks and of a learner: types only.

comm.World is a World; whether it is, mypy says.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol

import numpy as np

from esac_mpi.config import Config
from esac_mpi.host.watchdog import Watchdog


class Background(Protocol):
    """Work of rank 0 that goes on beside the exchanges, a slice at a time."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""

    @property
    def waits(self) -> bool:
        """Whether a device goes on with it alone: this rank has nothing to do for it now."""

    def advance(self) -> None:
        """Do the next slice, some milliseconds long, or less where it waits."""


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


class World(Memory, Protocol):
    """The ranks of a run and what travels between them."""

    rank: int
    size: int
    nodes: int
    leads: bool  # whether this is rank 0, which decides and records
    hosts: list[str]  # of all ranks
    library: str
    waited: float  # time that this rank has spent waiting for others [s]
    watchdog: Watchdog
    background: Background | None  # what this rank does beside the exchanges
    node: int  # this rank's
    in_flight: int  # generation whose background was begun and has not been ended; 0 = none; equal on all ranks

    @property
    def clock(self) -> Callable[[], float]:
        """This rank's clock [s]."""

    def map(
        self,
        work: Callable[[int], np.ndarray],
        count: int,
        columns: int,
        expected: np.ndarray | None = None,
        bulk: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run work(i) -> [columns] over all ranks; return [count, columns], valid until the next one, and busy seconds [size]."""

    def total(self, values: np.ndarray) -> np.ndarray:
        """Return the sum over all ranks of whole numbers, int64 of one shape, on every rank."""

    def host(self, item: int) -> str:
        """Return the host of the node that did an item of the last `map`."""

    def at_root(
        self, work: Callable[[], np.ndarray], columns: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """End rank 0's background, run work() -> [columns] there; return its result, [columns], and busy seconds [size]."""

    def dispatch(self, work: Callable[[Any], Any]) -> Any:
        """Return the tasks of this run (comm.dispatch.Dispatch), made at the first call, with what is in progress of them."""

    def node_of(self, rank: int) -> int:
        """Return the node of a rank."""

    def fence(self) -> None:
        """Order this rank's reads and writes of shared arrays: those before are over before one of those after begins."""

    def agree(self) -> bool:
        """Return, on all ranks, whether one wishes to stop; the loop hears of it."""

    def begin_background(self, k: int, background: Background | None, beside: bool) -> None:
        """Take up the background of generation k, on all ranks alike; beside: others evaluate for rank 0 from now on."""

    def end_background(self) -> None:
        """Let go of the background in flight, on all ranks alike; all evaluate again."""

    def broadcast_shared(self, array: np.ndarray) -> None:
        """Give every node rank 0's content of a shared array."""

    def from_root(self, value: Any) -> Any:
        """Return rank 0's object: a few numbers, not arrays of parameters."""

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's object; for start-up, not for the loop."""


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


class GeneticOperators(Protocol):
    """Genetic operators that take gradients, for any rank."""

    critic_size: int  # numbers of what `distilled` takes for a critic

    def distilled(
        self, parents: tuple[np.ndarray, np.ndarray], start: np.ndarray, states: np.ndarray, critic: np.ndarray,
        random: np.random.Generator,
    ) -> np.ndarray:  # fmt: skip
        """Return a child, float32 [d], that begins as `start` and imitates two parents [d] in states [n, o].

        critic: float32 [critic_size], of which the learner has the numbers.
        """

    def proximal(
        self, theta: np.ndarray, states: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        """Return theta, float32 [d], mutated in proportion to what its actions in states [n, o] owe to each weight."""


class Individuals(Protocol):
    """What trains individuals of a distribution by gradients, on any rank."""

    critic_size: int  # numbers of what `trained` takes for a critic

    def trained(
        self,
        theta: np.ndarray,
        critic: np.ndarray,
        states: np.ndarray,
        updates: int,
        random: np.random.Generator,
    ) -> np.ndarray:
        """Return theta, float32 [d], after steps up a critic [critic_size] in states [n, o] of a replay."""

    def training(
        self,
        theta: np.ndarray,
        critic: np.ndarray,
        states: np.ndarray,
        updates: int,
        random: np.random.Generator,
    ) -> Generator[int, None, np.ndarray]:
        """Make the updates of `trained`; yield now and then how many they are so far."""
