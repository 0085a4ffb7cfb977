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

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from esac_mpi import config as configuration
from esac_mpi import evolution, learning, noise
from esac_mpi.algorithms import es as strategy
from esac_mpi.algorithms import sac
from esac_mpi.algorithms.declaration import Declaration, Learning, at_root
from esac_mpi.algorithms.es import THETA_ES, THETA_SAC, Params, Population, Row
from esac_mpi.counters import Best, Counters
from esac_mpi.envs import Env
from esac_mpi.noise import Purpose
from esac_mpi.policy import Normaliser
from esac_mpi.rollout import Board
from esac_mpi.transitions import unpacked


def reserve(config: configuration.Config, horizon: int) -> int:
    """Return how many transitions a SAC phase adds at most; horizon: of an episode [steps]."""
    return max(config.esac.sac_episodes * horizon, config.esac.sac_min_steps + horizon)


def added(config: configuration.Config, horizon: int) -> float:
    """Return how many transitions a run of this budget adds to SAC's replay at most; inf = no limit is told."""
    esac, budget = config.esac, config.budget
    generations, env_steps, nominal = (n or math.inf for n in (budget.generations, budget.env_steps, budget.nominal_steps))
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
CENTRE, SAC_COPY, CHILD = 0, 1, 2  # parent of a slot: theta_es, theta_sac, or CHILD + its index


@dataclass
class State:
    """All that changes, equal on every rank or shared by the node; the learner, on rank 0, has its own."""

    theta_es: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    theta_sac: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    children: np.ndarray = field(metadata={"shared": True})  # float32 [child slots, d]
    adam_m: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    adam_v: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    parents: np.ndarray  # int64 [slots] CENTRE, SAC_COPY or CHILD + index
    sigma: float
    tuning_multiplier: float = 1.0  # Eq. (8) with the clipped step: sigma / sigma(1)
    log_multiplier_unclipped: float = 0.0  # natural logarithm of Eq. (8) as printed, with the unclipped step
    mean_length: float = 0.0  # running mean of the population's episodes [steps]
    expected_length: np.ndarray = field(default_factory=lambda: np.zeros(0))  # [slots] of the next members, for scheduling alone
    phase_begun: int = 0  # generation whose SAC phase is in flight; 0 = none
    generation: int = 0
    counters: Counters = field(default_factory=Counters)
    best: Best = field(default_factory=Best)

    @property
    def policies(self) -> dict[str, np.ndarray]:
        """The policies to evaluate, by name."""
        return {"theta_es": self.theta_es, "sac": self.theta_sac}

    @property
    def normaliser(self) -> Normaliser | None:
        """None: a SAC copy must behave the same in both roles."""
        return None

    def parent(self, slot: int) -> np.ndarray:
        """Return the parent of a slot, float32 [d]."""
        kind = self.parents[slot]
        return self.theta_es if kind == CENTRE else self.theta_sac if kind == SAC_COPY else self.children[kind - CHILD]


@dataclass(frozen=True)
class Plan:
    """What rank 0 decides from the fitness: all that travels between nodes beside scalars and theta_sac."""

    winners: np.ndarray  # int64 members, best first: w of them, or as many as have a finite return
    p_sac: float
    learns: bool  # whether a SAC phase runs
    sigma: float  # of the next generation
    amt_step: float
    amt_step_unclipped: float


def init(params: Params, world: Any) -> State:
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
    return strategy.results(params, params.config.esac)


