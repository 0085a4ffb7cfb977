"""ERL's next population: decided by rank 0, born on any rank; and what becomes of memories."""

from dataclasses import dataclass

import numpy as np

from esac_mpi.algorithms.erl_state import NOBODY, Now, State, births_board, distils, has_memories
from esac_mpi.config import ERL
from esac_mpi.config.genetic import elites, imitations
from esac_mpi.operators import evolution, genetics, memories, noise, selection
from esac_mpi.operators.memories import Memory
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.selection import Births, Candidates, Kind, Selection
from esac_mpi.play.params import Params, Row, make_actor
from esac_mpi.play.rollout import note_origin
from esac_mpi.play.transitions import as_doubles, as_floats

MUTATING = 0.1  # time that a mutation takes [that of a child]; for scheduling alone
# states in which two parents' actions are compared, drawn from so many newest. Public code
COMPARED, NEWEST = 256, 1000


@dataclass(frozen=True)
class Plan:
    """What rank 0 decides of the next population: a few numbers a slot."""

    selection: Selection
    births: Births
    inject: int  # slot that takes the learner's actor, or NOBODY


def decide(params: Params, state: State, k: int, fitness: np.ndarray) -> Plan:
    """Select, pair and draw the next population on one rank, as exponentials differ by CPU."""
    erl = params.config.erl
    random = noise.generator(params.config.seed, Purpose.SELECTION, k)
    selected = selection.select(fitness, elites(erl.population_size, erl.elite_fraction), random)
    numbers = erl.population_size, erl.mutation_probability, random
    if distils(erl):
        couples = choose_parents(params, state, k, selected, fitness)
        births = selection.births_distilled(selected, couples, *numbers)
    else:
        births = selection.births_n_point(selected, *numbers)
    due = k % erl.sync_interval == 0
    return Plan(selected, births, injection_slot(erl, selected, births, fitness) if due else NOBODY)


def choose_parents(
    params: Params, state: State, k: int, selected: Selection, fitness: np.ndarray
) -> np.ndarray:
    """Choose couples of parents, the best first, int64 [p, 2]."""
    erl = params.config.erl
    candidates = selection.candidates(selected, fitness, erl.elite_fitness == "stale")
    couples = selection.couples(candidates)
    scores = selection.greedy_scores(couples, candidates.scores)
    if erl.parent_selection != "greedy":
        distance = selection.distance_scores(couples, disagreements(params, state, k, candidates))
        mixed = erl.parent_selection == "mixed"
        scores = selection.mixed_scores(scores, distance, erl.greedy_weight) if mixed else distance
    return selection.parents(candidates, couples, scores)


def disagreements(params: Params, state: State, k: int, candidates: Candidates) -> np.ndarray:
    """Measure how far y's actions are from x's in the states of x's memory, float64 [x, y]."""
    o, *_, a = params.layout.sizes
    actor, origins = make_actor(params), candidates.origins

    def acts(member: int, states: np.ndarray) -> np.ndarray:
        actor.set(state.population[member])
        return np.array([actor(one) for one in states], np.float32).reshape(-1, a)

    def row(x: int) -> list[float]:
        held, random = state.memory(x), noise.generator(params.config.seed, Purpose.DISTANCE, k, x)
        rows = held.rows[memories.sample(held, COMPARED, random, NEWEST)]
        own = rows[:, o:] if params.config.erl.parent_actions == "stored" else acts(x, rows[:, :o])
        return [selection.disagreement(own, acts(y, rows[:, :o])) for y in origins.tolist()]

    return np.array([row(x) for x in origins.tolist()])


def injection_slot(erl: ERL, selected: Selection, births: Births, fitness: np.ndarray) -> int:
    """Choose the slot for the learner's actor: the worst kept, no elite's copy and no child.

    Someone is kept, as less than half are elites. Of equal worst the public code takes the first.
    """
    if erl.injection == "kept":
        best_first = selection.order(fitness)
        return int(best_first[births.kind[best_first] == Kind.KEPT][-1])
    worst = int(np.argmin(evolution.or_least(fitness)))
    spares = erl.injection == "worst_or_next" and worst == selected.copies[0]
    return (worst + 1) % len(fitness) if spares else worst


def make_offspring(now: Now, births: Births) -> tuple[np.ndarray, np.ndarray, Row]:
    """Make the offspring on all ranks; return vectors, busy seconds [ranks] and timing.

    Vectors: [k, d] by slot, zeros where none is born; the node's board, valid until the next ones.
    Timing: offspring_seconds and offspring_expected, each [k].
    """
    params, world, shape = now.params, now.world, births_board(now.params)
    due = changed(births)

    def work(slot: int) -> np.ndarray:
        start, row = world.clock(), np.zeros(shape.columns)
        what = f"in generation {now.k}, the next member of slot {slot} (seed {params.config.seed})"
        if due[slot]:
            with note_origin(what):
                row[:-1] = as_doubles(make_member(now, births, slot))
        row[-1] = world.clock() - start
        return row

    expected = np.where(births.kind == Kind.CHILD, 1.0, MUTATING)
    table, busy = world.map(work, shape.rows, shape.columns, expected)
    lasted = {"offspring_seconds": table[:, -1].copy(), "offspring_expected": expected}
    return as_floats(table, params.layout.d), busy, lasted


