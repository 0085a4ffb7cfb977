"""Children and mutants of a population: what they return, and where they go.

All is a function of the population and a seed: who is drawn, the operators' random numbers, and
start states, which are the same for all policies. Numbers are those of generation 0, which no
training has. A pair's first parent is the fitter by the same episodes; of an n-point crossover the
child is looked at that was made of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from esac_mpi import learners
from esac_mpi.algorithms import erl_births
from esac_mpi.analysis.messages import Unusable, note
from esac_mpi.analysis.relatives import Relative
from esac_mpi.config import updated
from esac_mpi.operators.noise import Purpose, generator, integer
from esac_mpi.operators.policy import Policy
from esac_mpi.operators.selection import Births, Kind
from esac_mpi.play.rollout import play
from esac_mpi.policies.population import Population

CHILDREN = {"n_point": "n-point child", "distillation": "distilled child"}
MUTANTS = {"gaussian": "Gaussian", "proximal": "proximal"}
REMEMBERING = ("distillation", "proximal")  # operators that look at memories

Episodes = tuple[
    np.ndarray, np.ndarray
]  # of a policy: returns, float64 [episodes]; states, float32 [n, 2]


@dataclass(frozen=True)
class Study:
    """Whose operators are studied, and how what they make is played."""

    population: Population
    world: Any  # comm.World, or ranks.Alone
    number: int  # of pairs of parents, or of parents
    episodes: int  # of each policy
    seed: int
    dimensions: tuple[int, int] | None = None  # of states, to be looked at


def crossover(study: Study) -> list[Relative]:
    """Return pairs of parents, the fitter first, and their children. Raises Unusable."""
    population = study.population
    couples = np.array(draw([*combinations(population.distinct.tolist(), 2)], study, "pairs"))
    fitness = {slot: found[0].mean() for slot, found in parents(study, couples).items()}
    swapped = [fitness[y] > fitness[x] for x, y in couples.tolist()]
    couples[swapped] = couples[swapped, ::-1]
    made = {
        CHILDREN[how]: children(population, couples, how, study.seed)
        for how in usable(population, CHILDREN)
    }
    return related(study, couples, ("parent 1", "parent 2"), made)


def mutation(study: Study, magnitude: float | None = None) -> list[Relative]:
    """Mutate parents; magnitude: of proximal mutation, the run's own if None. Raises Unusable."""
    population, slots = study.population, draw_parents(study)
    made = {
        MUTANTS[how]: mutants(
            population, slots, how, study.seed, magnitude if how == "proximal" else None
        )
        for how in usable(population, MUTANTS)
    }
    return related(study, slots[:, None], ("parent",), made)


def magnitudes(study: Study, values: Sequence[float]) -> list[Relative]:
    """Mutate parents by Gaussian noise, and proximally by several magnitudes. Raises Unusable."""
    population, slots = study.population, draw_parents(study)
    if not population.remembers:
        algorithm = population.params.config.algorithm
        raise Unusable(f"a run of {algorithm} keeps no memories, which proximal mutation looks at")
    made = {MUTANTS["gaussian"]: mutants(population, slots, "gaussian", study.seed)}
    made |= {
        f"proximal {value:g}": mutants(population, slots, "proximal", study.seed, value)
        for value in values
    }
    return related(study, slots[:, None], ("parent",), made)


def usable(population: Population, operators: dict[str, str]) -> list[str]:
    """Return which operators can work on a population; name those that cannot."""
    if population.remembers:
        return [*operators]
    algorithm = population.params.config.algorithm
    missing = operators[next(filter(REMEMBERING.count, operators))].split()[0]
    note(f"a run of {algorithm} keeps no memories, without which there is nothing {missing}")
    return [how for how in operators if how not in REMEMBERING]


def draw(items: Sequence[Any], study: Study, what: str) -> list[Any]:
    """Draw items, as many as the study asks for, without replacement. Raises Unusable."""
    if not items:
        same = "all members of the population are the same network"
        raise Unusable(f"{same}: there are no {what} to study")
    if len(items) < study.number:
        note(f"the population has {len(items)} different {what}")
    order = generator(study.seed, Purpose.SELECTION).permutation(len(items))
    return [items[i] for i in order[: study.number]]


