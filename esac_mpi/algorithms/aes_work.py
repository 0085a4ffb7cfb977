"""A rank's work on an AES-RL task, in slices: an individual's learning and play, or a lesson."""

import math
import time
from collections.abc import Callable, Generator
from typing import NamedTuple, TypeAlias

import numpy as np

from esac_mpi.algorithms.aes_state import Now, State
from esac_mpi.comm.contracts import CriticLearner
from esac_mpi.comm.virtual_time import Task
from esac_mpi.host import cooperative
from esac_mpi.host.stop import EndsRun
from esac_mpi.operators.noise import Purpose, generator, integer
from esac_mpi.play.params import Params, make_actor
from esac_mpi.play.rollout import exploring
from esac_mpi.play.transitions import write_ring

PAUSE = 1e-4  # between two looks whether this node's ring has what others bring [s]


class Order(NamedTuple):
    """A task as it travels: a function of it and of the replay alone."""

    worker: int
    number: int
    updates: int  # gradient updates that it begins with
    held: int  # transitions that it can learn from: those before this number
    theta: np.ndarray | None  # float32 [d] the individual; None = the critic's turn
    mean: np.ndarray  # float32 [d]
    critic: np.ndarray | None  # float32 [critic_size]
    first: int = 0  # number of the first of `rows`
    rows: np.ndarray | None = None  # transitions that the rank's node lacks
    plays: int = 0  # episodes of the mean


class Result(NamedTuple):
    """What an individual's task gave."""

    episodic_return: float
    length: int
    rows: np.ndarray  # float32 [count, width]
    theta: np.ndarray  # float32 [d] as it played
    mean_returns: np.ndarray  # float64 [episodes] of the mean
    mean_lengths: np.ndarray  # int64 [episodes] theirs
    unstable: int  # episodes
    updating: float  # part of its time that its updates took [s]

    @property
    def mean_steps(self) -> int:
        """Steps of the mean's episodes."""
        return int(self.mean_lengths.sum())


Answer: TypeAlias = Result | tuple[np.ndarray, float] | EndsRun  # of a task

# recorded of a task
TIMES = "worker", "rank", "start", "end", "told", "busy", "updating", "steps", "updates"


def list_times(task: Task, told: float) -> tuple[float, ...]:
    """List TIMES of a task told at rank 0's time `told` [s]; a turn of the critic only updates."""
    order, result = task.order, task.result
    if order.theta is None:
        steps, updating = 0, task.busy
    else:
        steps, updating = result.length + result.mean_steps, result.updating
    moments = task.worker, task.rank, task.began, task.ended, told
    return (*moments, task.busy, updating, steps, order.updates)


def duration(cost: float, updates: int) -> int:
    """Compute the duration of updates on the virtual clock [steps]."""
    return math.ceil(cost * updates)


def work(now: Now, order: Order) -> Generator[int, None, tuple[int, Answer]]:
    """Do a task; yield how long it has taken so far, and return that and its result.

    Of a turn of the critic what ends the run (EndsRun) is a result: it ends it when it is told,
    as on any other ranks.
    """
    params = now.params
    try:
        if order.theta is None:
            assert now.learner is not None
            return (yield from teach(params, now.learner, order))
        yield from fill_ring(now.state, now.world.fence, order)
        return (yield from train_and_play(params, now.state, order, order.theta))
    except Exception as error:
        error.add_note(
            f"in task {order.number} of worker {order.worker} (seed {params.config.seed})"
        )
        if order.theta is None and isinstance(error, EndsRun):
            return duration(params.config.aes_rl.of_critic, order.updates), error
        raise


def teach(
    params: Params, learner: CriticLearner, order: Order
) -> Generator[int, None, tuple[int, tuple[np.ndarray, float]]]:
    """Teach the critic for the mean; return also the critic, float32 [critic_size], and loss."""
    cost = params.config.aes_rl.of_critic
    steps = learner.teach([order.mean], order.updates, order.number, order.held)
    phase = yield from cooperative.report(
        steps, lambda _, done: duration(cost, min(done, order.updates)), every=4
    )
    return duration(cost, order.updates), (learner.critic_vector(), phase.critic_loss)


def fill_ring(state: State, fence: Callable[[], None], order: Order) -> Generator[int, None, None]:
    """Write an order's transitions into this node's ring, and wait for those of others."""
    if order.rows is not None:
        # before it writes: what others bring may take the places of its older rows
        while state.written[0] < order.first:
            time.sleep(PAUSE)
            yield 0
        write_ring(state.replay, order.rows, order.held)
        fence()
        state.written[0] = max(int(state.written[0]), order.held)
    while state.written[0] < order.held:
        time.sleep(PAUSE)
        yield 0
    fence()


def train_and_play(
    params: Params, state: State, order: Order, theta: np.ndarray
) -> Generator[int, None, tuple[int, Result]]:
    """Train an individual if it has updates; play it and the mean."""
    aes, seed, o = params.config.aes_rl, params.config.seed, params.layout.sizes[0]
    updating: list[float] = []  # [s]
    env, spent = params.own_env, duration(aes.update_cost, order.updates)
    assert env is not None
    if order.updates:
        among = range(max(0, order.held - aes.replay_capacity), order.held)
        states, random = state.replay[:, :o], generator(seed, Purpose.TRAINING, order.number)
        training = params.operators.training(
            theta, order.critic, states, order.updates, random, among
        )
        theta = yield from cooperative.report(
            cooperative.measure(training, updating), lambda done, _: duration(aes.update_cost, done)
        )
    actor, played = make_actor(params), []
    for number in range(1 + order.plays):  # of the individual, then of the mean
        actor.set(order.mean if number else theta)
        playing = exploring(env, actor, integer(seed, Purpose.EPISODE, order.number, block=number))
        transitions, episode = yield from cooperative.report(
            playing,
            lambda steps, _: spent + steps,  # noqa: B023, it changes below
        )
        if number == 0:
            rows = transitions
        played.append(episode)
        spent += episode.episodic_length
    own, *of_mean = played
    returns = np.array([episode.episodic_return for episode in of_mean])
    lengths = np.array([episode.episodic_length for episode in of_mean], np.int64)
    unstable = sum(np.isnan(e.episodic_return) for e in played)
    result = own.episodic_return, own.episodic_length, rows, theta, returns, lengths
    return spent, Result(*result, int(unstable), sum(updating))
