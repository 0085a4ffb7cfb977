"""A task's first steps: the same on every node, and the same again after other episodes?

An episode must be a function of its seed and its actions. One stretch of steps is played, another,
and the first again.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import numpy as np

from esac_mpi.envs import Env, LeftPython, TaskError, UnstablePhysics, broken
from esac_mpi.host import process_state
from esac_mpi.host.stop import GivenUp
from esac_mpi.operators.noise import Purpose, generator, integer

# which start states and actions, and how many steps; the last is the first again
STRETCHES = ((0, 40), (1, 20), (0, 40))
PROBE_STEPS = sum(steps for _, steps in STRETCHES)
KINDS = ("observations", "rewards", "ends")


class Played(Protocol):
    """What is played: an Env, or a layer of one."""

    id: str
    low: np.ndarray
    high: np.ndarray

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode."""
        ...

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """Take an action."""
        ...


class Probe(NamedTuple):
    """What came of it."""

    digests: str  # `kind digest, kind digest, ...` of KINDS in the first two stretches
    apart: frozenset[str]  # of KINDS: what was not the same when the first stretch was played again
    not_finite: str = ""  # what to say of an observation that was not finite; empty = all were


def played(env: Env) -> Probe:
    """Play a task's stretches, see `probe`. Raises TaskError where that cannot be done."""
    env.not_finite = ""
    try:
        with suppress(UnstablePhysics), process_state.kept():  # of one start state
            size = env.reset(integer(0, Purpose.PROBE)).size
            if size != env.observation_size:
                raise TaskError(
                    f"{env.id} observes {size} numbers, and its observation_space has "
                    f"{env.observation_size}."
                )
        return probe(env)
    except TaskError:
        raise
    except LeftPython as error:
        raise TaskError(str(error)) from error
    except (KeyboardInterrupt, GivenUp):
        raise
    except BaseException as error:  # a task is a user's own code
        raise broken(env.id, "played", error) from error
    finally:
        env.not_finite = ""


def probe(env: Played) -> Probe:
    """Play the stretches: PROBE_STEPS steps, counted as `probe_steps` alone. Raises TaskError.

    What its episodes change of the process is put back; what is to be as it is all the time, they
    must not change each time.
    """
    found, changes = list[dict[str, tuple[bytes, ...]]](), set[str]()
    for stretch in STRETCHES:
        with process_state.kept() as changed:
            found.append(dict(zip(KINDS, zip(*_answers(env, *stretch), strict=True), strict=True)))
        changes = process_state.NEEDED & {*changed}
    if changes:
        remedy = (
            "change that when the task is made, or put it back before reset and step return "
            "(docs/tasks.md)"
        )
        raise TaskError(
            f"{env.id}: its episodes change what a run needs as it is, "
            f"{', '.join(sorted(changes))}; {remedy}"
        )
    first, other, again = found
    not_finite = getattr(env, "not_finite", "")  # a layer does not tell
    refuse_not_finite(env, first["rewards"] + other["rewards"], not_finite)
    digests = [
        f"{kind} {sha256(b''.join(first[kind] + other[kind])).hexdigest()[:16]}" for kind in KINDS
    ]
    told = (
        f"{env.id}: {not_finite} in its first steps; such an episode ends there, is unstable "
        "and ranks last"
    )
    apart = frozenset(kind for kind in KINDS if first[kind] != again[kind])
    return Probe(", ".join(digests), apart, told if not_finite else "")


def refuse_not_finite(env: Played, rewards: tuple[bytes, ...], not_finite: str) -> None:
    """Raise TaskError where no reward or no observation is finite; not_finite: one that is not."""
    found = [struct.unpack("<d", packed)[0] for packed in rewards if packed]
    if not found and not_finite:
        raise TaskError(f"{env.id}: no observation of its first steps is finite: {not_finite}.")
    if found and not any(map(math.isfinite, found)):
        raise TaskError(f"{env.id}: the reward of every one of its first steps is {found[0]}.")


def _answers(env: Played, which: int, steps: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield the answer to each reset and step of a stretch, as bytes in the order of KINDS."""
    random, ended = generator(0, Purpose.PROBE, member=which), True
    for number in range(steps):
        action = random.uniform(env.low, env.high).astype(np.float32)
        try:
            if ended:
                yield (
                    env.reset(integer(0, Purpose.PROBE, member=which, block=1 + number)).tobytes(),
                    b"",
                    b"",
                )
            observation, reward, terminated, truncated = env.step(action)
            ended = terminated or truncated
            yield observation.tobytes(), struct.pack("<d", reward), bytes([terminated, truncated])
        except UnstablePhysics:
            ended = True
            yield b"", b"", b"unstable"


def complaint(env: Env, apart: frozenset[str]) -> tuple[str, int]:
    """Say of a task that was not the same again what keeps something; and the steps this took."""
    playable = [
        layer for layer in reversed(getattr(env, "layers", [])) if hasattr(layer, "action_space")
    ]  # not dm_control's
    layers = [Layer(layer) for layer in playable]
    found = culprits(layers) or [f"{env.id} ({', '.join(sorted(apart))})"]
    return (
        f"an episode played again after others was not the same: {', '.join(found)} keeps "
        "something from one episode to the next, or draws from another source than its seed. "
        "Results depend on the number of ranks and on restarts: docs/tasks.md"
    ), sum(layer.steps for layer in layers)


def culprits(layers: Sequence["Layer"]) -> list[str]:
    """List the layers that answer otherwise again where those inside them do not; and in what."""
    inside: set[str] = set()
    found = []
    for layer in layers:
        try:
            apart = probe(layer).apart
        except Exception:  # a user's code, without its wrappers
            continue
        if apart - inside:
            found.append(f"{layer.id} ({', '.join(sorted(apart - inside))})")
        inside |= apart
    return found


class Layer:
    """A layer of a Gymnasium environment with all inside it, played by its own actions."""

    low = high = np.zeros(0, np.float32)

    def __init__(self, env: Any) -> None:
        from gymnasium.spaces import flatten

        self.id, self.steps = type(env).__name__, 0
        self._env, self._actions = env, deepcopy(env.action_space)
        self._flat = lambda observation: np.asarray(flatten(env.observation_space, observation))

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode, and the actions that follow."""
        self._actions.seed(seed)
        return self._flat(self._env.reset(seed=seed)[0])

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """Take an action of its own."""
        self.steps += 1
        observation, reward, terminated, truncated, _ = self._env.step(self._actions.sample())
        return self._flat(observation), float(reward), bool(terminated), bool(truncated)
