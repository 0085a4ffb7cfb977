"""ERL's next population: who stays and who is born, by rank 0; what is born, made on any rank; what becomes of memories."""

from dataclasses import dataclass

import numpy as np

from esac_mpi import evolution, genetics, memories, noise
from esac_mpi.algorithms.erl_play import Played
from esac_mpi.algorithms.erl_state import NOBODY, State, births_board, distils, learners_own, remembers
from esac_mpi.config.genetic import elites
from esac_mpi.contracts import World
from esac_mpi.genetics import Births, Kind, Selection
from esac_mpi.noise import Purpose
from esac_mpi.params import Params
from esac_mpi.policy import Policy
from esac_mpi.transitions import doubles, floats

MUTATING = 0.1  # time that a mutation takes [that of a child]; for scheduling alone
COMPARED, NEWEST = 256, 1000  # states in which two parents' actions are compared, drawn from so many newest. Public code


@dataclass(frozen=True)
class Plan:
    """What rank 0 decides of the next population: a few numbers a slot."""

    selection: Selection
    births: Births
    inject: int  # slot that takes the learner's actor, or NOBODY


def decide(params: Params, state: State, k: int, played: Played) -> Plan:
    """Select, pair and draw for the next population: one rank's decision, as exponentials differ between CPUs."""
    erl, fitness = params.config.erl, played.fitness
    random = noise.generator(params.config.seed, Purpose.SELECTION, k)
    selection = genetics.select(fitness, elites(erl.population_size, erl.elite_fraction), random)
    if distils(erl):
        births = genetics.births_distilled(selection, pairs(params, state, k, selection, fitness), erl.population_size,
                                           erl.mutation_probability, random)  # fmt: skip
    else:
        births = genetics.births_n_point(selection, erl.population_size, erl.mutation_probability, random)
    due = k % erl.sync_interval == 0
    return Plan(selection, births, injected(births, fitness) if due else NOBODY)


def pairs(params: Params, state: State, k: int, selection: Selection, fitness: np.ndarray) -> list[tuple[int, int]]:
    """Return pairs of parents, the best pair first, in each the one of higher fitness first."""
    erl = params.config.erl
    origins, scores = genetics.candidates(selection, fitness, erl.elite_fitness == "stale")
    greedy = genetics.greedy_scores(scores)
    if erl.parent_selection == "greedy":
        return genetics.pairs(origins, scores, greedy)
    distance = distances(params, state, k, origins)
    if erl.parent_selection == "mixed":
        distance = genetics.mixed(greedy, distance, erl.greedy_weight)
    return genetics.pairs(origins, scores, distance)


def distances(params: Params, state: State, k: int, origins: np.ndarray) -> np.ndarray:
    """Return how far apart candidates' actions are in the states of both memories, float64 [candidates, candidates].

    The mean over states of the squared norm of the difference, of both memories in turn; the paper's second parent selection.
    """
    o, *_, a = params.layout.sizes
    ones = np.ones(a)
    actor = Policy(params.layout, params.config.policy.activation, "tanh", -ones, ones)
    drawn = {member: sample(params, state, k, member) for member in set(origins.tolist())}  # [count, o + a] each

    def acts(theta_of: int, states: np.ndarray) -> np.ndarray:
        actor.set(state.population[theta_of])
        return np.array([actor(one) for one in states]).reshape(-1, a)

    def apart(x: int, y: int) -> float:
        rows = drawn[x]
        stored = params.config.erl.parent_actions == "stored"
        own = rows[:, o:] if stored else acts(x, rows[:, :o])
        return genetics.apart(own, acts(y, rows[:, :o]))

    return np.array([[apart(x, y) + apart(y, x) for y in origins.tolist()] for x in origins.tolist()])


def sample(params: Params, state: State, k: int, member: int) -> np.ndarray:
    """Return up to COMPARED of the NEWEST transitions of a member's memory, float32 [count, o + a]."""
    rows = memories.newest(state.next_memories[member], state.next_ages[member], NEWEST)
    random = noise.generator(params.config.seed, Purpose.DISTANCE, k, member)
    return rows[random.choice(len(rows), min(COMPARED, len(rows)), replace=False)]


def injected(births: Births, fitness: np.ndarray) -> int:
    """Return the slot that takes the learner's actor: the worst that is neither an elite's copy nor a child's."""
    worst_first = genetics.order(fitness)[::-1]
    kept = worst_first[births.kind[worst_first] == Kind.KEPT]
    others = worst_first[births.kind[worst_first] != Kind.COPY]
    return int((kept if kept.size else others)[0])


def changed(births: Births) -> np.ndarray:
    """Return whether a slot's next member is another than this one, bool [k]."""
    return (births.kind != Kind.KEPT) | births.mutated


