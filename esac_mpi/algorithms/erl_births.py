"""ERL's next population: who stays and who is born, by rank 0; what is born, made on any rank; what becomes of memories."""

from dataclasses import dataclass

import numpy as np

from esac_mpi.algorithms.erl_play import Played
from esac_mpi.algorithms.erl_state import (
    NOBODY,
    State,
    births_board,
    distils,
    learners_own,
    memory,
    remembers,
)
from esac_mpi.comm.contracts import World
from esac_mpi.config import ERL
from esac_mpi.config.genetic import elites, imitations
from esac_mpi.operators import evolution, genetics, memories, noise, selection
from esac_mpi.operators.genetics import Spread
from esac_mpi.operators.memories import Memory
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.selection import Births, Candidates, Kind, Selection
from esac_mpi.play.params import Params, Row, make_actor
from esac_mpi.play.transitions import doubles, floats

MUTATING = 0.1  # time that a mutation takes [that of a child]; for scheduling alone
COMPARED, NEWEST = (
    256,
    1000,
)  # states in which two parents' actions are compared, drawn from so many newest. Public code


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
    selected = selection.select(fitness, elites(erl.population_size, erl.elite_fraction), random)
    numbers = erl.population_size, erl.mutation_probability, random
    if distils(erl):
        births = selection.births_distilled(
            selected, parents(params, state, k, selected, fitness), *numbers
        )
    else:
        births = selection.births_n_point(selected, *numbers)
    due = k % erl.sync_interval == 0
    return Plan(selected, births, injected(erl, selected, births, fitness) if due else NOBODY)


def parents(
    params: Params, state: State, k: int, selected: Selection, fitness: np.ndarray
) -> np.ndarray:
    """Return couples of parents, the best first, int64 [p, 2]."""
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
    """Return how far the actions of candidate y are from those of x in the states of x's memory, float64 [x, y]."""
    o, *_, a = params.layout.sizes
    actor, origins = make_actor(params), candidates.origins

    def acts(member: int, states: np.ndarray) -> np.ndarray:
        actor.set(state.population[member])
        return np.array([actor(one) for one in states], np.float32).reshape(-1, a)

    def row(x: int) -> list[float]:
        rows = compared(params, state, k, x)
        own = rows[:, o:] if params.config.erl.parent_actions == "stored" else acts(x, rows[:, :o])
        return [selection.disagreement(own, acts(y, rows[:, :o])) for y in origins.tolist()]

    return np.array([row(x) for x in origins.tolist()])


def compared(params: Params, state: State, k: int, member: int) -> np.ndarray:
    """Return the transitions of a member's memory in which others are compared with it, float32 [n, o + a]."""
    held, random = (
        memory(state, member),
        noise.generator(params.config.seed, Purpose.DISTANCE, k, member),
    )
    return held.rows[memories.sample(held, COMPARED, random, NEWEST)]


def injected(erl: ERL, selected: Selection, births: Births, fitness: np.ndarray) -> int:
    """Choose the slot that takes the learner's actor; the worst of equals is the first in the public code's ways."""
    if erl.injection == "kept":
        return worst_kept(births, fitness)
    worst = int(np.argmin(np.where(np.isfinite(fitness), fitness, -np.inf)))
    spares = erl.injection == "worst_or_next" and worst == selected.copies[0]
    return (worst + 1) % len(fitness) if spares else worst


def worst_kept(births: Births, fitness: np.ndarray) -> int:
    """Return the slot that takes the learner's actor: the worst that is neither an elite's copy nor a child's."""
    worst_first = selection.order(fitness)[::-1]
    kind = births.kind[worst_first]
    found = [worst_first[kind == Kind.KEPT], worst_first[births.mutated[worst_first]], worst_first]
    return int(next(slots[0] for slots in found if slots.size))


def changed(births: Births) -> np.ndarray:
    """Return whether a slot's next member is another than this one, bool [k]."""
    return (births.kind != Kind.KEPT) | births.mutated


def make(
    params: Params, state: State, k: int, births: Births, world: World
) -> tuple[np.ndarray, np.ndarray, Row]:
    """Make what is born, spread over the ranks; return vectors by slot [k, d], zeros where none is, busy seconds [ranks], timing.

    The vectors are the node's board: valid until the next ones. Timing: offspring_seconds and offspring_expected, each [k].
    """
    shape, due = births_board(params), changed(births)

    def work(slot: int) -> np.ndarray:
        start = world.clock()
        try:
            vector = (
                doubles(born(params, state, k, births, slot))
                if due[slot]
                else np.zeros(shape.columns - 1)
            )
        except Exception as error:
            error.add_note(
                f"in generation {k}, the next member of slot {slot} (seed {params.config.seed})"
            )
            raise
        return np.append(vector, world.clock() - start)

    expected = np.where(births.kind == Kind.CHILD, 1.0, MUTATING)
    table, busy = world.map(work, shape.rows, shape.columns, expected)
    return (
        floats(table, params.layout.d),
        busy,
        {"offspring_seconds": table[:, -1].copy(), "offspring_expected": expected},
    )


