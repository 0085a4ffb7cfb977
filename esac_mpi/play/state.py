"""A state as arrays: what a checkpoint holds, and how every rank gets rank 0's.

A state is a dataclass; its fields are numbers, strings, arrays, dataclasses of these, and arrays marked `metadata={"shared":
True}`, which live once per node and are written in place. Marked "compared" is what must be found again, to the bit, by the
machine and the task that found it. Marked "task" is what begins anew with another task. Marked "scratch" is what a generation
writes before it reads it: no part of a checkpoint.
Marked "root" is what rank 0 alone goes on with. Marked "elsewhere" is the room of the learner's replay, with which it is
stored. Marked "numbers" are rows (observation, action) of transitions, whose numbers in the run the field so named has, -1 for
none: where a replay holds the transitions, a checkpoint has but the numbers, and of what the replay has lost `<name>.lost`.
Marked "begun" is what a generation has that is not finished, 0 at its end; the counters have it too.
Marked "order" is in which order results are still to be told, by a record of them: (columns of a run's history, function of the
state and their rows after its generation). What a warm start takes is declared by "part" and other marks (warm_start_fields.py).
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

import numpy as np

from esac_mpi.comm.contracts import World
from esac_mpi.operators import memories
from esac_mpi.operators.memories import Memory


def arrays(
    state: Any, prefix: str = "", replay: memories.Replay | None = None
) -> dict[str, np.ndarray]:
    """Return every field of a state as an array, by dotted name. replay: the one that is stored beside it."""
    found: dict[str, np.ndarray] = {}
    for f in kept(state):
        value, name = getattr(state, f.name), prefix + f.name
        if is_dataclass(value):
            found.update(arrays(value, f"{name}."))
        elif replay is not None and "numbers" in f.metadata:
            found[f"{name}.lost"] = memories.lost(
                Memory(value, getattr(state, f.metadata["numbers"])), replay
            )
        else:
            found[name] = np.asarray(value)
    return found


def load(
    state: Any,
    saved: dict[str, np.ndarray],
    prefix: str = "",
    replay: memories.Replay | None = None,
) -> None:
    """Put back what `arrays` returned; shared arrays in place. replay: what was stored beside it.

    What an older version's file lacks stays as it was at the start: fields with a default or marked "later", and what is empty.
    Raises KeyError where another one is not there.
    """
    for f in kept(state):
        value = getattr(state, f.name)
        if is_dataclass(value):
            load(value, saved, f"{prefix}{f.name}.")
        elif f"{prefix}{f.name}.lost" in saved:
            assert replay is not None
            memory = Memory(value, saved[prefix + f.metadata["numbers"]])
            memories.refill(memory, saved[f"{prefix}{f.name}.lost"], replay)
        elif prefix + f.name not in saved and (may_lack(f) or not np.size(value)):
            continue
        elif f.metadata.get("shared"):
            if value.size:  # else its shape may have been another one
                value[...] = saved[prefix + f.name]
        else:
            entry = saved[prefix + f.name]
            setattr(
                state, f.name, entry if isinstance(value, np.ndarray) else type(value)(entry[()])
            )


def kept(state: Any) -> list[Field]:
    """Return the fields of a state that its part of a checkpoint has."""
    return [
        f for f in fields(state) if not (f.metadata.get("scratch") or f.metadata.get("elsewhere"))
    ]


def replay_rows(state: Any) -> np.ndarray | None:
    """Return the room that a state has for the learner's replay, float32 [capacity, width], if it has one."""
    return next(
        (getattr(state, f.name) for f in fields(state) if f.metadata.get("elsewhere")), None
    )


def shares_replay(kind: Any) -> bool:
    """Return whether a kind of state has the learner's replay, on each node."""
    return any(f.metadata.get("elsewhere") for f in fields(kind))


def root_bytes(state: Any) -> int:
    """Return what rank 0 alone holds of a state [bytes]."""
    return sum(
        np.asarray(getattr(state, f.name)).nbytes for f in fields(state) if f.metadata.get("root")
    )


def may_lack(f: Field) -> bool:
    """Return whether there were versions without a field."""
    return (
        f.default is not MISSING
        or f.default_factory is not MISSING
        or bool(f.metadata.get("later"))
    )


def is_between(state: Any) -> bool:
    """Return whether a state is one of the end of a generation: none that was given up has left something in it."""
    return not any(getattr(state, f.name) for f in fields(state) if f.metadata.get("begun"))


def compare_no_more(state: Any, another_task: bool = False) -> None:
    """Let what is compared with what this task and machine give stand for nothing: another task or machine goes on."""
    for f in fields(state):
        if f.metadata.get("compared"):
            setattr(state, f.name, np.full_like(getattr(state, f.name), np.nan))
        if another_task and f.metadata.get("task"):
            setattr(state, f.name, f.default)


def follow(state: Any, history: Mapping[str, np.ndarray]) -> bool:
    """Let results be told in the order that a run's history has beyond this state of it; return whether that is new."""
    more = False
    for f in fields(state):
        if "order" in f.metadata:
            names, order = f.metadata["order"]
            found = order(state, *(history[name][state.generation :] for name in names))
            if (
                found.size > getattr(state, f.name).size
            ):  # else it has this one already, and what comes after it
                setattr(state, f.name, found)
                more = True
    return more


def share(state: Any, world: World) -> None:
    """Give every rank rank 0's state."""
    for f in (
        f for f in fields(state) if not (f.metadata.get("scratch") or f.metadata.get("root"))
    ):
        if f.metadata.get("shared"):
            world.broadcast_shared(getattr(state, f.name))
        else:
            setattr(state, f.name, world.from_root(getattr(state, f.name)))
