"""A state as arrays: what a checkpoint holds, and how every rank gets rank 0's.

A state is a dataclass; what its fields are is said in marks.py.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from esac_mpi.comm.contracts import World
from esac_mpi.host.errors import BrokenAlgorithm
from esac_mpi.operators import memories
from esac_mpi.operators.memories import Memory
from esac_mpi.play.counters import Progress
from esac_mpi.play.marks import mark_of, marked

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def is_nested(value: Any) -> TypeGuard["DataclassInstance"]:
    """Tell whether a field's value is a dataclass, with fields of its own."""
    return is_dataclass(value) and not isinstance(value, type)


def arrays(
    state: "DataclassInstance", prefix: str = "", replay: memories.Replay | None = None
) -> dict[str, np.ndarray]:
    """List every field of a state as an array, by dotted name. replay: is stored beside it.

    Raises BrokenAlgorithm for what no file can hold.
    """
    found: dict[str, np.ndarray] = {}
    for f in checkpoint_fields(state):
        value, name = getattr(state, f.name), prefix + f.name
        numbers = mark_of(f).numbers
        if is_nested(value):
            found.update(arrays(value, prefix_of(f, prefix)))
        elif replay is not None and numbers:
            found[f"{name}.lost"] = memories.collect_lost(
                Memory(value, getattr(state, numbers)), replay
            )
        else:
            found[name] = np.asarray(value)
            if found[name].dtype == object:
                kinds = "numbers, strings, arrays and dataclasses of these"
                raise BrokenAlgorithm(f"State.{name} = {value!r:.80}: a State has {kinds}")
    return found


def settle(state: "DataclassInstance") -> None:
    """Turn numpy's numbers into Python's, as `load` puts them back: theirs make other bits."""
    for f in fields(state):
        value = getattr(state, f.name)
        if is_nested(value):
            settle(value)
        elif isinstance(value, np.generic):
            setattr(state, f.name, value.item())


def load(
    state: "DataclassInstance",
    saved: Mapping[str, np.ndarray],
    prefix: str = "",
    replay: memories.Replay | None = None,
) -> None:
    """Put back what `arrays` returned; shared arrays in place. replay: was stored beside it.

    What an older version's file lacks stays as it was at the start: fields with a default or
    marked `later`, and what is empty. Raises KeyError where another one is not there, ValueError
    for a shared array of another shape.
    """
    for f in checkpoint_fields(state):
        value, name, mark = getattr(state, f.name), prefix + f.name, mark_of(f)
        if is_nested(value):
            load(value, saved, prefix_of(f, prefix))
        elif f"{name}.lost" in saved:
            assert replay is not None
            memory = Memory(value, saved[prefix + mark.numbers])
            memories.refill(memory, saved[f"{name}.lost"], replay)
        elif name not in saved and (may_lack(f) or not np.size(value)):
            continue
        else:
            put_back(state, f, saved[name])


def prefix_of(f: Field[Any], prefix: str) -> str:
    """Find the prefix in files of the fields of a field that is a dataclass itself."""
    return prefix if mark_of(f).inline else f"{prefix}{f.name}."


def put_back(state: "DataclassInstance", f: Field[Any], value: np.ndarray) -> None:
    """Assign a saved value to a field; copy it into a shared array."""
    own = getattr(state, f.name)
    if mark_of(f).shared:
        if own.size:  # else its shape may have been another one
            if np.shape(value) != own.shape:
                shapes = f"{list(np.shape(value))}, no longer {list(own.shape)}"
                raise ValueError(f"{f.name} is {shapes}")
            own[...] = value
    elif isinstance(own, np.ndarray):
        setattr(state, f.name, value.copy())
    else:
        found = np.asarray(value)
        same = found.ndim or found.dtype.kind == np.asarray(own).dtype.kind
        setattr(state, f.name, type(own)(found[()]) if same else found.item())


def checkpoint_fields(state: "DataclassInstance") -> list[Field[Any]]:
    """List the fields of a state that its part of a checkpoint has."""
    return [f for f, mark in marked(state) if not (mark.scratch or mark.replay)]


def replay_rows(state: Progress) -> np.ndarray | None:
    """Find the room that a state has for the learner's replay, float32 [capacity, width]."""
    return next((getattr(state, f.name) for f, mark in marked(state) if mark.replay), None)


def shares_replay(kind: type[Progress]) -> bool:
    """Tell whether a kind of state has the learner's replay, on each node."""
    return any(mark.replay for _, mark in marked(kind))


def may_lack(f: Field[Any]) -> bool:
    """Tell whether there were versions without a field."""
    return f.default is not MISSING or f.default_factory is not MISSING or mark_of(f).later


def share(state: "DataclassInstance", world: World) -> None:
    """Give every rank rank 0's state."""
    for f, mark in marked(state):
        if mark.scratch or mark.root:
            continue
        if mark.inline:
            share(getattr(state, f.name), world)
        elif mark.shared:
            world.broadcast_shared(getattr(state, f.name))
        else:
            setattr(state, f.name, world.from_root(getattr(state, f.name)))
