"""What every learner's phase is: episodes played into the replay, and the updates due for their steps, a part at a time.

The learner gives the two things that differ: how it acts, and how it makes updates.
"""

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from esac_mpi.config import exact
from esac_mpi.envs import Env, UnstablePhysics, transition
from esac_mpi.learners.replay import Replay
from esac_mpi.operators.kernels import count_in
from esac_mpi.operators.noise import Purpose, generator, integer
from esac_mpi.operators.policy import Layer, Normaliser
from esac_mpi.play.learner_phases import Phase, Steps


class Streams(NamedTuple):
    """The random numbers of a phase."""

    exploration: np.random.Generator
    sampling: np.random.Generator
    update: np.random.Generator  # whatever noise an update has


class Learner(Protocol):
    """What a phase needs of a learner."""

    seed: int
    env_steps: int  # training steps ever
    replay: Replay
    actor: Any  # a Network
    update: Any
    options: Any  # interleaved: whether updates follow every step
    normaliser: Normaliser | None  # by which the phase sees observations
    # sums over the observations that the phase acts on, [3, o], where they are asked for
    seen: np.ndarray | None


# (actor, observation, random) -> action
Act = Callable[[list[Layer], np.ndarray, np.random.Generator], np.ndarray]
# updates due for the training steps after the given one
Learn = Callable[[int, Streams], Generator[int, None, int]]


def begin(
    learner: Learner, act: Act, learn: Learn, env: Env, k: int, episodes: int, steps: int, cut: bool
) -> Steps:
    """Play at least `episodes` whole episodes and `steps` steps, and learn from them.

    With `cut`, play exactly `steps` steps; the episode in progress at their end is no complete one. Yields after each
    step and each part of an update, whether it was one of an update; returns the phase. It is a function of the learner at its
    start and of the address (seed, k), whatever is done between its parts.
    """
    random, first, updates = streams(learner.seed, k), learner.env_steps, 0
    returns: list[float] = []
    lengths: list[int] = []  # of those that are finite
    learner.update.start(learner.normaliser)
    for _ in _play(
        learner, act, env, k, random.exploration, episodes, steps, cut, returns, lengths
    ):
        yield False
        if learner.options.interleaved:
            updates += yield from learn(learner.env_steps - 1, random)
    if not learner.options.interleaved:
        updates = yield from learn(first, random)
    length, means = float(np.mean(lengths)) if lengths else math.nan, learner.update.means(updates)
    phase = Phase.summed_up(learner.env_steps - first, returns, updates, **means)
    return replace(phase, episodic_length=length)


def take(
    learner: Learner, learn: Learn, played: Sequence[tuple[np.ndarray, float, int]], k: int
) -> Steps:
    """Take over episodes that others played, and learn from them, as `begin` does from its own.

    played: of each episode its transitions as rows [n, width], its return (nan: unstable) and its steps.
    """
    random, first = streams(learner.seed, k), learner.env_steps
    learner.update.start(learner.normaliser)
    for rows, _, steps in played:
        learner.replay.add_rows(rows)
        if learner.seen is not None:
            for observation in rows[:, learner.replay.columns.observation]:
                count_in(learner.seen, observation)
        learner.env_steps += steps
    updates = yield from learn(first, random)
    returns = [episodic_return for _, episodic_return, _ in played]
    return Phase.summed_up(
        learner.env_steps - first, returns, updates, **learner.update.means(updates)
    )


def streams(seed: int, k: int) -> Streams:
    """Return the random numbers of a phase."""
    return Streams(*(generator(seed, Purpose.LEARNER, k, member) for member in range(3)))


def sight(sums: np.ndarray | None) -> tuple[Normaliser | None, np.ndarray | None]:
    """Return by what a phase sees observations, and zeros [3, o] to sum those that it acts on; None for both where sums are None.

    sums: over the observations before it, float64 [3, o].
    """
    return (None, None) if sums is None else (Normaliser.of(sums), np.zeros_like(sums))


def started(
    env: Env, seed: int, k: int, returns: list[float], limit: int
) -> tuple[int, np.ndarray] | None:
    """Start the next episode of phase k; return its seed and its first observation, None where the task cannot start there.

    Such an episode's return, nan, is appended to `returns`, those of the phase's episodes so far. Raises UnstablePhysics if they
    are more than `limit` with it: no start state can be made.
    """
    address = integer(seed, Purpose.LEARNER_EPISODE, k, block=len(returns))
    try:
        return address, env.reset(address)
    except UnstablePhysics:
        returns.append(math.nan)
        if len(returns) > limit:
            raise
        return None


def due(rate: float, since: int, now: int) -> int:
    """Return how many updates the training steps after `since` call for; no fraction is lost between phases."""
    return round(exact(rate) * now) - round(exact(rate) * since)


def _play(
    learner: Learner, act: Act, env: Env, k: int, random: np.random.Generator,
    episodes: int, steps: int, cut: bool, returns: list[float], lengths: list[int],
) -> Iterator[None]:  # fmt: skip
    """Play the episodes of a phase into the replay; yield after each step, append each episode's return (nan: unstable).

    lengths: get the steps of those whose return is finite.
    """
    stop = learner.env_steps + steps
    actor = learner.actor.numpy()
    while learner.env_steps < stop or (len(returns) < episodes and not cut):
        start = started(env, learner.seed, k, returns, limit=stop)
        if start is None:
            continue
        (_, observation), total, ended, began = start, 0.0, False, learner.env_steps
        while not ended and not (cut and learner.env_steps == stop):
            action = act(actor, observation, random)
            learner.env_steps += 1
            if learner.seen is not None:
                count_in(learner.seen, observation)
            answer = transition(env, action)
            if answer is None:
                total, ended = math.nan, True
            else:
                next_observation, reward, terminated, truncated = answer
                learner.replay.add(observation, action, reward, next_observation, terminated)
                total += reward
                ended = terminated or truncated
                observation = next_observation
            yield
            if learner.options.interleaved:
                actor = learner.actor.numpy()
        if ended:
            returns.append(total)
            lengths += [learner.env_steps - began] * math.isfinite(total)
