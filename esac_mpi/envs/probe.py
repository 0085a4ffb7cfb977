"""A task's first steps: the same on every node, and the same again after other episodes?

An episode must be a function of its seed and its actions. One stretch of steps is played, another,
and the first again.
"""

import math
import struct
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from esac_mpi.envs import Env, TaskError, UnstablePhysics, translate_errors
from esac_mpi.host import process_state
from esac_mpi.operators.noise import Purpose, generator, integer

# which start states and actions, and how many steps; the last is the first again
STRETCHES = ((0, 40), (1, 20), (0, 40))
PROBE_STEPS = sum(steps for _, steps in STRETCHES)
KINDS = ("observations", "rewards", "ends")


class Probe(NamedTuple):
    """What came of it."""

    digests: str  # `kind digest, kind digest, ...` of KINDS in the first two stretches
    apart: str = ""  # what to do about a first stretch that was not the same again; empty = it was
    not_finite: str = ""  # what to say of a number that was not finite; empty = all were


def probe(env: Env) -> Probe:
    """Play the stretches: PROBE_STEPS steps, counted as `probe_steps` alone. Raises TaskError.

    What its episodes change of the process is put back; what is to be as it is all the time, they
    must not change each time.
    """
    env.not_finite = ""
    try:
        with translate_errors(env.id, "played"):
            return _probe(env)
    finally:
        env.not_finite = ""


def _probe(env: Env) -> Probe:
    with suppress(UnstablePhysics), process_state.preserve_state():  # of one start state
        env.reset(integer(0, Purpose.PROBE))
    found, changes = list[dict[str, tuple[bytes, ...]]](), set[str]()
    for stretch in STRETCHES:
        with process_state.preserve_state() as changed:
            found.append(dict(zip(KINDS, zip(*_answers(env, *stretch), strict=True), strict=True)))
        changes = process_state.NEEDED & {*changed}
    if changes:
        raise TaskError(
            f"{env.id}: its episodes change what a run needs as it is, "
            f"{', '.join(sorted(changes))}; change that when the task is made, or put it back "
            "before reset and step return (docs/reference/tasks.md)"
        )
    first, other, again = found
    _refuse_not_finite(env, first["rewards"] + other["rewards"])
    digests = [
        f"{kind} {sha256(b''.join(first[kind] + other[kind])).hexdigest()[:16]}" for kind in KINDS
    ]
    apart = not_finite = ""
    if differ := sorted(kind for kind in KINDS if first[kind] != again[kind]):
        apart = (
            "an episode played again after others was not the same: "
            f"{env.id} ({', '.join(differ)}) keeps something from one episode to the next, or "
            "draws from another source than its seed. Results depend on the number of ranks and on "
            "restarts: docs/reference/tasks.md"
        )
    if env.not_finite:
        such = "such an episode is unstable and ranks last"
        not_finite = f"{env.id}: {env.not_finite} in its first steps; {such}"
    return Probe(", ".join(digests), apart, not_finite)


def _refuse_not_finite(env: Env, rewards: tuple[bytes, ...]) -> None:
    """Raise TaskError where no reward or no observation is finite."""
    found = [struct.unpack("<d", packed)[0] for packed in rewards if packed]
    if not found and env.not_finite:
        raise TaskError(f"{env.id}: no observation of its first steps is finite: {env.not_finite}.")
    if found and not any(map(math.isfinite, found)):
        raise TaskError(f"{env.id}: the reward of every one of its first steps is {found[0]}.")


def _answers(env: Env, which: int, steps: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield the answer to each reset and step of a stretch, as bytes in the order of KINDS."""
    random, ended = generator(0, Purpose.PROBE, member=which), True
    for number in range(steps):
        action = random.uniform(env.low, env.high).astype(np.float32)
        try:
            if ended:
                seed = integer(0, Purpose.PROBE, member=which, block=1 + number)
                yield env.reset(seed).tobytes(), b"", b""
            observation, reward, terminated, truncated = env.step(action)
            ended = terminated or truncated
            yield observation.tobytes(), struct.pack("<d", reward), bytes([terminated, truncated])
        except UnstablePhysics:
            ended = True
            yield b"", b"", b"unstable"
