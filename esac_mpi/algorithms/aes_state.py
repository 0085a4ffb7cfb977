"""AES-RL's state: the distribution, the critic's turns, and every task given out and not told."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from esac_mpi.algorithms.declaration import added_by_phases
from esac_mpi.comm.contracts import CriticLearner, Memory
from esac_mpi.config import Config
from esac_mpi.host.stop import EndsRun
from esac_mpi.operators.update_rules import settled_share
from esac_mpi.play.counters import Progress
from esac_mpi.play.marks import ANEW, SCRATCH, VARIANCE, mark, policy
from esac_mpi.play.params import THETA_ES, Generation, Params
from esac_mpi.play.transitions import width

IDLE = -1  # number of the task of a worker that has none
# individuals of a worker while another one's is trained, times the share that are; usually 1 to 2
AROUND = 4
ANYWAY = 8  # individuals of a worker for which there is room in any case
BEGUN = mark(root=True, part=ANEW)
LATER = mark(root=True, part=ANEW, later=True)
BEGINS_ANEW = mark(part=ANEW)


class Overwritten(EndsRun):
    """Transitions that a task reads are gone: the version that gave it out kept more of them."""


@dataclass
class State(Progress):
    """All that changes, beside rank 0's learner; a task's numbers by worker, the critic's last."""

    mean: np.ndarray = field(metadata=policy("mean"))  # float32 [d]
    # float32 [rows, width] a ring
    replay: np.ndarray = field(metadata=mark(shared=True, replay=True))
    written: np.ndarray = field(metadata=SCRATCH)  # int64 [1] transitions in this node's ring
    variance: np.ndarray = field(metadata=mark(root=True, part=VARIANCE))  # float32 [d]
    critic: np.ndarray = field(metadata=BEGUN)  # float32 [critic_size] as individuals see it
    task_number: np.ndarray = field(metadata=BEGUN)  # int64 [workers + 1]
    task_start: np.ndarray = field(metadata=BEGUN)  # int64 [workers + 1] virtual [steps]
    task_updates: np.ndarray = field(metadata=BEGUN)  # int64 [workers + 1] that it begins with
    # int64 [workers + 1] transitions that it can learn from
    task_held: np.ndarray = field(metadata=BEGUN)
    task_told: np.ndarray = field(metadata=BEGUN)  # int64 [workers + 1] arrivals before it
    task_plays: np.ndarray = field(metadata=LATER)  # int64 [workers + 1] episodes of the mean
    task_theta: np.ndarray = field(metadata=BEGUN)  # float32 [workers, d] individuals as drawn
    task_mean: np.ndarray = field(metadata=BEGUN)  # float32 [workers + 1, d] the mean then
    # float32 [workers, critic_size] for those that learn
    task_critic: np.ndarray = field(metadata=BEGUN)
    successes: np.ndarray = field(metadata=BEGUN)  # int64 [window] of the 1/5 rule
    lengths: np.ndarray = field(metadata=BEGUN)  # int64 [window] steps of the last individuals
    row: np.ndarray = field(metadata=BEGUN)  # float64 [arrivals, COLUMNS] of the generation so far
    turns: np.ndarray = field(metadata=LATER)  # int64 [arrivals] of the critic, see follow
    # float32 [ring_size, d] the newest arrivals, a ring; none by other rules
    ring: np.ndarray = field(metadata=BEGUN)
    ring_fitness: np.ndarray = field(metadata=BEGUN)  # float64 [ring_size] theirs
    damp: float = field(metadata=mark(later=True, part=ANEW))  # epsilon of Eq. (2)
    # int64 [n] workers told next, by a record
    due: np.ndarray = field(metadata=BEGUN)
    # of the mean, the newest one whose return is known
    mean_return: float = field(default=np.nan, metadata=BEGINS_ANEW)
    length_of_mean: float = field(default=0.0, metadata=BEGINS_ANEW)  # of its episodes [steps]
    mean_told: int = field(default=0, metadata=BEGINS_ANEW)  # arrivals before that mean
    # 1 = that is the mean as it stands
    mean_known: int = field(default=0, metadata=BEGINS_ANEW)
    critic_loss: float = field(default=np.nan, metadata=BEGINS_ANEW)  # of the critic's last turn
    # individuals given out once the critic was taught, from 1 (Eq. 3): to be trained
    trained: int = field(default=1, metadata=BEGINS_ANEW)
    drawn: int = field(default=1, metadata=BEGINS_ANEW)  # and as they were drawn
    given: int = field(default=0, metadata=BEGINS_ANEW)  # tasks ever given out
    told: int = field(default=0, metadata=BEGINS_ANEW)  # arrivals ever
    # of the generation that is being made
    arrived: int = field(default=0, metadata=BEGINS_ANEW)
    time: int = field(default=0, metadata=BEGINS_ANEW)  # virtual, of the last arrival [steps]
    # virtual end of the critic's last turn [steps]
    critic_ended: int = field(default=0, metadata=BEGINS_ANEW)
    transitions: int = field(default=0, metadata=mark(transitions=True))  # ever made

    @property
    def is_between(self) -> bool:
        """Whether no arrival of another generation is in it."""
        return not self.arrived

    def compare_no_more(self, another_task: bool = False) -> None:
        """Forget returns if the task is another; tasks that begin again play the mean, too."""
        if another_task:
            self.mean_return, self.mean_told, self.mean_known = np.nan, 0, 0
            self.task_plays[:-1] = self.task_plays[-1]  # the critic's has stayed mean_episodes
            self.ring_fitness[:] = np.nan

    def follow(self, history: Mapping[str, np.ndarray]) -> bool:
        """List in `due` the workers of the results that follow in a record, the critic's too.

        The record has the worker of each arrival, and how many turns of the critic were told
        between it and the one before, both int64 [generations, arrivals].
        """
        worker = history["metrics/worker"][self.generation :]
        turns = history["metrics/critic_turns"][self.generation :].ravel()
        order = np.full(turns.size + turns.sum(), len(self.task_number) - 1)
        order[np.arange(turns.size) + np.cumsum(turns)] = worker.ravel()
        due = order[self.arrived + self.turns.sum() :]
        if due.size <= self.due.size:  # it has this one already, and what comes after it
            return False
        self.due = due
        return True