def generation(params: Params, state: State, world: Any, env: Env, learner: Any) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    esac, k, clock = params.config.esac, state.generation + 1, [world.clock()]
    sigma_noise = esac.sigma if esac.amt_scope == "gradient" else state.sigma
    if state.phase_begun:
        begin_phase(params, state.phase_begun, world, env, learner)  # again, if a stop came between its begin and its end

    cap = strategy.length_cap(esac, state.mean_length)
    expected = expected_members(esac, state.expected_length)
    sigmas = slot_sigmas(esac, state.parents, sigma_noise)
    population = strategy.evaluate(
        params, esac, k, lambda slot: sigmas[slot], state.parent, world, env, cap, expected=expected
    )  # lines 5-8
    clock.append(world.clock())
    plan = decide(params, state, k, population.fitness, world)  # lines 10, 12, 24
    clock.append(world.clock())
    phase, phase_seconds = None, np.nan
    if plan.learns and not esac.learner_lag:  # lines 12-23
        begin_phase(params, k, world, env, learner)
    if (plan.learns and not esac.learner_lag) or (state.phase_begun and k == state.phase_begun + esac.learner_lag):
        phase, _, phase_seconds = learning.finish(world)
    clock.append(world.clock())

    moved = update(params, state, k, sigma_noise, population, plan.winners, world)  # lines 9, 11, 26
    row = describe(params, state, population, plan, moved)
    if phase is not None:  # the theta of line 27
        learning.enter(phase, world, state.counters, state.theta_sac, learner)
        state.phase_begun = 0
    if learner is not None and esac.offspring_transitions:
        remember(learner.replay, population)
    if plan.learns and esac.learner_lag:
        state.phase_begun = k
        begin_phase(params, k, world, env, learner, beside=True)
    clock.append(world.clock())
    state.tuning_multiplier *= 1 + plan.amt_step / state.sigma  # Eq. (8)
    state.log_multiplier_unclipped += float(np.log1p(plan.amt_step_unclipped / state.sigma))
    state.sigma = plan.sigma  # line 24
    state.expected_length = expected_slots(params, state, population, plan)
    state.mean_length = strategy.mean_length(esac, state.mean_length, population)
    state.parents = new_population(esac, born=min(plan.winners.size, len(state.children)))  # line 27
    state.generation = k
    strategy.count(state.counters, population, params.horizon)

    parts = ("seconds_evaluate", "seconds_plan", "seconds_learn", "seconds_update")
    seconds = dict(zip(parts, np.diff(clock), strict=True))
    return {**row, **sac.metrics(phase)}, {**population.timing, **seconds, "seconds_phase": phase_seconds}


def begin_phase(params: Params, k: int, world: Any, env: Env, learner: Any, beside: bool = False) -> None:
    """Begin the SAC phase of generation k, on rank 0, unless it is in flight. Algorithm 1, lines 12-23.

    With learner_lag L it runs beside the evaluation of the next L generations, and its result enters at the end of the last.
    """
    esac, played_in = params.config.esac, params.learner_env or env
    learning.begin(world, learner, k, lambda: learner.begin(played_in, k, esac.sac_episodes, esac.sac_min_steps), beside)


def decide(params: Params, state: State, k: int, fitness: np.ndarray, world: Any) -> Plan:
    """Select winners, draw the gate and tune sigma; rank 0's decision, given to every rank."""
    esac = params.config.esac
    winners = select(params, k, fitness)  # line 10
    p_sac = phase_probability(esac, k)
    random = noise.generator(params.config.seed, Purpose.GATE, k)
    mu = random.random() if esac.gate == "uniform" else random.standard_normal()
    learns = esac.sac_phases and k % esac.gradient_interval == 0 and mu < p_sac  # line 12
    tunes = learns if esac.amt_trigger == "phase" else k % esac.amt_interval == 0
    returns = fitness if esac.amt_input == "raw" else evolution.centered_ranks(fitness)
    clipped, raw = 0.0, 0.0
    if tunes:  # Eqs. (4)-(6)
        clipped, raw = evolution.amt_step(returns, esac.population_size, state.sigma, esac.lr_es, esac.amt_clip)
    sent = np.array([p_sac, learns, state.sigma + clipped, clipped, raw, *winners], np.float64)
    p_sac, gate, sigma, clipped, raw, *chosen = world.broadcast(sent).tolist()
    return Plan(np.array(chosen, np.int64), p_sac, bool(gate), sigma, clipped, raw)


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


def slot_sigmas(esac: configuration.ESAC, parents: np.ndarray, sigma: float) -> np.ndarray:
    """Return what each slot's noise is multiplied by, float64 [slots]: sigma, or 0 where its members are not perturbed."""
    shielded = (parents >= CHILD) & (esac.winner_selection == "hard")
    return np.where(shielded | ((parents == SAC_COPY) & (not esac.sac_copy_noise)), 0.0, sigma)