def make(params: Params, state: State, k: int, births: Births, world: World) -> tuple[np.ndarray, np.ndarray]:
    """Make what is born, spread over the ranks; return vectors by slot, [k, d], zeros where none is, and busy seconds [ranks].

    They are the node's board: valid until the next ones.
    """
    shape, due = births_board(params), changed(births)

    def work(slot: int) -> np.ndarray:
        try:
            return doubles(born(params, state, k, births, slot)) if due[slot] else np.zeros(shape.columns)
        except Exception as error:
            error.add_note(f"in generation {k}, the next member of slot {slot} (seed {params.config.seed})")
            raise

    expected = np.where(births.kind == Kind.CHILD, 1.0, MUTATING)
    table, busy = world.map(work, shape.rows, shape.columns, expected)
    return floats(table, params.layout.d), busy


def born(params: Params, state: State, k: int, births: Births, slot: int) -> np.ndarray:
    """Return the next member of a slot, float32 [d]: a function of the population, its memories, the critic and the address."""
    erl, seed, first = params.config.erl, params.config.seed, state.population[births.first[slot]]
    theta, child = first, births.kind[slot] == Kind.CHILD
    if child and distils(erl):
        second, random = state.population[births.second[slot]], noise.generator(seed, Purpose.DISTILLATION, k, slot)
        start = second if erl.distillation_start == "worse" or random.random() < 0.5 else first
        assert params.operators is not None
        states = inherited(params, state, k, births, slot)[:, : params.layout.sizes[0]]
        theta = params.operators.distilled((first, second), start, states, state.critic, random)
    elif child:
        random = noise.generator(seed, Purpose.CROSSOVER, k, int(births.pair[slot]))
        parents = first, state.population[births.second[slot]]
        theta = genetics.n_point(*(parents[::-1] if births.which[slot] else parents), params.layout, random)[births.which[slot]]
    return mutated(params, state, k, births, slot, theta) if births.mutated[slot] else theta


def mutated(params: Params, state: State, k: int, births: Births, slot: int, theta: np.ndarray) -> np.ndarray:
    """Return theta [d] of a slot's next member, mutated."""
    erl, random = params.config.erl, noise.generator(params.config.seed, Purpose.GENETIC, k, slot)
    if erl.mutation == "gaussian":
        return genetics.gaussian(theta, params.layout, erl, random)
    rows = inherited(params, state, k, births, slot)[:, : params.layout.sizes[0]]
    states = rows[random.choice(len(rows), min(erl.mutation_batch, len(rows)), replace=False)]
    assert params.operators is not None
    return params.operators.proximal(theta, states, random)


def inherited(params: Params, state: State, k: int, births: Births, slot: int) -> np.ndarray:
    """Return the transitions that a slot's next member has in its memory, float32 [count, o + a]."""
    rows, ages = np.empty_like(state.next_memories[slot]), np.empty_like(state.next_ages[slot])
    pass_on(params, state, k, births, slot, rows, ages)
    return rows[: memories.size(ages)]


def pass_on(params: Params, state: State, k: int, births: Births, slot: int, out_rows: np.ndarray, out_ages: np.ndarray) -> None:
    """Write the memory of a slot's next member: that of the member it was made of, or the newest half of both parents'."""

    def of(member: int) -> tuple[np.ndarray, np.ndarray]:
        return state.next_memories[member], state.next_ages[member]

    first, second = int(births.first[slot]), int(births.second[slot])
    if births.kind[slot] == Kind.CHILD and distils(params.config.erl) and first != second:
        shuffled = params.config.erl.memory_order == "shuffled"
        random = noise.generator(params.config.seed, Purpose.DISTILLATION, k, slot, block=1) if shuffled else None
        memories.inherit(of(first), of(second), out_rows, out_ages, random)
    else:
        memories.copy(*of(first), out_rows, out_ages)


def write(params: Params, state: State, k: int, plan: Plan, vectors: np.ndarray, champion: np.ndarray, world: World) -> None:
    """Let the next population take the place of this one, on each node: changed slots' vectors [k, d], memories, champion."""
    due, learners = changed(plan.births), learners_own(params.config.erl)
    owners = learners + 1

    def work(owner: int) -> np.ndarray:
        if owner == owners:
            state.champion[:] = champion
            return np.zeros(1)
        if remembers(params.config.erl):
            to = state.memories[owner], state.ages[owner]
            if owner in (plan.inject, learners):
                memories.copy(state.next_memories[learners], state.next_ages[learners], *to)
            else:
                pass_on(params, state, k, plan.births, owner, *to)
        if owner == learners:
            return np.zeros(1)
        if owner == plan.inject:
            state.population[owner] = state.theta
        elif due[owner]:
            state.population[owner] = vectors[owner]
        return np.array([evolution.checksum(state.population[owner])])

    world.over_blocks(work, owners + 1, 1, checksum=True)