Now: TypeAlias = Generation[State, CriticLearner]

COLUMNS = (
    "fitness", "length", "learned", "worker", "virtual_end", "lag", "p", "mean_return",
)  # of an arrival in State.row; lag: arrivals since it was given out  # fmt: skip


def reserve(config: Config, horizon: int) -> int:
    """Compute the ring's room for arrivals while a task reads older transitions [transitions].

    Of workers that play, one step in 1 + mean_episodes is an individual's where the mean's episodes
    are as long: so the critic's turns count. While an individual is trained others are, too: each
    worker gets some AROUND / p more, p being the share that the controller settles at. What would
    need more waits: `has_room`. There is never room for more than could come in at the most.
    """
    aes, p = config.aes_rl, settled_share(config.aes_rl.rl_gain, config.aes_rl.rl_share)
    turn = aes.of_critic * aes.critic_chunk
    training = aes.update_cost * aes.actor_updates_window * horizon
    playing = 1 + aes.mean_episodes
    around = max(turn / playing, min(training / playing, AROUND / p * horizon))
    usual = math.ceil(around) + ANYWAY * horizon
    most = math.ceil(max(turn, training)) + (playing + 2) * horizon + 1
    return aes.workers * min(usual, most)


def has_room(
    config: Config, horizon: int, state: State, coming: int, own: int | None, others: Iterable[int]
) -> bool:
    """Tell whether an arrival of `coming` transitions leaves those in the ring that are still read.

    own, others: `task_held` of its own task and of those not told, None = it reads none. These must
    be able to begin anew, done or not. Who reads the oldest may always come, for which there is
    room: so none waits for another that waits for it.
    """
    aes, others = config.aes_rl, list(others)
    oldest = min(others, default=None)
    if oldest is None or not coming or (own is not None and own <= oldest):
        return True
    last = state.transitions + coming + aes.workers * horizon
    return last - len(state.replay) <= max(0, oldest - aes.replay_capacity)


def refuse_overwritten(config: Config, state: State, coming: int, others: Iterable[int]) -> None:
    """Raise Overwritten if tasks not told read what the ring lacks, given `coming` more.

    others: their `task_held`. What `has_room` was asked about never does.
    """
    reading = list(others)
    first = max(0, min(reading, default=0) - config.aes_rl.replay_capacity)
    if reading and state.transitions + coming - len(state.replay) > first:
        raise Overwritten(
            f"a task that was not told reads transitions from number {first} on, "
            f"and the replay has room for {len(state.replay)} "
            f"of {state.transitions + coming}: the run, or that of the record of its order, "
            "was made by a version that had more; "
            "go on with that version"
        )


def most_added(config: Config, horizon: int) -> float:
    """Count the transitions that a run adds at most."""
    return added_by_phases(config, config.aes_rl.arrivals_per_generation * horizon)


def init(params: Params, world: Memory) -> State:
    """Make the state before the first generation."""
    aes, config, (o, *_, a) = params.config.aes_rl, params.config, params.layout.sizes
    assert params.operators is not None
    mean, size, d = params.initial(THETA_ES), params.operators.critic_size, params.layout.d
    whole = max(most_added(config, params.horizon), aes.batch_size)
    kept = min(
        min(aes.replay_capacity, whole) + reserve(config, params.horizon),
        whole + aes.workers * params.horizon,
    )
    workers = aes.workers
    ring = aes.ring_size if aes.mean_rule == "rank_oldest" else 0
    window = aes.success_window if aes.variance_rule == "success" else 0

    def numbers() -> np.ndarray:
        return np.zeros(workers + 1, np.int64)

    return State(
        mean=world.share(mean),
        replay=world.shared((int(kept), width(o, a))),
        written=world.shared((1,), np.int64),
        variance=np.full(d, aes.variance_init, np.float32),
        critic=np.zeros(size, np.float32),
        task_number=numbers() + IDLE,
        task_start=numbers(),
        task_updates=numbers(),
        task_held=numbers(),
        task_told=numbers(),
        task_plays=numbers() + aes.mean_episodes,
        task_theta=np.zeros((workers, d), np.float32),
        task_mean=np.zeros((workers + 1, d), np.float32),
        task_critic=np.zeros((workers, size), np.float32),
        successes=np.full(window, -1),
        lengths=np.zeros(aes.actor_updates_window, np.int64),
        row=np.full((aes.arrivals_per_generation, len(COLUMNS)), np.nan),
        turns=np.zeros(aes.arrivals_per_generation, np.int64),
        ring=np.zeros((ring, d), np.float32),
        ring_fitness=np.zeros(ring),
        damp=aes.damp if ring else 0.0,
        due=np.zeros(0, np.int64),
    )