def draw_parents(study: Study) -> np.ndarray:
    """Return the slots of parents, int64 [n]."""
    return np.array(draw(study.population.distinct.tolist(), study, "networks"))


def parents(study: Study, slots: np.ndarray) -> dict[int, Episodes]:
    """Return the episodes of members by slot."""
    found = np.unique(slots)
    episodes = play_all(study, study.population.state.population[found])
    return dict(zip(found.tolist(), episodes, strict=True))


def related(
    study: Study, slots: np.ndarray, names: Sequence[str], made: dict[str, np.ndarray]
) -> list[Relative]:
    """Play groups of parents, slots [groups, parents], and what was made of them [groups, d]."""
    known = parents(study, slots)
    others = play_all(study, np.concatenate(list(made.values())))
    found = []
    for group, own in enumerate(slots.tolist()):
        found += [
            Relative(group, name, (slot,), *known[slot])
            for name, slot in zip(names, own, strict=True)
        ]
        found += [
            Relative(group, name, tuple(own), *others[i * len(slots) + group])
            for i, name in enumerate(made)
        ]
    return found


def children(population: Population, couples: np.ndarray, crossover: str, seed: int) -> np.ndarray:
    """Return a child of each couple of slots [n, 2], float32 [n, d]."""
    n = len(couples)
    first, second = couples.T
    none, kept = np.zeros(n, np.int64), np.zeros(n, bool)
    births = Births(np.full(n, Kind.CHILD), first, second, np.arange(n), none, kept)
    return born(population, births, {"seed": seed, "erl.crossover": crossover})


def mutants(
    population: Population,
    slots: np.ndarray,
    mutation: str,
    seed: int,
    magnitude: float | None = None,
) -> np.ndarray:
    """Return a mutant of each slot [n], float32 [n, d]."""
    n = len(slots)
    none = np.full(n, -1)
    zeros, mutated = np.zeros(n, np.int64), np.ones(n, bool)
    births = Births(np.full(n, Kind.KEPT), slots, none, none, zeros, mutated)
    changes: dict[str, Any] = {"seed": seed, "erl.crossover": "n_point", "erl.mutation": mutation}
    if magnitude is not None:
        changes["erl.mutation_magnitude"] = magnitude
    return born(population, births, changes)


def born(population: Population, births: Births, changes: dict[str, Any]) -> np.ndarray:
    """Bear the offspring, float32 [n, d], by the configuration with these changes."""
    params = population.params
    config = updated(params.config, changes)
    operators = learners.load("offspring").GeneticOperators(config, params.layout)
    changed = replace(params, config=config, operators=operators)
    brood = erl_births.Brood(changed, population.state, 0, births)
    return np.stack([erl_births.born(brood, i) for i in range(len(births.kind))])


def play_all(study: Study, thetas: np.ndarray) -> list[Episodes]:
    """Play the study's episodes with each policy [n, d], spread over the ranks."""
    env, params, count = study.population.env, study.population.params, study.episodes
    policy = Policy(params.layout, params.config.policy.activation, "tanh", env.low, env.high)
    looked = [] if study.dimensions is None else list(study.dimensions)

    def work(i: int) -> np.ndarray:
        seen = np.full((env.horizon if looked else 0, 2), np.nan)
        states: list[np.ndarray] = []
        seed = integer(study.seed, Purpose.EVALUATION, 0, block=i % count)
        watch = (lambda observation: states.append(observation[looked])) if looked else None
        episode = play(env, policy.set(thetas[i // count]), seed, watch)
        if states:
            seen[: len(states)] = states
        return np.concatenate([[episode.episodic_return], seen.ravel()])

    table, _ = study.world.map(work, len(thetas) * count, 1 + 2 * env.horizon * bool(looked))
    by_policy = table.reshape(len(thetas), count, -1).copy()
    visited = [rows[:, 1:].reshape(-1, 2) for rows in by_policy]
    seen = [s[np.isfinite(s).all(axis=1)].astype(np.float32) for s in visited]
    return [(rows[:, 0], states) for rows, states in zip(by_policy, seen, strict=True)]
