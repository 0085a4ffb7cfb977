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
- Offspring's transitions do not enter the replay (5.1.2: "a dedicated replay-buffer"); there is no switch for it.
No offspring's parameters travel: a winner is rebuilt from (parent, seed, sign, sigma) wherever it is needed.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from esac_mpi import config as configuration
from esac_mpi import evolution, noise
from esac_mpi.algorithms import es as strategy
from esac_mpi.algorithms import sac
from esac_mpi.algorithms.es import THETA_ES, THETA_SAC, Params, Population, Row
from esac_mpi.envs import Env
from esac_mpi.noise import Purpose
from esac_mpi.policy import Normaliser
from esac_mpi.rollout import Best, Counters

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

    winners: np.ndarray  # int64 [w] members, best first
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


def generation(params: Params, state: State, world: Any, env: Env, learner: Any) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    esac, k, clock = params.config.esac, state.generation + 1, [world.clock()]
    sigma_noise = esac.sigma if esac.amt_scope == "gradient" else state.sigma
    if state.phase_begun:
        begin_phase(params, state.phase_begun, world, env, learner)  # again, if a stop came between its begin and its end

    cap = strategy.length_cap(esac, state.mean_length)
    expected = expected_members(esac, state.expected_length)
    population = strategy.evaluate(params, esac, k, sigma_noise, state.parent, world, env, cap, expected=expected)  # lines 5-8
    clock.append(world.clock())
    shaped = evolution.centered_ranks(population.fitness)  # line 9
    plan = decide(params, state, k, population.fitness, shaped, world)  # lines 10, 12, 24
    clock.append(world.clock())
    phase, phase_seconds = None, np.nan
    if plan.learns and not esac.learner_lag:  # lines 12-23
        begin_phase(params, k, world, env, learner)
    if (plan.learns and not esac.learner_lag) or (state.phase_begun and k == state.phase_begun + esac.learner_lag):
        phase, _, phase_seconds = sac.finish(world)
    clock.append(world.clock())

    moved = update(params, state, k, sigma_noise, shaped, plan.winners, world)  # lines 11, 26
    row = describe(params, state, population, plan, moved)
    if phase is not None:  # the theta of line 27
        sac.enter(phase, world, state.counters, state.theta_sac, learner)
        state.phase_begun = 0
    if plan.learns and esac.learner_lag:
        state.phase_begun, world.learning = k, True
        begin_phase(params, k, world, env, learner)
    clock.append(world.clock())
    state.tuning_multiplier *= 1 + plan.amt_step / state.sigma  # Eq. (8)
    state.log_multiplier_unclipped += float(np.log1p(plan.amt_step_unclipped / state.sigma))
    state.sigma = plan.sigma  # line 24
    state.expected_length = expected_slots(params, state, population, plan)
    state.mean_length = strategy.mean_length(esac, state.mean_length, population)
    state.parents = new_population(esac, born=len(state.children))  # line 27
    state.generation = k
    strategy.count(state.counters, population, params.horizon)

    parts = ("seconds_evaluate", "seconds_plan", "seconds_learn", "seconds_update")
    seconds = dict(zip(parts, np.diff(clock), strict=True))
    return {**row, **sac.metrics(phase)}, {**population.timing, **seconds, "seconds_phase": phase_seconds}


def begin_phase(params: Params, k: int, world: Any, env: Env, learner: Any) -> None:
    """Begin the SAC phase of generation k, on rank 0, unless it is in flight. Algorithm 1, lines 12-23.

    With learner_lag L it runs beside the evaluation of the next L generations, and its result enters at the end of the last.
    Checkpoints have the learner of the phase's start until its result enters.
    """
    if learner is None or world.background is not None:
        return
    esac = params.config.esac
    learner.hold()
    steps = learner.begin(params.learner_env or env, k, esac.sac_episodes, esac.sac_min_steps)
    world.background = sac.Flight(steps, k, world.clock, world.watchdog.beat)


