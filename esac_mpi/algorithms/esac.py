"""ESAC: Evolution-based Soft Actor-Critic (Suri et al., Maximum Mutation Reinforcement Learning), Algorithm 1.

Line numbers are Algorithm 1's, equation numbers the paper's. Where this differs from the paper as printed:
- `winner_pull`: after the ES step, theta_es moves towards the mean of the winners. As printed, nothing passes from SAC to
  theta_es: the members of a mirrored pair share their parent, so the parent's offset cancels in line 11, and crossover
  reaches only the children. The pull is the smallest reading of "form new population using theta, theta_es, W" that makes
  the paper's skill transfer real; 0 gives the printed algorithm (`esac.reading = "paper"`).
- Sampling is mirrored; a pair shares its parent, and the population is counted in slots of one pair each.
- mu of line 12 is uniform, so that p_sac is a probability.
- Lines 11 and 26 run after lines 12-23, and theta_sac enters after them: neither reads what the other writes, and
  the winners' parents are still those that were evaluated. Until line 11 nothing is changed, so that a generation can be
  abandoned while its population is evaluated or SAC learns.
- The new population's children are perturbed again when they are evaluated: winners are not shielded from mutation (5.1).
- Only members with a finite return win (line 10): where they are fewer than w, so are winners and children.
- Offspring's transitions do not enter the replay (5.1.2: "a dedicated replay-buffer") unless `offspring_transitions` says so.
No offspring's parameters travel: a winner is rebuilt from (parent, seed, sign, sigma) wherever it is needed.

Every part can be taken out or exchanged alone, each by one field: `crossover = "off"`, `amt_clip = 0`, `sac_copies = 0`,
`sac_phases`, `p_sac_annealed`, `winner_selection`, `sac_copy_noise`, `winner_pull = 0`, and in place of the last `gradient` or
`adopt_sac`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from esac_mpi import config as configuration
from esac_mpi import evolution, learning, noise, population
from esac_mpi.algorithms import sac
from esac_mpi.algorithms.declaration import Declaration, Learning, at_root
from esac_mpi.algorithms.esac_state import CENTRE, CHILD, SAC_COPY, State, new_population, slot_sigmas
from esac_mpi.algorithms.esac_update import gradient_terms, update
from esac_mpi.contracts import Memory, World
from esac_mpi.envs import Env
from esac_mpi.noise import Purpose
from esac_mpi.params import THETA_ES, THETA_SAC, Params, Row
from esac_mpi.population import Population, evaluate_population
from esac_mpi.rollout import Board
from esac_mpi.transitions import unpacked


def reserve(config: configuration.Config, horizon: int) -> int:
    """Return how many transitions a SAC phase adds at most; horizon: of an episode [steps]."""
    return max(config.esac.sac_episodes * horizon, config.esac.sac_min_steps + horizon)


def added(config: configuration.Config, horizon: int) -> float:
    """Return how many transitions a run of this budget adds to SAC's replay at most; inf = no limit is told."""
    esac, (generations, env_steps, nominal) = config.esac, config.budget.limits
    phase = reserve(config, horizon) * esac.sac_phases
    offspring = configuration.members(esac) * esac.fitness_episodes * horizon * esac.offspring_transitions
    if not phase + offspring:
        return 0.0
    generations = min(generations, nominal / horizon + 1)
    in_flight = 2 * phase  # what is counted at the end of a phase, and the next one, begun in the same generation
    return min(generations * (offspring + phase / esac.gradient_interval), env_steps + offspring + in_flight)


DECLARES = Declaration(
    learning=Learning(
        learner="sac",
        ranks=at_root,
        reserve=reserve,
        added=added,
        own_env=lambda config: config.esac.learner_lag > 0,
        beside=lambda config: config.esac.sac_phases and config.esac.learner_lag > 0,
    ),
    discrete=False,
    evolution=lambda config: config.esac,
    work="members",
    policies={"theta_es": "theta_es", "sac": "the SAC mean"},
    fitness="fitness",
    output=None,
)


@dataclass(frozen=True)
class Plan:
    """What rank 0 decides from the fitness: all that travels between nodes beside scalars and theta_sac."""

    winners: np.ndarray  # int64 members, best first: w of them, or as many as have a finite return
    p_sac: float
    learns: bool  # whether a SAC phase runs
    sigma: float  # of the next generation
    amt_step: float
    amt_step_unclipped: float