def update(
    params: Params, state: State, k: int, sigma_noise: float, population: Population, winners: np.ndarray, world: Any
) -> Row:
    """Step theta_es (line 11), pull it towards the winners, make their children (line 26): block by block, on each node.

    A child that has no winner is zeros; new_population gives its slot theta_es.
    """
    esac = params.config.esac
    slices = [part for _, part in noise.blocks(params.layout.d)]
    sigmas = slot_sigmas(esac, state.parents, sigma_noise)
    weights, offsets, members = gradient_terms(params, state, k, sigma_noise, population, world)
    adopted = esac.adopt_sac and outscored(state.parents, population.fitness)
    won: dict[int, list[tuple[int, int]]] = {}  # slot -> [(place among the winners, sign)]
    for place, (slot, sign) in enumerate(strategy.member(esac, int(i)) for i in winners):
        won.setdefault(slot, []).append((place, sign))
    takes = [taken_rows(params, k, child) for child in range(min(len(winners), len(state.children)))]
    rows = params.layout.rows()

    def work(block: int) -> np.ndarray:
        part = slices[block]
        size = part.stop - part.start
        theta = state.theta_es[part].copy()
        gradient, mean_winner, rebuilt = np.zeros(size, np.float32), np.zeros(size, np.float32), {}
        for slot in range(weights.size):
            eps = params.epsilon.block(k, slot, block, part)
            gradient += weights[slot] * eps
            if offsets[slot]:
                gradient += offsets[slot] * (state.parent(slot)[part] - theta)
            for place, sign in won.get(slot, ()):
                winner = evolution.mutated(state.parent(slot)[part], eps, sign, sigmas[slot])
                mean_winner += winner / np.float32(len(winners))
                if place < len(takes):
                    rebuilt[place] = winner
        gradient /= np.float32(members * state.sigma)
        step = strategy.step(esac, theta, gradient, state.adam_m[part], state.adam_v[part], k)
        new = state.theta_sac[part].copy() if adopted else theta + step  # line 11
        if esac.winner_pull and won:
            new = evolution.pull(new, mean_winner, esac.winner_pull)
        for child, taken in enumerate(takes):  # line 26
            if esac.crossover == "element":
                taken_here = noise.generator(params.config.seed, Purpose.CROSSOVER, k, child, 1 + block).random(size) < 0.5
            else:
                taken_here = expanded(taken, rows, part)
            state.children[child, part] = evolution.crossover(rebuilt[child], new, taken_here)
        state.children[len(takes) :, part] = 0
        state.theta_es[part] = new
        towards_sac, change = state.theta_sac[part] - theta, new - theta
        sums = [evolution.squares(x) for x in (theta, step, change, towards_sac, new)]
        return np.array([strategy.checksum(new), evolution.inner(change, towards_sac), *sums])

    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite ends the run
        world.checksum, inner, *squares, new_squares = world.over_blocks(work, len(slices), 7)
    strategy.check_finite(k, new_squares)
    theta, step, change, towards_sac = np.sqrt(squares)
    cosine = inner / (change * towards_sac) if change * towards_sac > 0 else np.nan
    return {
        "theta_norm": theta,
        "es_step_norm": step,
        "update_norm": change,
        "distance_to_sac": towards_sac,
        "cosine_to_sac": cosine,
    }


