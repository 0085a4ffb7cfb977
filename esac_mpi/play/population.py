"""A population: members and their addresses, their evaluation, and what it gave, by name."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from esac_mpi import config as configuration
from esac_mpi.comm import schedule
from esac_mpi.comm.contracts import Memory
from esac_mpi.config import Evolution
from esac_mpi.envs import Env
from esac_mpi.envs.survival import survival_bonus
from esac_mpi.operators import accumulator, evolution, noise
from esac_mpi.operators.kernels import count_in
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.policy import Policy
from esac_mpi.play import rollout
from esac_mpi.play.counters import Standardising
from esac_mpi.play.marks import ADAM, SCRATCH, TUNING, mark, policy
from esac_mpi.play.params import THETA_ES, Generation, Params, Row, make_policy
from esac_mpi.play.rollout import Board, play

LENGTH_RATE = 0.1  # weight of a generation in the running mean of episode lengths
TINY = 1e-9  # by which a product of floats may lie above the whole number that it is


@dataclass(kw_only=True)
class Evolving(Standardising):
    """What ES and ESAC have of theta_es and of the population around it."""

    theta_es: np.ndarray = field(metadata=policy("theta_es"))  # float32 [d]
    adam_m: np.ndarray = field(metadata=mark(shared=True, part=ADAM))  # float32 [d]
    adam_v: np.ndarray = field(metadata=mark(shared=True, part=ADAM))  # float32 [d]
    # float32 [chunks of slots, sums, d], of line 11; none where there is one chunk
    partial_sums: np.ndarray = field(metadata=SCRATCH)
    sigma: float = field(metadata=mark(later=True, part=TUNING))  # of the next generation
    # float64 [3, observation] of the population's, by which its noise is scaled
    noise_sums: np.ndarray = field(metadata=mark(later=True))
    mean_length: float = 0.0  # running mean of the population's episodes [steps]
    # generation after which the moments began
    adam_from: int = field(default=0, metadata=mark(part=ADAM, generation=True))

    def parent(self, slot: int) -> np.ndarray:
        """Find the parent of a slot, float32 [d]."""
        return self.theta_es


@dataclass(frozen=True)
class Population:
    """What the evaluation of a population gave."""

    returns: np.ndarray  # float64 [n] episodic returns, nan where unstable
    fitness: np.ndarray  # float64 [n] what selection compares: these, less reward_shift a step
    # float64 [n] sums of the rewards' signs; zeros where nothing asks for them
    sign_return: np.ndarray
    length: np.ndarray  # int64 [n] of all episodes of each [steps]
    # float64 [3, observation]: count, sum, sum of squares; zeros where nothing asks for them
    observation_sums: np.ndarray
    unstable: int  # episodes whose return is not finite, trials among them
    cap: int  # at which episodes were truncated [steps]; 0 = none
    trials: np.ndarray  # float64 [policies, episodes] returns of the trials played beside it
    trial_seconds: np.ndarray  # float64 [policies * episodes]
    trial_steps: int
    # busy_seconds [ranks], member_seconds and member_expected [n], seconds_noise and seconds_wait
    timing: Row


@dataclass(frozen=True)
class Trials:
    """Episodes of unperturbed policies, from equal start states, played beside a population."""

    policies: Sequence[np.ndarray] = ()  # float32 [d] each
    episodes: int = 0  # of each policy

    @property
    def count(self) -> int:
        """Episodes in all."""
        return len(self.policies) * self.episodes


NO_TRIALS = Trials()


def row_type(params: Params, table: Evolution) -> np.dtype[np.void]:
    """Name the numbers of a member's row of the board, all float64."""
    signs = int(table.fitness_shaping in ("sign", "sign_ranks"))
    travels = table.counts_observations and not sums_exactly(table)
    sums = (3, params.layout.sizes[0]) if travels else (0,)
    return np.dtype(
        [
            ("episodic_return", "f8"),
            ("length", "f8"),
            ("unstable", "f8"),
            ("seconds_noise", "f8"),  # to make its parameters [s]
            ("seconds", "f8"),  # of its episodes [s]
            ("sign_return", "f8", (signs,)),  # where the shaping asks for it
            ("observation_sums", "f8", sums),
        ]
    )


def sums_exactly(table: Evolution) -> bool:
    """Tell whether ranks add their members' sums over observations exactly, and send the total."""
    return table.counts_observations and configuration.members(table) > accumulator.ROWS


