"""Play actors spread over the ranks, and gather by name what each gave, transitions if wanted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from esac_mpi.comm.contracts import World
from esac_mpi.envs import Env
from esac_mpi.play.params import Row
from esac_mpi.play.rollout import Board, explore
from esac_mpi.play.transitions import as_doubles, as_floats

# of a row; then its own numbers, then transitions
RETURN, LENGTH, UNSTABLE, SECONDS, TRANSITIONS, HEAD = range(6)


class Played(NamedTuple):
    """What an actor's episodes gave."""

    rows: np.ndarray  # float32 [count, width] transitions
    episodic_return: float  # the mean of its episodes, nan where one was unstable
    length: int  # of all of them [steps]
    unstable: int  # episodes
    own: np.ndarray = np.zeros(0)  # float64 numbers of its own


@dataclass(frozen=True)
class Experience:
    """What actors gave, by number.

    `own` and `rows` are views, valid until the next actors of this shape play.
    """

    returns: np.ndarray  # float64 [n], nan where unstable
    lengths: np.ndarray  # int64 [n] [steps]
    unstable: int  # episodes whose return is not finite
    counts: np.ndarray  # int64 [n] transitions
    own: np.ndarray  # float64 [n, numbers]
    # actor -> its transitions, float32 [count, width], on nodes that have them
    rows: Callable[[int], np.ndarray]
    timing: Row  # busy_seconds [ranks], member_seconds and member_expected [n], seconds_wait

    def episodes(self) -> list[tuple[np.ndarray, float, int]]:
        """Copy each actor's one episode as a learner takes it: transitions, return, steps."""
        about = zip(self.returns.tolist(), self.lengths.tolist(), strict=True)
        return [(self.rows(i).copy(), *episode) for i, episode in enumerate(about)]


@dataclass(frozen=True)
class Crew:
    """Actors that play together."""

    count: int
    own: int = 0  # numbers that each gives beside its episodes
    steps: int = 0  # at most, of each
    width: int = 0  # numbers of a transition; 0: none are kept
    everywhere: bool = False  # whether transitions go to every node, not to rank 0's alone

    @property
    def board(self) -> Board:
        """The shape of what ranks put together."""
        numbers = -(-self.steps * self.width // 2)  # two of a transition's travel as one
        return Board(self.count, HEAD + self.own + numbers, 0 if self.everywhere else numbers)


def play(
    env: Env, act: Callable[[np.ndarray], np.ndarray], seeds: Sequence[int], bounded: bool = True
) -> Played:
    """Play an episode per seed by `act`, actions in [-1, 1]; bounded: as of `envs.transition`."""
    rows, episodes = zip(*(explore(env, act, seed, bounded) for seed in seeds), strict=True)
    returns = np.array([episode.episodic_return for episode in episodes])
    length = sum(episode.episodic_length for episode in episodes)
    return Played(np.vstack(rows), float(returns.mean()), length, int(np.isnan(returns).sum()))


def gather(
    world: World, crew: Crew, playing: Callable[[int], Played], expected: np.ndarray
) -> Experience:
    """Let a crew's actors play, by number.

    expected: time of each [n], for scheduling alone; 0 = it plays nothing, and its time is nan.
    """
    shape, end = crew.board, HEAD + crew.own

    def work(i: int) -> np.ndarray:
        start, row = world.clock(), np.zeros(shape.columns)
        played = playing(i)
        row[[RETURN, LENGTH, UNSTABLE, TRANSITIONS]] = *played[1:4], len(played.rows)
        row[HEAD:end] = played.own
        if crew.width:
            content = as_doubles(played.rows.ravel())
            row[end : end + content.size] = content
        row[SECONDS] = world.clock() - start
        return row

    waited = world.waited
    table, busy = world.map(work, shape.rows, shape.columns, expected, shape.bulk)
    counts = table[:, TRANSITIONS].astype(np.int64)

    def rows(i: int) -> np.ndarray:
        return as_floats(table[i, end:], counts[i] * crew.width).reshape(-1, crew.width)

    return Experience(
        returns=table[:, RETURN].copy(),
        lengths=table[:, LENGTH].astype(np.int64),
        unstable=int(table[:, UNSTABLE].sum()),
        counts=counts,
        own=table[:, HEAD:end],
        rows=rows,
        timing={
            "busy_seconds": busy,
            "member_seconds": np.where(expected > 0, table[:, SECONDS], np.nan),
            "member_expected": expected,
            "seconds_wait": world.waited - waited,
        },
    )