def changed(births: Births) -> np.ndarray:
    """Tell which slots' next members are others than these, bool [k]."""
    return (births.kind != Kind.KEPT) | births.mutated


def make_member(now: Now, births: Births, slot: int) -> np.ndarray:
    """Make the next member of a slot, float32 [d]."""
    theta = now.state.population[births.first[slot]]
    if births.kind[slot] == Kind.CHILD:
        theta = make_child(now, births, slot)
    return mutate(now, births, slot, theta) if births.mutated[slot] else theta


def make_child(now: Now, births: Births, slot: int) -> np.ndarray:
    """Make the child of a slot's two parents, float32 [d]."""
    params, state, k = now.params, now.state, now.k
    erl, seed = params.config.erl, params.config.seed
    first, second = (state.population[parent[slot]] for parent in (births.first, births.second))
    if not distils(erl):
        random = noise.generator(seed, Purpose.CROSSOVER, k, int(births.pair[slot]))
        return genetics.n_point(first, second, params.layout, random)[births.which[slot]]
    random = noise.generator(seed, Purpose.DISTILLATION, k, slot)
    start = second if erl.distillation_start == "worse" or random.random() < 0.5 else first
    states = memories.states(make_memory(now, births, slot), params.layout.sizes[0])
    return params.operators.distilled((first, second), start, states, state.critic, random)


def mutate(now: Now, births: Births, slot: int, theta: np.ndarray) -> np.ndarray:
    """Mutate theta [d] of a slot's next member; a proximal one spares who remembers nothing."""
    params, erl = now.params, now.params.config.erl
    random = noise.generator(params.config.seed, Purpose.GENETIC, now.k, slot)
    if erl.mutation == "gaussian":
        return genetics.gaussian(theta, params.layout, erl, random)
    held = make_memory(now, births, slot)
    drawn = memories.sample(held, erl.mutation_batch, random)
    if not drawn.size:
        return theta
    return params.operators.proximal(theta, held.rows[drawn, : params.layout.sizes[0]], random)


def make_memory(now: Now, births: Births, slot: int) -> Memory:
    """Make the memory that a slot's next member will have."""
    out = memories.make_empty(*now.state.memories.shape[1:])
    write_memory(now, births, slot, out)
    return out


def write_memory(now: Now, births: Births, slot: int, out: Memory) -> None:
    """Write the memory of a slot's next member: its origin's, or half of each parent's.

    The second child of an n-point crossover was made of the second parent.
    """
    config = now.params.config
    first, second = (now.state.memory(parent[slot]) for parent in (births.first, births.second))
    if births.kind[slot] != Kind.CHILD:
        memories.copy(first, out)
    elif not distils(config.erl):
        memories.copy(second if births.which[slot] else first, out)
    else:
        random = None
        if config.erl.memory_order == "shuffled":
            random = noise.generator(config.seed, Purpose.DISTILLATION, now.k, slot, block=1)
        memories.inherit(first, second, out, random)


def imitation_updates(now: Now, births: Births) -> int:
    """Count the gradient updates by which a generation's children imitate their parents."""
    erl = now.params.config.erl
    if not distils(erl):
        return 0
    most, updates = erl.memory_size // 2, 0
    held = [min(memories.size(now.state.memory(i)), most) for i in range(erl.population_size)]
    for child in np.flatnonzero(births.kind == Kind.CHILD):
        states = held[births.first[child]] + held[births.second[child]]
        updates += erl.distillation_epochs * imitations(states, erl.distillation_batch)
    return updates


def replace_population(now: Now, plan: Plan, vectors: np.ndarray, champion: np.ndarray) -> None:
    """Replace population, memories and champion by the next ones, on each node.

    vectors: [k, d] of the slots that change; the learner's actor takes the plan's slot.
    """
    state, erl = now.state, now.params.config.erl
    due, learners = changed(plan.births), erl.population_size  # its memory is the last one

    def work(owner: int) -> np.ndarray:
        if owner > learners:
            state.champion[:] = champion
            return np.zeros(1)
        if has_memories(erl):
            to = Memory(state.memories[owner], state.ages[owner])
            if owner in (plan.inject, learners):
                memories.copy(state.memory(learners), to)
            else:
                write_memory(now, plan.births, owner, to)
        if owner == learners:
            return np.zeros(1)
        if owner == plan.inject:
            state.population[owner] = state.theta
        elif due[owner]:
            state.population[owner] = vectors[owner]
        return np.array([evolution.checksum(state.population[owner])])

    now.world.over_blocks(work, learners + 2, 1, checksum=True)