def board(params: Params, table: Evolution, trials: int = 0) -> Board:
    """Shape the results of a population's members and of trial episodes: a row for each."""
    rows = configuration.members(table) + trials
    return Board(rows, row_type(params, table).itemsize // 8)


def evaluate_population(
    now: Generation[Evolving, object],
    table: Evolution,
    sigmas: np.ndarray,
    expected: np.ndarray | None = None,
    trials: Trials = NO_TRIALS,
) -> Population:
    """Evaluate parent(slot) + sign * sigmas[slot] * eps for every member. Algorithm 1, lines 5-8.

    expected: how long the members may take [n], for scheduling alone.
    """
    params, world, k = now.params, now.world, now.k
    policy = make_policy(params, now.env, now.state.normaliser(params.config))
    cap = length_cap(table, now.state.mean_length)
    kind = row_type(params, table)
    shape = board(params, table, trials.count)
    n, observation = configuration.members(table), params.layout.sizes[0]
    # of this rank's members
    digits = accumulator.digits(np.zeros((3, observation) if sums_exactly(table) else 0))

    def work(i: int) -> np.ndarray:
        start, row = world.clock(), np.zeros(1, kind)
        if i < n:
            slot, sign = member(table, i)
            parent = now.state.parent(slot)
            perturb(params, policy, k, slot, parent, sign, sigmas[slot], now.scale)
        made = world.clock()
        what = f"member {i}" if i < n else f"trial episode {(i - n) % trials.episodes}"
        with rollout.note_origin(f"in generation {k}, {what} (seed {params.config.seed})"):
            if i >= n:
                play_trial(now, trials, i - n, policy, row[0])
            elif digits.size:
                sums = np.zeros((3, observation))
                play_member(now, table, i, policy, cap, row[0], sums)
                np.add(digits, accumulator.digits(sums), out=digits)
            else:
                play_member(now, table, i, policy, cap, row[0], row[0]["observation_sums"])
        row["seconds_noise"], row["seconds"] = made - start, world.clock() - made
        return row.view(np.float64)

    waited = world.waited
    expected = np.ones(n) if expected is None else expected
    lengths = schedule.with_trials(expected, table.fitness_episodes, trials.count)
    everything, busy = world.map(work, shape.rows, shape.columns, lengths)
    results, tried = np.split(everything.view(kind)[:, 0].copy(), [n])
    returns, length = results["episodic_return"], results["length"].astype(np.int64)
    fitness = evolution.shifted(returns, length / table.fitness_episodes, table.shift)
    rollout.refuse_no_return(k, fitness, lower="sigma")
    seen = params.unseen()
    if digits.size:
        seen = accumulator.value(world.total(digits))
    elif table.counts_observations:  # in member order
        seen = np.add.reduce(results["observation_sums"], axis=0, initial=0.0)
    timing = {
        "busy_seconds": busy,
        "member_seconds": results["seconds"],
        "member_expected": expected,
        "seconds_noise": results["seconds_noise"].sum(),
        "seconds_wait": world.waited - waited,
    }
    return Population(
        returns=returns,
        fitness=fitness,
        sign_return=results["sign_return"].sum(axis=1),
        length=length,
        observation_sums=seen,
        unstable=int(results["unstable"].sum() + tried["unstable"].sum()),
        cap=cap,
        trials=tried["episodic_return"].reshape(len(trials.policies), trials.episodes),
        trial_seconds=tried["seconds"],
        trial_steps=int(tried["length"].sum()),
        timing=timing,
    )


def initial(params: Params, table: Evolution, world: Memory, rows: int) -> dict[str, Any]:
    """Make what ES and ESAC have before the first generation. Raises MemoryError.

    rows: sums that line 11 makes of each chunk of slots.
    """
    theta = params.initial(THETA_ES)
    chunks = len(noise.chunks(theta.size, configuration.slots(table)))
    return {
        "theta_es": world.share(theta),
        "adam_m": world.share(np.zeros_like(theta)),
        "adam_v": world.share(np.zeros_like(theta)),
        "partial_sums": world.shared((chunks if chunks > 1 else 0, rows, theta.size)),
        "observation_sums": params.unseen(),
        "noise_sums": params.unseen(),
        "sigma": table.sigma,
    }


def sum_chunks(
    sums: np.ndarray, slots: int, add: Callable[[int, slice, range], np.ndarray], world: Memory
) -> Callable[[int, slice], np.ndarray]:
    """Return a function (block, its slice) -> sums over all slots, float32 [rows, block size].

    add: (block, its slice, slots) -> sums over these slots. Where `sums` has room for several
    chunks, the ranks of the node share them now; they are added in their order.
    """
    d = sums.shape[-1]
    chunks, blocks = noise.chunks(d, slots), list(noise.blocks(d))
    if len(chunks) == 1:
        return lambda block, part: add(block, part, chunks[0])

    def work(piece: int) -> np.ndarray:
        chunk, block = divmod(piece, len(blocks))
        part = blocks[block][1]
        sums[chunk, :, part] = add(block, part, chunks[chunk])
        return np.zeros(1)

    world.over_blocks(work, len(chunks) * len(blocks), 1)

    def added(block: int, part: slice) -> np.ndarray:
        total = sums[0, :, part].copy()
        for partial_sum in sums[1:, :, part]:
            total += partial_sum
        return total

    return added


def perturb(
    params: Params,
    policy: Policy,
    k: int,
    slot: int,
    parent: np.ndarray,
    sign: int,
    sigma: float,
    scale: np.ndarray | None = None,
) -> None:
    """Give a policy a member's theta, parent [d] + sign * sigma * eps. Algorithm 1, lines 6-7.

    scale: of eps, float32 [d]; None: 1.
    """
    for block, part in noise.blocks(params.layout.d):
        eps = params.epsilon.block(k, slot, block, part)
        eps = eps if scale is None else eps * scale[part]
        policy.theta[part] = evolution.mutated(parent[part], eps, sign, sigma)
    policy.refresh()


def noise_scale(params: Params, table: Evolution, sums: np.ndarray, k: int) -> np.ndarray | None:
    """Compute the scale of generation k's noise, float32 [d], by sums over observations; None: 1.

    By 1 / sqrt(1 + mean square); by 0 in the first generation, of which nothing is known.
    """
    count, _, squares = sums
    if not table.scales_noise or (k > 1 and not count.any()):  # as in a run of an older version
        return None
    factors = 1 / np.sqrt(1 + squares / count) if count.all() else np.zeros_like(count)
    return params.layout.input_scale(factors.astype(np.float32))


def play_member(
    now: Generation[Evolving, object],
    table: Evolution,
    i: int,
    policy: Policy,
    cap: int,
    row: Any,
    sums: np.ndarray,
) -> None:
    """Play member i's episodes; add them to its row of the board. Algorithm 1, line 7.

    sums: float64 [3, observation], to which those over its observations are added; or empty.
    """
    watch = partial(count_in, sums) if sums.size else None
    for number in range(table.fitness_episodes):
        seed, disturb = begin_episode(now, table, i, number, policy)
        add_episode(row, play(now.env, policy, seed, watch, cap, disturb, table.shift))
    row["episodic_return"] /= table.fitness_episodes
    row["sign_return"] /= table.fitness_episodes


def play_trial(
    now: Generation[Evolving, object], trials: Trials, i: int, policy: Policy, row: Any
) -> None:
    """Play trial episode i; add it to its row of the board."""
    which, number = divmod(i, trials.episodes)
    # every policy on trial begins from the same start state
    seed = noise.integer(now.params.config.seed, Purpose.TRIAL, now.k, block=number)
    add_episode(row, play(now.env, policy.set(trials.policies[which]), seed))


def add_episode(row: Any, episode: rollout.Episode) -> None:
    """Add an episode to a row of the board."""
    row["episodic_return"] += episode.episodic_return
    row["sign_return"] += episode.sign_return
    row["length"] += episode.episodic_length
    row["unstable"] += not np.isfinite(episode.episodic_return)


def length_cap(table: Evolution, mean: float) -> int:
    """Find where episodes are truncated, given their running mean length; 0 = nowhere [steps]."""
    return math.ceil(table.length_cap * mean - TINY)


def begin_episode(
    now: Generation[Evolving, object], table: Evolution, i: int, number: int, policy: Policy
) -> tuple[int, Callable[[np.ndarray], None] | None]:
    """Return the seed of an episode of member i, and what adds noise to its actions, if anything.

    Their address has the member's slot, or the member itself.
    """
    seed, k = now.params.config.seed, now.k
    who = member(table, i)[0] if table.start_states == "pair" else i
    start = noise.integer(seed, Purpose.EPISODE, k, who, number)
    if not table.action_noise:
        return start, None
    random = noise.generator(seed, Purpose.ACTION, k, who, number)
    return start, rollout.action_noise(policy, table.action_noise, random)


def member(table: Evolution, i: int) -> tuple[int, int]:
    """Map member i to (slot, sign): 2j and 2j+1 pair in slot j; one-sided, a member is a slot."""
    return (i, 1) if table.sampling == "onesided" else (i // 2, 1 - 2 * (i % 2))


def earns(env: Env, table: Evolution, found: Population) -> np.ndarray:
    """Tell which members have more than the bonus for survival that is in their fitness, bool [n].

    Where the shift takes all of it out, or none is known, all have.
    """
    inside = survival_bonus(env)[0] - table.shift
    return (found.fitness > inside * found.length / table.fitness_episodes) | (inside <= 0)


def count(now: Generation[Evolving, object], table: Evolution, found: Population) -> None:
    """Count a population as a generation made; nominally, the papers' way, it is one horizon."""
    state, counters = now.state, now.state.counters
    length, mean = float(found.length.mean()) / table.fitness_episodes, state.mean_length
    state.mean_length = mean + LENGTH_RATE * (length - mean) if mean else length
    if now.scale is not None:
        state.noise_sums = state.noise_sums + found.observation_sums
    state.generation = now.k
    counters.env_steps_population += int(found.length.sum()) + found.trial_steps
    counters.unstable_episodes += found.unstable
    counters.nominal_steps += now.params.horizon
