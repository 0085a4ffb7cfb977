"""The generations that an algorithm will ask for, made of measured pieces.

Who yields them is said here, once for all; an algorithm of one's own has `expected` in its module
(docs/how-to/extend.md). When ESAC's phases begin and end, and who is born in ERL, the algorithms
themselves decide (esac_timing, erl_births), of random returns. Members last as the measured
episodes in turn, so they differ as those do. Left out, since little: writing rows and checkpoints,
ranks and winners, memories, the distances of parents, and importance mixing, by which some play
nothing.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from esac_mpi import config as configuration
from esac_mpi.algorithms import ALGORITHMS, erl_births, es, esac_timing
from esac_mpi.algorithms.declaration import shared_episodes, updates_owed
from esac_mpi.comm import schedule
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.generations import Generation, Made
from esac_mpi.comm.clock.task_order import Arrival, Giving, piece
from esac_mpi.comm.clock.tasks import Piece, Queue, Section
from esac_mpi.config import Config, Evolution, amend, exact, imitations, individuals
from esac_mpi.config.table import Table
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.operators.selection import Births, Kind
from esac_mpi.operators.update_rules import is_trained

EFFORT = 50  # members of a generation with barriers that take the clock as long as an arrival


class Moment(NamedTuple):
    """Where a run has come to at the end of a generation."""

    now: float  # [s]
    work: float  # of all ranks in this generation [s]
    env_steps: float  # of this generation
    nominal_steps: float
    effort: int  # members that the clock has followed in it, or what is as much


def generations(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield an endless run's generations without evaluations."""
    expected = getattr(ALGORITHMS[config.algorithm], "expected", None)
    if expected is not None:
        return (expected(config, pieces, k) for k in count(1))
    return WITH_BARRIERS[type(config.own)](config, pieces)