def decide(params: Params, state: State, k: int, fitness: np.ndarray, shaped: np.ndarray, world: Any) -> Plan:
    """Select winners, draw the gate and tune sigma; rank 0's decision, given to every rank."""
    esac = params.config.esac
    winners = evolution.select_winners(fitness, configuration.winners(esac))  # line 10
    p_sac = evolution.p_sac(k, esac.p_sac_initial, esac.p_sac_final, esac.p_sac_decay)
    random = noise.generator(params.config.seed, Purpose.GATE, k)
    mu = random.random() if esac.gate == "uniform" else random.standard_normal()
    learns = k % esac.gradient_interval == 0 and mu < p_sac  # line 12
    tunes = learns if esac.amt_trigger == "phase" else k % esac.amt_interval == 0
    returns = fitness if esac.amt_input == "raw" else shaped
    clipped, raw = 0.0, 0.0
    if tunes:  # Eqs. (4)-(6)
        clipped, raw = evolution.amt_step(returns, esac.population_size, state.sigma, esac.lr_es, esac.amt_clip)
    sent = np.array([p_sac, learns, state.sigma + clipped, clipped, raw, *winners], np.float64)
    p_sac, gate, sigma, clipped, raw, *chosen = world.broadcast(sent).tolist()
    return Plan(np.array(chosen, np.int64), p_sac, bool(gate), sigma, clipped, raw)


def update(params: Params, state: State, k: int, sigma_noise: float, shaped: np.ndarray, winners: np.ndarray, world: Any) -> Row:
    """Step theta_es (line 11), pull it towards the winners, make their children (line 26): block by block, on each node."""
    esac, parents = params.config.esac, state.parents
    weights = evolution.slot_weights(shaped, esac.sampling != "onesided")
    members = esac.population_size
    if esac.gradient_members == "centre":
        weights = np.where(parents == CENTRE, weights, np.float32(0))
        members = members * int((parents == CENTRE).sum()) // parents.size
    won: dict[int, list[tuple[int, int]]] = {}  # slot -> [(place among the winners, sign)]
    for place, (slot, sign) in enumerate(strategy.member(esac, int(i)) for i in winners):
        won.setdefault(slot, []).append((place, sign))
    takes = [taken_rows(params, k, child) for child in range(len(state.children))]
    rows = params.layout.rows()

    def work(block: int) -> np.ndarray:
        part = slices[block]
        size = part.stop - part.start
        theta = state.theta_es[part].copy()
        gradient, mean_winner, rebuilt = np.zeros(size, np.float32), np.zeros(size, np.float32), {}
        for slot in range(weights.size):
            eps = params.mutation.epsilon(k, slot, block, part)
            gradient += weights[slot] * eps
            for place, sign in won.get(slot, ()):
                winner = evolution.mutated(state.parent(slot)[part], eps, sign, sigma_noise)
                mean_winner += winner / np.float32(len(winners))
                if place < len(takes):
                    rebuilt[place] = winner
        gradient /= np.float32(members * state.sigma)
        step = strategy.step(esac, theta, gradient, state.adam_m[part], state.adam_v[part], k)
        new = theta + step  # line 11
        if esac.winner_pull and won:
            new = evolution.pull(new, mean_winner, esac.winner_pull)
        for child, taken in enumerate(takes):  # line 26
            if esac.crossover == "element":
                taken_here = noise.generator(params.config.seed, Purpose.CROSSOVER, k, child, 1 + block).random(size) < 0.5
            else:
                taken_here = expanded(taken, rows, part)
            state.children[child, part] = evolution.crossover(rebuilt[child], new, taken_here)
        state.theta_es[part] = new
        towards_sac, change = state.theta_sac[part] - theta, new - theta
        sums = [evolution.squares(x) for x in (theta, step, change, towards_sac)]
        return np.array([strategy.checksum(new), evolution.inner(change, towards_sac), *sums])

    slices = [part for _, part in noise.blocks(params.layout.d)]
    world.checksum, inner, *squares = world.over_blocks(work, len(slices), 6)
    theta, step, change, towards_sac = np.sqrt(squares)
    cosine = inner / (change * towards_sac) if change * towards_sac > 0 else np.nan
    return {
        "theta_norm": theta,
        "es_step_norm": step,
        "update_norm": change,
        "distance_to_sac": towards_sac,
        "cosine_to_sac": cosine,
    }


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
    expected[:children] = population.length[plan.winners[:children]]
    expected[children : children + params.config.esac.sac_copies] = means.get(SAC_COPY, length.mean())
    return expected


def expected_members(esac: configuration.ESAC, expected: np.ndarray) -> np.ndarray | None:
    """Return the expected length of every member [n], or None before the first generation."""
    return np.repeat(expected, configuration.members(esac) // expected.size) if expected.size else None


def describe(params: Params, state: State, population: Population, plan: Plan, moved: Row) -> Row:
    """Return a row's columns about the population, as it was evaluated."""
    slot_of = np.arange(population.fitness.size) // (population.fitness.size // state.parents.size)
    parent = state.parents[slot_of]
    won = parent[plan.winners]
    return {
        "fitness": population.fitness,
        "length": population.length,
        "length_cap": population.cap,
        "parent": parent,
        "winners": plan.winners,
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
