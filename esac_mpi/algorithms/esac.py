"""ESAC, Evolution-based Soft Actor-Critic: Algorithm 1.

Source: Suri et al., Maximum Mutation Reinforcement Learning; line numbers are Algorithm 1's,
equation numbers the paper's. Its symbols are here:
- theta_es and theta: state.theta_es and state.theta_sac; psi and phi are in learners/sac.py.
- pop_n: state.parents, whose child each slot is; eps_(i): params.epsilon, made where it is needed.
- F: found.fitness, normalised and ranked: shaped; W: plan.winners, w of them by e, which is
  esac.winner_fraction.
- g: esac.gradient_interval; p_sac and mu: esac_timing.p_sac() and gate_opens(); R: learner.replay.
- sigma, zeta, alpha_es, alpha: state.sigma, esac.amt_clip, esac.lr_es, sac.lr_sac.

Where this differs from the paper as printed:
- Line 5: sampling is mirrored; a pair shares its parent, and the population is counted in slots of
  one pair each.
- Line 10: only members with a finite return win; where they are fewer than w, so are winners and
  children.
- Lines 11 and 26 run after lines 12-23, and theta_sac enters after them: neither reads what the
  other writes, and the winners' parents are still those that were evaluated. Until line 11 nothing
  is changed, so that a generation can be abandoned while its population is evaluated or SAC learns.
- Line 12: mu is uniform, so that p_sac is a probability.
- Line 14: the first `sac.start_steps` actions are uniform. A phase has `sac_min_steps` at least.
- Lines 19-22: SAC has two Q with targets in place of V and its target (`sac.value_network`).
- Line 26: whole rows of weight matrices are exchanged (`crossover`).
- Line 27: the children are perturbed again when they are evaluated, as winners are not shielded
  from mutation (section 1).
- `winner_pull`: after the ES step, theta_es moves towards the mean of the winners. As printed,
  nothing passes from SAC to theta_es: line 11 has a member's noise, not its parent, and crossover
  reaches only the children. The pull is the smallest interpretation of "form new population using
  theta, theta_es, W" that makes the paper's skill transfer real; 0 gives the printed algorithm
  (`esac.preset = "paper"`).
By default, and not where `esac.preset` is "corrected", "paper" or "reference-code":
- Phases follow one another beside the evaluation, whatever the number of ranks, each nine tenths as
  long as a generation or longer (`phase_timing = "continuous"`; "virtual": of fixed length), and
  p_sac stays 1 (`p_sac_annealed`); line 12 has ranks wait for them, and p_sac fall.
- Winners' episodes enter the replay while they are better than SAC's own, and do more than survive
  (`resimulated = "earning"`): rank 0 runs them again. 5.1.1 has "a dedicated replay-buffer".
- theta_es becomes theta_sac in place of line 11 once theta_sac has won three tests in a row, or a
  single one in which it exceeds the return of every member but its copies, and leads by more than
  theta_es has gained by itself (`transfer = "tested"`, `transfer_at_once`).
- The members of a pair begin in the same state (`start_states = "pair"`).
- sigma stays as it is (`sigma_rule = "fixed"`): line 24's growth counts phases, which here follow
  one another without a break, and runs away.
- Members are compared by returns without the bonus for survival (`reward_shift = "survival"`),
  up to 64 observations are standardised (`observation_normalisation`), noise on the weights of
  more is scaled (`scaled_noise`), and policies have a linear path beside the network
  (`policy.linear`).
No offspring's parameters travel: a winner is rebuilt from (parent, seed, sign, sigma) wherever it
is needed.

Every part can be taken out or exchanged alone, each by one field: `crossover = "off"`,
`sigma_rule`, `sac_copies = 0`, `sac_phases` (with `transfer = "off"`), `p_sac_annealed`,
`winner_selection`, `sac_copy_noise`, `winner_pull = 0`, and in place of the last `gradient` or
`transfer`.
"""

from dataclasses import dataclass

import numpy as np

from esac_mpi import config as configuration
from esac_mpi.algorithms import esac_phase, esac_timing, esac_transfer, sac
from esac_mpi.algorithms.declaration import Declaration, Learning
from esac_mpi.algorithms.esac_state import (
    CENTRE,
    CHILD,
    SAC_COPY,
    InFlight,
    Now,
    State,
    new_population,
    slot_sigmas,
)
from esac_mpi.algorithms.esac_transfer import Verdict
from esac_mpi.algorithms.esac_update import update
from esac_mpi.algorithms.laps import Laps
from esac_mpi.comm.contracts import Learner, Memory, World
from esac_mpi.envs import Env
from esac_mpi.operators import evolution, noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.play import population
from esac_mpi.play.params import THETA_SAC, Params, Row
from esac_mpi.play.population import Population, evaluate_population
from esac_mpi.play.rollout import Board