def of_population(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of ES and ESAC, with its learner's phases where it has one."""
    table = cast(Evolution, config.own)
    n, episodes = configuration.members(table), table.fitness_episodes
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    phases = Phases(config, pieces) if learning else None
    beside = phases is not None and phases.beside
    for k in count(1):
        begins, ends = phases.of(k) if phases else (False, False)
        trials = phases.trials if phases else es.centre_episodes(cast(configuration.ES, table), k)
        at_once, aside = begins and not beside, begins and beside
        one = Generation(
            members=np.append(pieces.members(n, episodes, k), pieces.lasting(trials, k)),
            expected=schedule.with_trials(np.ones(n), episodes, trials),
            sums=pieces.sums if table.counts_observations else 0,
            phase=phases.seconds if phases and at_once else 0.0,
            merges=ends,
            update=configuration.slots(table) * pieces.slot,
            blocks=pieces.blocks,
            begun=phases.seconds if phases and aside else 0.0,
        )
        played = (n * episodes + trials) * pieces.length
        if phases:
            played += phases.entered
        yield Made(one, played, pieces.horizon)


class Phases:
    """When a learner's phases begin and end, as ESAC itself decides it, and what one does.

    found: a generation's lengths, all alike. seconds: how long the phase takes that began last.
    entered: steps that entered in the generation that was asked of last, the population's episodes
    again among them. trials: its episodes of the test before a transfer; none is foreseen to be
    won.
    """

    def __init__(self, config: Config, pieces: Pieces) -> None:
        esac = config.esac
        self._config, self._esac = config, esac
        self.beside = esac_timing.has_lag(esac)
        lengths = np.full(configuration.members(esac), round(esac.fitness_episodes * pieces.length))
        self.found: Any = SimpleNamespace(length=lengths, trial_steps=0)
        self.trials = 0
        self.seconds = 0.0
        self.entered = 0.0
        self._steps = 0.0
        self._pieces = pieces
        self._flight: Any = SimpleNamespace(phase_begun=0, phase_left=0.0)

    def of(self, k: int) -> tuple[bool, bool]:
        """Tell whether a phase begins in generation k, and whether one ends; ask in turn."""
        esac, flight = self._esac, self._flight
        tested = esac.transfer == "tested" and self.entered
        self.trials = 2 * esac.transfer_episodes if tested else 0
        self.found.trial_steps = round(self.trials * self._pieces.length)
        ends = esac_timing.phase_ends(esac, flight, k, self.found)
        may = esac_timing.may_begin(esac, flight, k, ends)
        begins = may and esac_timing.gate_opens(self._config, k)
        self.entered = self._steps if ends else 0.0
        if ends:
            flight.phase_begun = 0
        if esac_timing.is_virtual(esac):
            flight.phase_left = esac_timing.time_left(esac, flight, self.found)
        if begins:
            self._begin()
        if begins and self.beside:
            flight.phase_begun = k
        elif begins:
            self.entered = self._steps
        return begins, ends

    def _begin(self) -> None:
        esac, pieces = self._esac, self._pieces
        again = esac_timing.resimulated(esac) * esac.fitness_episodes * pieces.length
        if esac_timing.is_virtual(esac):
            lasted = esac_timing.evaluation_time(esac, self.found)
            own = esac_timing.own_steps(self._config, lasted, round(again))
            self._flight.phase_left = esac_timing.phase_duration(self._config, own, round(again))
            steps = float(own)
        else:  # of whole episodes
            episodes = max(esac.sac_episodes, math.ceil(esac.sac_min_steps / pieces.length))
            steps = episodes * pieces.length
        self._steps = again + steps
        updates = steps * self._config.sac.updates_per_step
        self.seconds = again * pieces.step + steps * pieces.playing + updates * pieces.updating


def of_distribution(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of CEM and CEM-RL, whose update makes the elites again.

    Gradients train the first individuals.
    """
    cem: Any = config.own
    n, episodes = cem.population_size, cem.fitness_episodes
    elites, trained = individuals(cem)
    serial = trained > 0 and cem.critic == "serial"
    steps = n * episodes * pieces.length
    climb = round(exact(cem.actor_updates_per_step) * exact(steps)) if trained else 0
    for k in count(1):
        own = pieces.members(n, episodes, k)
        due = trained > 0 and is_taught(cem, (k - 1) * steps)
        # from a parallel critic once it was taught
        learns = due and (serial or is_taught(cem, (k - 2) * steps))
        one = Generation(
            members=own[trained:],
            expected=np.ones(n - trained),
            lesson=lessons(cem, steps, trained) * pieces.updating if due else 0.0,
            trained=own[:trained] + (climb * pieces.training if learns else 0.0),
            after_lesson=due and serial,
            update=elites * pieces.slot,
            blocks=pieces.blocks,
        )
        yield Made(one, steps, steps)


def is_taught(cem: Any, played: float) -> bool:
    """Tell whether the critic has lessons in the next generation, after so many steps."""
    return bool(played >= max(cem.start_steps, cem.batch_size))


def lessons(cem: Any, steps: float, trained: int) -> int:
    """Count the critic's updates after so many steps: as many for each actor, or for the mean."""
    updates = round(exact(cem.critic_updates_per_step) * exact(steps))
    return updates // trained * trained if cem.critic == "serial" else updates


def of_family(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of ERL's forms: a population is bred beside the learner's phase.

    Parents are taken as by fitness, since what a child takes does not depend on whose it is.
    Memories are as full as members are old.
    """
    erl = config.erl
    learner = ALGORITHMS[config.algorithm].DECLARES.learning.learner(config)
    episodes = erl.population_size * erl.fitness_episodes + 1  # the learner's own is the last
    steps = episodes * pieces.length
    for k in count(1):
        births = draw_births(config, k)
        held = min(erl.memory_size, round(k * erl.fitness_episodes * pieces.length))
        one = Generation(
            members=pieces.lasting(episodes, k),
            expected=np.ones(episodes),
            offspring=lasting(erl, births, pieces, held),
            offspring_expected=np.where(births.kind == Kind.CHILD, 1.0, erl_births.MUTATING),
            beside=updates_owed(config, learner, k * steps, steps) * pieces.updating,
            merges=True,
        )
        yield Made(one, steps, steps)


def draw_births(config: Config, k: int) -> Births:
    """Draw who is born in generation k, of members whose returns are in any order."""
    erl = config.erl
    if erl.crossover == "distillation":
        config = amend(config, {"erl.parent_selection": "greedy"})
    order = generator(config.seed, Purpose.SELECTION, k, 1).permutation(erl.population_size)
    params: Any = SimpleNamespace(config=config)
    state: Any = SimpleNamespace()
    return erl_births.decide(params, state, k, order.astype(float)).births


def lasting(erl: Any, births: Births, pieces: Pieces, held: int) -> np.ndarray:
    """Tell what each slot's next member takes [k] [s]; held: transitions in a member's memory."""
    child = pieces.crossing
    if erl.crossover == "distillation":
        steps = imitations(2 * min(held, erl.memory_size // 2), erl.distillation_batch)
        child = steps * erl.distillation_epochs * pieces.imitating
    return (births.kind == Kind.CHILD) * child + births.mutated * pieces.mutating


def of_learner(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of a learner alone, on rank 0; all ranks may play its episodes."""
    options: Any = config.own
    shared, name = shared_episodes(config), config.algorithm
    steps = shared * pieces.length or options.steps_per_generation
    playing = 0.0 if shared else steps * pieces.playing
    for k in count(1):
        seconds = updates_owed(config, name, k * steps, steps) * pieces.updating + playing
        one = Generation(pieces.lasting(shared, k), np.ones(shared), phase=seconds)
        yield Made(one, steps, steps)


def of_arrivals(
    config: Config, pieces: Pieces, on: Cluster, evaluations: Iterator[np.ndarray]
) -> Iterator[Moment]:
    """Yield where a run of AES-RL has come to, by generations of so many arrivals.

    Its tasks go through a clock of their own. evaluations: of each generation, episodes [s].
    """
    aes = config.aes_rl
    virtual = float(math.ceil(aes.of_critic * aes.critic_chunk))
    turn = Piece((virtual, 0.0), (aes.critic_chunk * pieces.updating, 0.0))
    giving = Giving(aes, draw_individuals(config, pieces), lambda n: turn)
    clock = Queue(on, giving, aes.workers, aes.order == "arrival")
    arrived = aes.arrivals_per_generation
    steps = arrived * pieces.length  # of individuals' own episodes
    before = 0.0
    for evaluation in evaluations:
        now = clock.go(Section(arrived, evaluation=evaluation))
        busy = float(clock.busy.sum())
        played = steps * (1 + aes.mean_episodes) + evaluation.size * pieces.length
        done = busy - before + float(evaluation.sum())
        yield Moment(now, done, played, steps, EFFORT * arrived)
        before = busy


def draw_individuals(config: Config, pieces: Pieces) -> Callable[[int, int, bool], Arrival]:
    """Make what draws a worker's next individual: its updates, its own episode, those of the mean.

    Of (worker, virtual start [steps], whether there is something to learn from).
    """
    aes, numbers = config.aes_rl, count()
    drawn = Counter({True: 1, False: 1})  # trained or not, since there is something to learn from
    most = round(aes.actor_updates_window * pieces.length)

    def draw(worker: int, now: int, taught: bool) -> Arrival:
        number = next(numbers)
        length = float(np.take(pieces.lengths, number, mode="wrap"))
        random = generator(config.seed, Purpose.SELECTION, number)
        learns = taught and is_trained(drawn[True], drawn[False], aes.rl_gain, aes.rl_share, random)
        drawn[learns] += taught
        updates = most if learns else 0
        steps = length + aes.mean_episodes * pieces.length
        lasted = math.ceil(aes.update_cost * updates) + steps
        played = float(pieces.lasting(1 + aes.mean_episodes, number).sum())
        work = piece(played, updates * pieces.training, updates, lasted, aes.update_cost)
        return Arrival(worker, round(length), work)

    return draw


WITH_BARRIERS: dict[type[Table], Callable[[Config, Pieces], Iterator[Made]]] = {
    configuration.ES: of_population,
    configuration.ESAC: of_population,
    configuration.CEM: of_distribution,
    configuration.CEMRL: of_distribution,
    configuration.ERL: of_family,
    configuration.SAC: of_learner,
    configuration.TD3: of_learner,
    configuration.DDPG: of_learner,
    configuration.PPO: of_learner,
}