def gradient_terms(
    params: Params, state: State, k: int, sigma_noise: float, population: Population, world: Any
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the factors of each slot's epsilon and of its parent's offset from theta_es in line 11, float32 [slots], and n.

    n counts the members that enter: all; those around theta_es; not those whose epsilon was not used.
    """
    esac, pairs = params.config.esac, params.config.esac.sampling != "onesided"
    shaped = evolution.shaped(esac.fitness_shaping, population.fitness, population.sign_return)  # line 9
    uses = slot_sigmas(esac, state.parents, sigma_noise) > 0
    displaced = (state.parents != CENTRE) & (esac.gradient != "noise")
    if esac.gradient == "displacement_clipped":
        squares = displacements(params, state, k, sigma_noise, displaced, world)
        shaped = shaped * evolution.clipped_to_noise(squares, params.layout.d)
    enters = state.parents == CENTRE if esac.gradient_members == "centre" else uses | displaced
    weights = np.where(enters & uses, evolution.slot_weights(shaped, pairs), np.float32(0))
    offsets = np.where(enters & displaced, evolution.slot_offsets(shaped, pairs) / np.float32(sigma_noise), np.float32(0))
    return weights, offsets, esac.population_size * int(enters.sum()) // enters.size


def displacements(params: Params, state: State, k: int, sigma_noise: float, displaced: np.ndarray, world: Any) -> np.ndarray:
    """Return |(theta_i - theta_es) / sigma|^2 of the members of the `displaced` slots, 0 of the others, float64 [n]."""
    esac, slices = params.config.esac, [part for _, part in noise.blocks(params.layout.d)]
    sigmas = slot_sigmas(esac, state.parents, sigma_noise)
    members = [(i, *strategy.member(esac, i)) for i in range(configuration.members(esac))]

    def work(block: int) -> np.ndarray:
        part, squares = slices[block], np.zeros(len(members))
        for i, slot, sign in members:
            if displaced[slot]:
                eps = params.epsilon.block(k, slot, block, part)
                offspring = evolution.mutated(state.parent(slot)[part], eps, sign, sigmas[slot])
                squares[i] = evolution.squares(offspring - state.theta_es[part]) / sigma_noise**2
        return squares

    return world.over_blocks(work, len(slices), len(members))


def outscored(parents: np.ndarray, fitness: np.ndarray) -> bool:
    """Return whether the mean return of SAC copies exceeds that of members around theta_es, from parents [slots], returns [n]."""
    parent = np.repeat(parents, fitness.size // parents.size)
    means = []
    for kind in (SAC_COPY, CENTRE):
        returns = fitness[(parent == kind) & np.isfinite(fitness)]
        means.append(returns.mean() if returns.size else -np.inf)
    return bool(means[0] > means[1])


def remember(replay: Any, population: Population) -> None:
    """Add the transitions of a population's episodes to the replay, in member order."""
    for packed in population.recorded:
        for row in unpacked(packed, replay.width):
            replay.add_row(row)


def taken_rows(params: Params, k: int, child: int) -> np.ndarray:
    """Return which rows of theta the child takes from its winner, bool [rows]."""
    random = noise.generator(params.config.seed, Purpose.CROSSOVER, k, child)
    return evolution.exchanged_rows(random, [tensor.shape[0] for tensor in params.layout.tensors])


def expanded(taken: np.ndarray, rows: np.ndarray, part: slice) -> np.ndarray:
    """Expand a choice of rows [rows] with boundaries [rows + 1] to the parameters of a block, bool [block size]."""
    first, last = np.searchsorted(rows, part.start, "right") - 1, np.searchsorted(rows, part.stop)
    edges = rows[first : last + 1].clip(part.start, part.stop)
    return np.repeat(taken[first:last], np.diff(edges))


def new_population(esac: configuration.ESAC, born: int) -> np.ndarray:
    """Return each slot's parent, int64 [slots]: children first, then copies of SAC, then theta_es. Algorithm 1, line 27."""
    parents = np.full(configuration.slots(esac), CENTRE)
    children = configuration.child_slots(esac)
    parents[:born] = CHILD + np.arange(born)
    parents[children : children + esac.sac_copies] = SAC_COPY
    return parents


def expected_slots(params: Params, state: State, population: Population, plan: Plan) -> np.ndarray:
    """Return how long episodes of the next population may be, by slot [steps]: as their parents' were; for scheduling alone."""
    parents = state.parents
    length = population.length.reshape(parents.size, -1).mean(axis=1)  # [slots]
    means = {kind: length[parents == kind].mean() for kind in (CENTRE, SAC_COPY) if (parents == kind).any()}
    expected = np.full(parents.size, means.get(CENTRE, length.mean()))
    children = len(state.children)
    born = plan.winners[:children]
    expected[: born.size] = population.length[born]
    expected[children : children + params.config.esac.sac_copies] = means.get(SAC_COPY, length.mean())
    return expected


def expected_members(esac: configuration.ESAC, expected: np.ndarray) -> np.ndarray | None:
    """Return the expected length of every member [n], or None before the first generation."""
    return np.repeat(expected, configuration.members(esac) // expected.size) if expected.size else None


def describe(params: Params, state: State, population: Population, plan: Plan, moved: Row) -> Row:
    """Return a row's columns about the population, as it was evaluated."""
    slot_of = np.arange(population.fitness.size) // (population.fitness.size // state.parents.size)
    parent = state.parents[slot_of]
    won, missing = parent[plan.winners], configuration.winners(params.config.esac) - plan.winners.size
    return {
        "fitness": population.fitness,
        "length": population.length,
        "length_cap": population.cap,
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