def born(params: Params, state: State, k: int, births: Births, slot: int) -> np.ndarray:
    """Return the next member of a slot, float32 [d]: a function of the population, its memories, the critic and the address."""
    theta = state.population[births.first[slot]]
    if births.kind[slot] == Kind.CHILD:
        theta = crossed(params, state, k, births, slot)
    return mutated(params, state, k, births, slot, theta) if births.mutated[slot] else theta


def crossed(params: Params, state: State, k: int, births: Births, slot: int) -> np.ndarray:
    """Return the child of a slot's two parents, float32 [d]."""
    erl, seed = params.config.erl, params.config.seed
    first, second = (state.population[parent[slot]] for parent in (births.first, births.second))
    if not distils(erl):
        random = noise.generator(seed, Purpose.CROSSOVER, k, int(births.pair[slot]))
        return genetics.n_point(first, second, params.layout, random)[births.which[slot]]
    random = noise.generator(seed, Purpose.DISTILLATION, k, slot)
    start = second if erl.distillation_start == "worse" or random.random() < 0.5 else first
    states = memories.states(inherited(params, state, k, births, slot), params.layout.sizes[0])
    assert params.operators is not None
    return params.operators.distilled((first, second), start, states, state.critic, random)


def imitation_updates(params: Params, state: State, births: Births) -> int:
    """Return the gradient updates by which a generation's children imitate their parents."""
    erl = params.config.erl
    if not distils(erl):
        return 0
    held = [
        min(memories.size(memory(state, member)), erl.memory_size // 2)
        for member in range(erl.population_size)
    ]
    children = np.flatnonzero(births.kind == Kind.CHILD)
    states = [
        held[first] + held[second]
        for first, second in zip(births.first[children], births.second[children], strict=True)
    ]
    return sum(
        erl.distillation_epochs * imitations(count, erl.distillation_batch) for count in states
    )


def mutated(
    params: Params, state: State, k: int, births: Births, slot: int, theta: np.ndarray
) -> np.ndarray:
    """Return theta [d] of a slot's next member, mutated; one that remembers nothing stays as it is under proximal mutation."""
    erl, random = params.config.erl, noise.generator(params.config.seed, Purpose.GENETIC, k, slot)
    if erl.mutation == "gaussian":
        rates = (
            erl.mutation_strength,
            erl.super_strength,
            erl.super_probability,
            erl.reset_probability,
        )
        return genetics.gaussian(theta, params.layout, Spread(erl.mutated_fraction, *rates), random)
    held = inherited(params, state, k, births, slot)
    drawn = memories.sample(held, erl.mutation_batch, random)
    if not drawn.size:
        return theta
    assert params.operators is not None
    return params.operators.proximal(theta, held.rows[drawn, : params.layout.sizes[0]], random)


def inherited(params: Params, state: State, k: int, births: Births, slot: int) -> Memory:
    """Return the memory that a slot's next member will have."""
    out = memories.blank(*state.memories.shape[1:])
    pass_on(params, state, k, births, slot, out)
    return out


def pass_on(params: Params, state: State, k: int, births: Births, slot: int, out: Memory) -> None:
    """Write the memory of a slot's next member: that of the one it was made of, or of both parents the newest half.

    The second child of an n-point crossover was made of the second parent.
    """
    first, second = (memory(state, int(parent[slot])) for parent in (births.first, births.second))
    if births.kind[slot] != Kind.CHILD:
        memories.copy(first, out)
    elif not distils(params.config.erl):
        memories.copy(second if births.which[slot] else first, out)
    else:
        shuffled = params.config.erl.memory_order == "shuffled"
        random = (
            noise.generator(params.config.seed, Purpose.DISTILLATION, k, slot, block=1)
            if shuffled
            else None
        )
        memories.inherit(first, second, out, random)


def write(
    params: Params,
    state: State,
    k: int,
    births: Births,
    vectors: np.ndarray,
    injection: dict[int, np.ndarray],
    champion: np.ndarray,
    world: World,
) -> None:
    """Let the next population take the place of this one, on each node, with memories and champion.

    vectors: [k, d] of the slots that change. injection: slot -> the learner's actor [d], or NOBODY.
    """
    due, learners = changed(births), learners_own(params.config.erl)

    def work(owner: int) -> np.ndarray:
        if owner > learners:
            state.champion[:] = champion
            return np.zeros(1)
        if remembers(params.config.erl):
            to = Memory(state.memories[owner], state.ages[owner])
            if owner in injection or owner == learners:
                memories.copy(memory(state, learners), to)
            else:
                pass_on(params, state, k, births, owner, to)
        if owner == learners:
            return np.zeros(1)
        if owner in injection:
            state.population[owner] = injection[owner]
        elif due[owner]:
            state.population[owner] = vectors[owner]
        return np.array([evolution.checksum(state.population[owner])])

    world.over_blocks(work, learners + 2, 1, checksum=True)
