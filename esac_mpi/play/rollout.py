"""Episodes: a policy in, returns and lengths out."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from esac_mpi.envs import LARGEST, Env, UnstablePhysics, check_finite, transition
from esac_mpi.host import cooperative
from esac_mpi.host.stop import EndsRun
from esac_mpi.operators.policy import Policy
from esac_mpi.play.transitions import Recorder, join, width

SLICE = 64  # steps of an episode between two turns of other work, at most


class Board(NamedTuple):
    """The shape of what ranks put together: a row per piece of work, its bulk for rank 0's node."""

    rows: int
    columns: int
    bulk: int = 0  # of the columns, at their end


class NoFiniteReturn(Exception):
    """No member of a population has a finite return: there is nothing to learn from."""


def refuse_no_return(k: int, fitness: np.ndarray, who: str = "member", lower: str = "") -> None:
    """Raise NoFiniteReturn, on all ranks, unless a fitness [n] is finite; lower: what may help."""
    if not np.isfinite(fitness).any():
        remedy = f", or begin another run with a lower {lower}" if lower else ""
        raise NoFiniteReturn(
            f"generation {k}: the return of no {who} is finite: "
            f"correct the task, if its rewards are nan or infinite{remedy}"
        )


class ReturnDiffers(EndsRun):
    """An episode played again gives another return: two machines, or moments, compute otherwise."""


class ThetaNotFinite(Exception):
    """The policy that evolves is no longer finite: it has nothing more to give."""


def refuse_not_finite(k: int, what: str, lower: str, *sums: float) -> None:
    """Raise ThetaNotFinite, on all ranks, unless these sums over what evolves are finite."""
    if not np.isfinite(sums).all():
        raise ThetaNotFinite(
            f"generation {k}: {what} is no longer finite, the last checkpoint stands: "
            f"begin another run with a lower {lower}"
        )


@dataclass(frozen=True)
class Episode:
    """One episode; its return is nan for unstable physics or a reward not finite in float32."""

    episodic_return: float
    episodic_length: int
    sign_return: float = 0.0  # sum of its rewards' signs; nan where the return is


@contextmanager
def note_origin(where: str) -> Iterator[None]:
    """Note on an exception where it was raised."""
    try:
        yield
    except Exception as error:
        error.add_note(where)
        raise


def playing(
    env: Env,
    policy: Policy,
    seed: int,
    watch: Callable[[np.ndarray], None] | None = None,
    cap: int = 0,
    disturb: Callable[[np.ndarray], None] | None = None,
    shift: float = 0.0,
) -> Generator[bool, None, Episode]:
    """Play one episode of the start state that `seed` addresses; yield after SLICE steps.

    `watch` sees each observation. cap > 0 truncates the episode there [steps]. `disturb` changes
    each action in place first. `shift` is taken from each reward before its sign is. A task with a
    closed loop takes SLICE steps at once, unless its actions are disturbed.
    """
    total, length, signs = 0.0, 0, 0
    turn = cooperative.Turn(SLICE)
    alone = disturb is None and isinstance(policy, Policy)
    loop: Any = getattr(env, "closed_loop", None) if alone else None
    end = min(cap or env.horizon, env.horizon)
    terminated = truncated = False
    try:
        observation = env.reset(seed)
        while not (terminated or truncated):
            if loop is None:
                if watch is not None:
                    watch(observation)
                action = policy(observation)
                if disturb is not None:
                    disturb(action)
                length += 1
                observation, reward, terminated, truncated = env.step(action)
                rewards = [reward]
            else:
                run = loop.run(policy.drive, observation, min(SLICE, end - length))
                rewards = run.rewards
                terminated = run.terminated
                if watch is not None:
                    for row in run.observations[: len(rewards)]:
                        watch(row)
                length += len(rewards)
                observation = check_finite(env, "observation", run.observations[-1])
            for reward in rewards:
                total += reward if abs(reward) <= LARGEST else np.nan
                signs += 1 if reward > shift else -1 if reward < shift else 0
            truncated = truncated or length == end
            if loop is not None or turn.over():
                yield False
                turn.begin()
    except UnstablePhysics:
        total = np.nan
    if env.unstable or not isfinite(total):
        return Episode(np.nan, length, np.nan)
    return Episode(total, length, signs)


