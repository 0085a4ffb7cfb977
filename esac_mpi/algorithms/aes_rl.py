"""AES-RL: a distribution of actors that moves with every arrival, some trained by a shared critic.

Source: Lee et al. 2020, An Efficient Asynchronous Method for Integrating Evolutionary and
Gradient-based Policy Search; equation numbers are its. No rank waits for a generation: each virtual
worker gets its next individual when its last one has arrived.

Arrivals are told in virtual time (virtual_time.py): an individual lasts its steps and `update_cost`
times its updates. So the bits depend on `workers`, not on the number of ranks or their speeds. A
generation is a number of arrivals, by which rows and evaluations are made; tasks go on over its
end. What was given out and has not been told is in the state, and begins again after a restart,
from what it was given: nothing that was told is lost.

Under order = arrival, the paper's, they are told as they come in. Who does what next, and with
which critic and replay, follows from the order in which results were told, and from nothing else:
the rows have it (`State.follow`), and a run whose results are told in it is the same run.

Where this differs from the paper, or from its public code:
- An individual's rank plays the mean of the moment when it was given out (there: when its own
  episode is over). It is compared with the newest mean whose return is known when it arrives: who
  was trained for long comes back with an old one's.
- Where the mean's return is known, it is played again only once it has moved (`mean_reused`).
- Before `start_steps` the distribution stays (there: it moves by random actions' returns). Until
  the critic was taught no individual is trained (there: before `start_steps`); Eq. (3) counts those
  that are given out from then on.
- The critic is told of in turns of `critic_chunk` updates, as the code ships it, for the mean at
  the turn's start. In all it has no more updates than individuals had steps (there: a turn more).
- Rank-based oldest ranks the arrivals before that, too.
- Noise on the target's action is in units of its bounds, the ratio of Eq. (7) counts in every rule,
  the 1/5 rule's window slides. Networks differ as learners/cem.py says.
"""

from functools import partial

import numpy as np

from esac_mpi.algorithms import aes_work
from esac_mpi.algorithms.aes_driver import Driver
from esac_mpi.algorithms.aes_state import COLUMNS, Now, State, init, most_added, reserve
from esac_mpi.algorithms.declaration import Declaration, Learning
from esac_mpi.comm.contracts import CriticLearner, World
from esac_mpi.envs import Env
from esac_mpi.host.stop import Abandoned
from esac_mpi.play.params import Params, Row
from esac_mpi.play.rollout import Board, refuse_not_finite

__all__ = ["DECLARES", "State", "board", "generation", "init"]

DECLARES = Declaration(
    learning=Learning(
        learner=lambda config: "cem",
        actor=lambda state: state.mean,
        reserve=reserve,
        added=most_added,
        own_env=lambda config, rank: True,
    ),
    discrete=False,
    work="tasks",
    policies={"mean": "the mean of the distribution"},
    operators=lambda config: "individuals",
    output="tanh",
)


def board(params: Params) -> Board:
    """Return an empty board: results come one by one."""
    return Board(0, 0)


def generation(
    params: Params, state: State, world: World, env: Env, learner: CriticLearner | None
) -> tuple[Row, Row]:
    """Make one generation: so many arrivals; return its metrics and its timing."""
    start = world.clock()
    now = Now(params, state, world, env, learner, state.generation + 1)
    tasks = world.dispatch(partial(aes_work.work, now))
    busy, leading = tasks.busy, tasks.leading
    if not tasks.begun:
        tasks.leader = begin(now)
        tasks.begun = True
    over = tasks.go_on()  # till enough have arrived; rank 0 decides, in Driver.take_result()
    ranks = world.gather(tasks.busy - busy)
    share(now)
    if over:
        raise Abandoned  # what has arrived is in the state
    row = describe(now)

    state.row[:] = np.nan
    state.turns[:] = 0
    state.arrived = 0
    state.generation = now.k
    lasted, led, own = world.clock() - start, tasks.leading - leading, tasks.busy - busy
    timing = {
        "busy_seconds": np.array(ranks),
        "seconds_evaluate": lasted,
        "seconds_lead": led,
        "seconds_wait": lasted - led - own,
    }
    if isinstance(tasks.leader, Driver):
        timing |= tasks.leader.take_times(start)
    return row, timing


def begin(now: Now) -> Driver | None:
    """Take up a run's tasks, on rank 0, when it starts or goes on; nodes' rings are complete."""
    state, world = now.state, now.world

    def mark(_: int) -> np.ndarray:
        state.written[0] = state.transitions
        return np.zeros(1)

    world.over_blocks(mark, 1, 1)
    return Driver(now) if world.leads else None


def share(now: Now) -> None:
    """Share rank 0's decisions with every rank."""
    state, world = now.state, now.world
    for name in ("counters", "told", "time", "mean_return", "transitions", "arrived"):
        setattr(state, name, world.from_root(getattr(state, name)))
    world.broadcast_shared(state.mean)
    world.agree()


def describe(now: Now) -> Row:
    """Describe the arrivals, one after the other, and the distribution. Raises ThetaNotFinite."""
    state, world = now.state, now.world
    vectors = state.mean, state.variance  # which rank 0 alone has
    norms = [float(np.sqrt(np.square(x, dtype=np.float64).sum())) for x in vectors]
    norm, spread = world.from_root(norms)
    refuse_not_finite(now.k, "mean or variance", "variance_init", norm, spread)
    whole = ("length", "learned", "worker", "virtual_end", "lag") if world.leads else ()
    row = {
        name: state.row[:, i].astype(np.int64 if name in whole else np.float64)
        for i, name in enumerate(COLUMNS)
    }
    return {
        **row,
        "critic_turns": state.turns.copy(),
        "theta_norm": norm,
        "variance_norm": spread,
        "critic_loss": state.critic_loss,
    }