DECLARES = Declaration(
    learning=Learning(
        learner=lambda config: "sac",
        actor=lambda state: state.theta_sac,
        reserve=esac_timing.reserve,
        added=esac_timing.most_added,
        own_env=lambda config, rank: rank == 0 and esac_timing.has_lag(config.esac),
        beside=lambda config: esac_timing.has_lag(config.esac),
        cut=esac_timing.cut,
        learns=lambda config: config.esac.sac_phases,
    ),
    discrete=False,
    evolution=lambda config: config.esac,
    work="members",
    policies={"theta_es": "theta_es", "sac": "the SAC mean"},
)


@dataclass(frozen=True)
class Plan:
    """Rank 0's decision from the fitness: all that goes between nodes but scalars and theta_sac."""

    winners: np.ndarray  # int64 members, best first: w of them, or as many as have a finite return
    p_sac: float
    learns: bool  # whether a SAC phase runs
    sigma_step: float  # by AMT or the one-fifth rule, line 24
    amt_step_unclipped: float
    verdict: Verdict


def init(params: Params, world: Memory) -> State:
    """Make the state before the first generation. Algorithm 1, lines 1-3."""
    esac, d = params.config.esac, params.layout.d
    if esac.transfer == "tested":
        world.reserve(*population.board(params, esac, 2 * esac.transfer_episodes)[:2])
    common = population.initial(params, esac, world, 2)
    children, again = configuration.child_slots(esac), esac_timing.resimulated(esac)
    return State(
        **common,
        theta_sac=world.share(params.initial(THETA_SAC)),
        children=world.shared((children, d)),
        rebuilt=world.shared((children if len(common["partial_sums"]) else 0, d)),
        parents=new_population(esac, born=0),
        flight=InFlight(
            replayed_theta=world.shared((again if esac_timing.has_lag(esac) else 0, d)),
            phase_sums=params.unseen(),
        ),
    )


def board(params: Params) -> Board:
    """Return the shape of a generation's board: its members' results."""
    return population.board(params, params.config.esac)


def generation(
    params: Params, state: State, world: World, env: Env, learner: Learner | None
) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    esac, k = params.config.esac, state.generation + 1
    scale = population.noise_scale(params, esac, state.noise_sums, k)
    now = Now(params, state, world, env, learner, k, scale)
    laps = Laps(world.clock)
    esac_phase.resume(now)  # after a restart
    found = evaluate(now)  # lines 5-8
    shaped = evolution.shaped(esac.fitness_shaping, found.fitness, found.sign_return)  # line 9
    laps("evaluate")
    ended = esac_timing.phase_ends(esac, state.flight, k, found)  # the phase in flight
    # line 10: W; line 12: whether a phase begins; line 24: the step of sigma
    plan: Plan = world.from_root(decide(now, found, ended) if world.leads else None)
    laps("plan")
    phase, again, spent = esac_phase.advance(now, found, ended, plan.learns)  # lines 13-23
    laps("learn")
    moved = update(now, shaped, plan.winners, plan.verdict.transfers)  # lines 11, 26
    row = describe(now, found, plan, moved)
    esac_transfer.schedule(esac, state, found, plan.verdict)
    esac_phase.enter(now, phase, found)  # theta of line 21, for line 27
    esac_phase.follow(now, found, again)  # with a lag, lines 13-23 begin here
    laps("update")
    tune(state, plan)  # line 24
    form_next(now, found, plan)  # line 27
    tests, lasted = esac_transfer.trial_columns(esac, found)
    timing = {**found.timing, **laps.seconds, **spent, **lasted}
    return {**row, **tests, **sac.metrics(phase)}, timing


def evaluate(now: Now) -> Population:
    """Evaluate the population, and the policies on trial. Algorithm 1, lines 5-8."""
    esac, state = now.params.config.esac, now.state
    lengths = None
    if state.expected_length.size:
        lengths = esac_transfer.spread(state.expected_length, configuration.members(esac))
    sigmas, trials = slot_sigmas(esac, state), esac_transfer.plan_trials(esac, state)
    return evaluate_population(now, esac, sigmas, lengths, trials)