play = cooperative.at_once(playing)


def action_noise(
    policy: Policy, std: float, random: np.random.Generator
) -> Callable[[np.ndarray], None]:
    """Make what adds Gaussian noise of `std` half ranges in place and clips to the bounds."""
    scale = (policy.high - policy.low) / 2 * np.float32(std)

    def disturb(action: np.ndarray) -> None:
        action += scale * random.standard_normal(action.size, dtype=np.float32)
        np.clip(action, policy.low, policy.high, out=action)

    return disturb


def exploring(
    env: Env, act: Callable[[np.ndarray], np.ndarray], seed: int, bounded: bool = True
) -> Generator[int, None, tuple[np.ndarray, Episode]]:
    """Play one episode by actions `act(observation)` in [-1, 1]; return transitions and Episode.

    Yields the steps so far after each SLICE of them. Transitions are rows, float32 [n, width]. A
    step that cannot be learned from is counted, ends the episode and is not among them. bounded: as
    of `envs.transition`. A policy takes SLICE steps at once where the task has a closed loop and
    these bounds, to the same bits.
    """
    turn = cooperative.Turn(SLICE)
    rows = [np.zeros((0, width(env.observation_size, env.action_size)), np.float32)]
    total, length, ended = 0.0, 0, False
    drive: Any = driver(env, act)
    recorder = None if drive is None else Recorder(env, SLICE)
    try:
        observation = env.reset(seed)
    except UnstablePhysics:
        return rows[0], Episode(np.nan, 0)
    while not ended:
        if recorder is not None:
            recorder.count = 0
            run = recorder.run(drive, observation, min(SLICE, env.horizon - length))
            sound = (abs(reward) <= LARGEST for reward in run.rewards[: recorder.count])
            kept = sum(takewhile(bool, sound))
            rows.append(recorder.rows[:kept].copy())
            length += min(kept + 1, len(run.rewards))
            if kept < len(run.rewards):
                with suppress(UnstablePhysics):  # which number it was
                    check_finite(env, "observation", run.observations[-1])
                return np.vstack(rows), Episode(np.nan, length)
            for reward in run.rewards:
                total += reward
            observation, ended = run.observations[-1], run.terminated or length == env.horizon
        else:
            action = act(observation)
            length += 1
            answer = transition(env, action, bounded)
            if answer is None:
                return np.vstack(rows), Episode(np.nan, length)
            next_observation, reward, terminated, truncated = answer
            rows.append(join(observation, action, reward, terminated, next_observation)[None])
            total, ended, observation = total + reward, terminated or truncated, next_observation
        if recorder is not None or turn.over():
            yield length
            turn.begin()
    return np.vstack(rows), Episode(total, length)


def driver(env: Env, act: Callable[[np.ndarray], np.ndarray]) -> Callable[..., None] | None:
    """Find what acts in the closed loop of a task with bounds of -1 and 1; None: it goes by steps.

    In other bounds an action, scaled and recorded, would not be to the bit what it was.
    """
    if not isinstance(act, Policy) or getattr(env, "closed_loop", None) is None:
        return None
    plain = all((end.low == -1).all() and (end.high == 1).all() for end in (env, act))
    return act.drive if plain else None


explore = cooperative.at_once(exploring)


def evaluation_board(policies: int, episodes: int) -> Board:
    """Shape the board of an evaluation: return, steps and seconds of each episode."""
    return Board(policies * episodes, 3)


def mean_return(returns: np.ndarray) -> float:
    """Return the mean of an evaluation's returns [episodes]; -inf if one of them is not finite."""
    return float(returns.mean()) if np.isfinite(returns).all() else -np.inf