def init(params: Params, world: Memory) -> State:
    """Return the state before the first generation. Algorithm 1, lines 1-3."""
    theta_es = params.layout.initial(params.config.seed, THETA_ES)
    theta_sac = params.layout.initial(params.config.seed, THETA_SAC)
    zeros = np.zeros_like(theta_es)
    children = world.shared((configuration.child_slots(params.config.esac), params.layout.d))
    return State(
        theta_es=world.share(theta_es),
        theta_sac=world.share(theta_sac),
        children=children,
        adam_m=world.share(zeros),
        adam_v=world.share(zeros),
        parents=new_population(params.config.esac, born=0),
        sigma=params.config.esac.sigma,
    )


def board(params: Params) -> Board:
    """Return the shape of what the ranks put together of a generation: its members' results."""
    return population.board(params, params.config.esac)


def generation(params: Params, state: State, world: World, env: Env, learner: Any) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    esac, k, clock = params.config.esac, state.generation + 1, [world.clock()]
    if state.phase_begun:
        begin_phase(params, state.phase_begun, world, env, learner, beside=True)  # again, after a restart

    cap, expected = population.length_cap(esac, state.mean_length), expected_members(esac, state.expected_length)
    sigmas = slot_sigmas(esac, state)
    found = evaluate_population(params, esac, k, sigmas, state.parent, world, env, cap, expected=expected)  # lines 5-8
    shaped = evolution.shaped(esac.fitness_shaping, found.fitness, found.sign_return)  # line 9
    clock.append(world.clock())
    plan: Plan = world.from_root(decide(params, state, k, found.fitness) if world.leads else None)  # lines 10, 12, 24
    clock.append(world.clock())
    phase, spent = None, learning.spent(None)
    if plan.learns and not esac.learner_lag:  # lines 12-23
        begin_phase(params, k, world, env, learner)
    if (plan.learns and not esac.learner_lag) or (state.phase_begun and k == state.phase_begun + esac.learner_lag):
        phase, _, spent = learning.finish(world)
    clock.append(world.clock())

    gradient = gradient_terms(params, state, k, sigmas, shaped, world)
    adopted = esac.adopt_sac and outscored(state.parents, found.fitness)
    moved = update(params, state, k, sigmas, gradient, plan.winners, adopted, world)  # lines 11, 26
    row = describe(params, state, found, plan, moved)
    if phase is not None:  # the theta of line 27
        learning.enter(phase, world, state.counters, state.theta_sac, learner)
        state.phase_begun = 0
    if esac.offspring_transitions and world.leads:
        remember(learner.replay, found)
    if plan.learns and esac.learner_lag:
        state.phase_begun = k
        begin_phase(params, k, world, env, learner, beside=True)
    clock.append(world.clock())
    state.tuning_multiplier *= 1 + plan.amt_step / state.sigma  # Eq. (8)
    state.log_multiplier_unclipped += float(np.log1p(plan.amt_step_unclipped / state.sigma))
    state.sigma = plan.sigma  # line 24
    state.expected_length = expected_slots(params, state, found, plan)
    state.mean_length = population.mean_length(esac, state.mean_length, found)
    state.parents = new_population(esac, born=min(plan.winners.size, len(state.children)))  # line 27
    state.generation = k
    population.count(state.counters, found, params.horizon)

    parts = ("seconds_evaluate", "seconds_plan", "seconds_learn", "seconds_update")
    seconds = dict(zip(parts, np.diff(clock), strict=True))
    return {**row, **sac.metrics(phase)}, {**found.timing, **seconds, **spent}


def begin_phase(params: Params, k: int, world: World, env: Env, learner: Any, beside: bool = False) -> None:
    """Begin the SAC phase of generation k, on rank 0, unless it is in flight. Algorithm 1, lines 12-23.

    With learner_lag L it runs beside the evaluation of the next L generations, and its result enters at the end of the last.
    """
    esac, played_in = params.config.esac, params.learner_env or env
    learning.begin(world, learner, k, lambda: learner.begin(played_in, k, esac.sac_episodes, esac.sac_min_steps), beside)