def decide(now: Now, found: Population, ended: bool) -> Plan:
    """Select winners, draw the gate, tune sigma and judge the trials. Lines 10, 12, 24.

    One rank decides, as sums and exponentials differ by CPU. ended: the phase in flight ends here.
    """
    esac, state, k = now.params.config.esac, now.state, now.k
    may_learn = esac_timing.may_begin(esac, state.flight, k, ended)
    learns = may_learn and esac_timing.gate_opens(now.params.config, k)  # line 12
    step = unclipped = 0.0
    if esac.sigma_rule == "grow":
        step, unclipped = amt_step(now, found, learns)
    elif esac.sigma_rule == "one_fifth":
        step = one_fifth_step(esac, state, found)
    return Plan(
        winners=select(now.params, k, found.fitness),  # line 10
        p_sac=esac_timing.p_sac(esac, k),
        learns=learns,
        sigma_step=step,
        amt_step_unclipped=unclipped,
        verdict=esac_transfer.judge(esac, state, found),
    )


def select(params: Params, k: int, fitness: np.ndarray) -> np.ndarray:
    """Pick the winners, best first, int64 [w], fewer if fewer are finite. Algorithm 1, line 10."""
    count = configuration.winners(params.config.esac)
    if params.config.esac.winner_selection != "uniform":
        return evolution.select_winners(fitness, count)
    shuffled = noise.generator(params.config.seed, Purpose.WINNERS, k).permutation(fitness.size)
    drawn = np.sort(shuffled[np.isfinite(fitness[shuffled])][:count])
    return drawn[evolution.select_winners(fitness[drawn], count)]


def amt_step(now: Now, found: Population, learns: bool) -> tuple[float, float]:
    """Make AMT's step of sigma, clipped and unclipped. Eqs. (4)-(6)."""
    esac, sigma = now.params.config.esac, now.state.sigma
    share = amt_share(esac, now.k, learns)
    if not share:
        return 0.0, 0.0
    raw_input = esac.amt_input == "raw"
    compared = found.fitness if raw_input else evolution.centered_ranks(found.fitness)
    n = esac.population_size
    clipped, raw = evolution.amt_step(compared, n, sigma, esac.lr_es, esac.amt_clip)
    return share * clipped, share * raw


def amt_share(esac: configuration.ESAC, k: int, learns: bool) -> float:
    """Compute the part of an AMT step that is generation k's; learns: a phase begins in it."""
    if esac.amt_trigger == "phase":
        return float(learns)
    if esac.amt_trigger == "interval":
        return float(k % esac.amt_interval == 0)
    return evolution.phases_by(k) - evolution.phases_by(k - 1)


def one_fifth_step(esac: configuration.ESAC, state: State, found: Population) -> float:
    """Compute the one-fifth rule's step of sigma; 0 without a finite test of theta_es."""
    if not found.trials.size:
        return 0.0
    around = esac_transfer.returns_of(CENTRE, state.parents, found.returns)
    return evolution.adapt_sigma(state.sigma, esac.sigma, around, found.trials[0]) - state.sigma


def tune(state: State, plan: Plan) -> None:
    """Take the next generation's sigma. Algorithm 1, line 24."""
    state.tuning_multiplier *= 1 + plan.sigma_step / state.sigma  # Eq. (8)
    state.log_multiplier_unclipped += float(np.log1p(plan.amt_step_unclipped / state.sigma))
    state.sigma += plan.sigma_step


def form_next(now: Now, found: Population, plan: Plan) -> None:
    """Form the next population, and count this one. Algorithm 1, line 27."""
    esac, state = now.params.config.esac, now.state
    state.expected_length = expected_slots(esac, state, found, plan)
    state.parents = new_population(esac, born=min(plan.winners.size, len(state.children)))
    population.count(now, esac, found)


def expected_slots(
    esac: configuration.ESAC, state: State, found: Population, plan: Plan
) -> np.ndarray:
    """Guess the next population's episode lengths by slot [steps], for scheduling, by parents'."""
    parents = state.parents
    length = found.length.reshape(parents.size, -1).mean(axis=1)  # [slots]
    means = {
        kind: length[parents == kind].mean()
        for kind in (CENTRE, SAC_COPY)
        if (parents == kind).any()
    }
    expected = np.full(parents.size, means.get(CENTRE, length.mean()))
    children = len(state.children)
    born = plan.winners[:children]
    expected[: born.size] = found.length[born]
    copies = slice(children, children + esac.sac_copies)
    expected[copies] = means.get(SAC_COPY, length.mean())
    return expected


def describe(now: Now, found: Population, plan: Plan, moved: Row) -> Row:
    """Describe the population, as it was evaluated, in a row's columns."""
    esac, state = now.params.config.esac, now.state
    parent = esac_transfer.spread(state.parents, found.fitness.size)
    won, missing = parent[plan.winners], configuration.winners(esac) - plan.winners.size
    return {
        "fitness": found.returns,
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
        "adopted": int(plan.verdict.transfers),
        "tuning_multiplier": state.tuning_multiplier,
        "log_tuning_multiplier_unclipped": state.log_multiplier_unclipped,
        **moved,
    }