def decide(params: Params, state: State, k: int, fitness: np.ndarray) -> Plan:
    """Select winners, draw the gate and tune sigma: one rank's decision, as the exponential may differ between kinds of CPU."""
    esac = params.config.esac
    p_sac = phase_probability(esac, k)
    random = noise.generator(params.config.seed, Purpose.GATE, k)
    mu = random.random() if esac.gate == "uniform" else random.standard_normal()
    learns = bool(esac.sac_phases and k % esac.gradient_interval == 0 and mu < p_sac)  # line 12
    tunes = learns if esac.amt_trigger == "phase" else k % esac.amt_interval == 0
    returns = fitness if esac.amt_input == "raw" else evolution.centered_ranks(fitness)
    clipped, raw = 0.0, 0.0
    if tunes:  # Eqs. (4)-(6)
        clipped, raw = evolution.amt_step(returns, esac.population_size, state.sigma, esac.lr_es, esac.amt_clip)
    winners = select(params, k, fitness)  # line 10
    return Plan(winners, p_sac, learns, state.sigma + clipped, clipped, raw)


def select(params: Params, k: int, fitness: np.ndarray) -> np.ndarray:
    """Return the members that win, best first, int64 [w] or, where fewer returns are finite, fewer. Algorithm 1, line 10."""
    count = configuration.winners(params.config.esac)
    if params.config.esac.winner_selection != "uniform":
        return evolution.select_winners(fitness, count)
    shuffled = noise.generator(params.config.seed, Purpose.WINNERS, k).permutation(fitness.size)
    drawn = np.sort(shuffled[np.isfinite(fitness[shuffled])][:count])
    return drawn[evolution.select_winners(fitness[drawn], count)]


def phase_probability(esac: configuration.ESAC, k: int) -> float:
    """Return p_sac of generation k."""
    if not (esac.sac_phases and esac.p_sac_annealed):
        return esac.p_sac_initial * esac.sac_phases
    return evolution.p_sac(k, esac.p_sac_initial, esac.p_sac_final, esac.p_sac_decay)


def outscored(parents: np.ndarray, fitness: np.ndarray) -> bool:
    """Return whether the mean return of SAC copies exceeds that of members around theta_es, from parents [slots], returns [n]."""
    parent = np.repeat(parents, fitness.size // parents.size)
    means = []
    for kind in (SAC_COPY, CENTRE):
        returns = fitness[(parent == kind) & np.isfinite(fitness)]
        means.append(returns.mean() if returns.size else -np.inf)
    return bool(means[0] > means[1])


def remember(replay: Any, found: Population) -> None:
    """Add the transitions of a population's episodes to the replay, in member order."""
    for packed in found.recorded:
        for row in unpacked(packed, replay.width):
            replay.add_row(row)


def expected_slots(params: Params, state: State, found: Population, plan: Plan) -> np.ndarray:
    """Return how long episodes of the next population may be, by slot [steps]: as their parents' were; for scheduling alone."""
    parents = state.parents
    length = found.length.reshape(parents.size, -1).mean(axis=1)  # [slots]
    means = {kind: length[parents == kind].mean() for kind in (CENTRE, SAC_COPY) if (parents == kind).any()}
    expected = np.full(parents.size, means.get(CENTRE, length.mean()))
    children = len(state.children)
    born = plan.winners[:children]
    expected[: born.size] = found.length[born]
    expected[children : children + params.config.esac.sac_copies] = means.get(SAC_COPY, length.mean())
    return expected


def expected_members(esac: configuration.ESAC, expected: np.ndarray) -> np.ndarray | None:
    """Return the expected length of every member [n], or None before the first generation."""
    return np.repeat(expected, configuration.members(esac) // expected.size) if expected.size else None


def describe(params: Params, state: State, found: Population, plan: Plan, moved: Row) -> Row:
    """Return a row's columns about the population, as it was evaluated."""
    slot_of = np.arange(found.fitness.size) // (found.fitness.size // state.parents.size)
    parent = state.parents[slot_of]
    won, missing = parent[plan.winners], configuration.winners(params.config.esac) - plan.winners.size
    return {
        "fitness": found.fitness,
        "length": found.length,
        "length_cap": found.cap,
        "parent": parent,
        "winners": np.pad(plan.winners, (0, missing), constant_values=-1),
        "wins_centre": int((won == CENTRE).sum()),
        "wins_sac": int((won == SAC_COPY).sum()),
        "wins_children": int((won >= CHILD).sum()),
        "sigma": state.sigma,
        "p_sac": plan.p_sac,
        "sac_phase": int(plan.learns),
        "tuning_multiplier": state.tuning_multiplier,
        "log_tuning_multiplier_unclipped": state.log_multiplier_unclipped,
        **moved,
    }
