"""What differs between two runs: configuration, task, machine and versions; and where their bits part."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from esac_mpi.config import FREE, flatten
from esac_mpi.config.reads import unread
from esac_mpi.record import RunFiles

MACHINE = (
    "command",
    "started",
    "git_commit",
    "hosts",
    "nodes",
    "ranks",
    "cpu",
    "device",
    "kernel",
    "mpi",
    "python",
    "platform",
)
TASK = (
    "task_source",
    "task_wrappers",
    "task_model",
    "task_probe",
    "task_changes",
)  # what a run records of its task
SHOWN = 12  # datasets listed where bits part


class Parting(NamedTuple):
    """Where a dataset of two runs differs first."""

    generation: int
    name: str
    what: str


def configurations(a: RunFiles, b: RunFiles) -> Iterator[str]:
    """Yield the fields that differ; those that may differ between a run and its continuation, or are not read, are marked."""
    for (name, one), (_, other) in zip(flatten(a.config), flatten(b.config), strict=True):
        if one != other:
            idle = all(unread(run.config, [name]) for run in (a, b))
            free = "  (decides no bits)" if idle or {name, name.split(".")[0]} & FREE else ""
            yield f"{name}: {one!r} -> {other!r}{free}"


def versions(run: RunFiles) -> dict[str, str]:
    """Return the version of every package that bits depend on."""
    named = (
        entry.split(" ", 1)
        for entry in run.provenance.get("versions", "").split(", ")
        if " " in entry
    )
    return {name: version for name, version in named}


def differences(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    """Yield the entries that differ, long ones on lines of their own."""
    for name in [*one, *(name for name in other if name not in one)]:
        a, b = str(one.get(name, "not recorded")), str(other.get(name, "not recorded"))
        if a != b:
            yield f"{name}: {a} -> {b}" if len(a + b) < 90 else f"{name}:\n    A {a}\n    B {b}"


def recorded(run: RunFiles, names: Iterable[str]) -> dict[str, Any]:
    """Return the entries that a run has of its provenance."""
    return {name: run.provenance[name] for name in names if name in run.provenance}


def machine(run: RunFiles) -> dict[str, Any]:
    """Return where a run was made and with what."""
    return {**recorded(run, MACHINE), "schema of the file": run.columns.schema, **versions(run)}


def differing(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return where two arrays of a shape and dtype differ in their bits, bool; nan equals nan."""
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    bits = one.view(f"u{one.itemsize}") != other.view(f"u{other.itemsize}")
    return bits & ~(np.isnan(one) & np.isnan(other)) if one.dtype.kind == "f" else bits


def parting(
    name: str, one: np.ndarray, other: np.ndarray, generations: np.ndarray
) -> Parting | None:
    """Return where a column parts in its first len(generations) rows, or None."""
    one, other = one[: len(generations)], other[: len(generations)]
    if not len(generations):
        return None
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        shapes = f"{one.dtype} {list(one.shape[1:])} -> {other.dtype} {list(other.shape[1:])}"
        return Parting(int(generations[0]), name, f"a row is {shapes}")
    apart = np.argwhere(differing(one, other))
    if not len(apart):
        return None
    where = tuple(apart[0])
    place = f"[{', '.join(map(str, where[1:]))}]" if len(where) > 1 else ""
    number = f" ({sum(apart[:, 0] == where[0])} of {one[0].size} differ)" if place else ""
    return Parting(
        int(generations[where[0]]),
        name,
        f"{place}{': ' * bool(place)}{one[where]!s} -> {other[where]!s}{number}",
    )


def bits(a: RunFiles, b: RunFiles) -> tuple[list[str], bool]:
    """Return what to say about the bits of two runs, and whether they part."""
    n = min(a.generation, b.generation)
    if not n:
        return ["no generation is published in both"], False
    names = [name for name in a.columns if name.startswith("metrics/") and name in b.columns]
    generations, found = a.columns["metrics/generation"][:n], []
    for name in names:
        part = parting(
            name, a.columns.read([name])[name], b.columns.read([name])[name], generations
        )
        found += [part] if part else []
    found.sort(key=lambda part: part.generation)
    whole = f"{len(names) - len(found)} of {len(names)} datasets are equal throughout"
    if not found:
        lines = [f"equal for the {n} generations both have, in {len(names)} datasets"]
    elif found[0].generation > generations[0]:
        lines = [f"equal before generation {found[0].generation}; {whole}"]
    else:
        lines = [f"apart from the first generation; {whole}"]
    lines += [f"generation {part.generation}  {part.name}  {part.what}" for part in found[:SHOWN]]
    lines += [f"and {len(found) - SHOWN} more datasets"] if len(found) > SHOWN else []
    for letter, run, other in (("A", a, b), ("B", b, a)):
        lone = [
            name
            for name in run.columns
            if name.startswith("metrics/") and name not in other.columns
        ]
        lines += [f"only in {letter}: {', '.join(lone)}"] if lone else []
    same = same_state(a, b)
    if same is not None:
        generation = a.provenance["checkpoint_generation"]
        lines += [
            f"the states (State, Learner, replay) of generation {generation} {'are equal' if same else 'differ'}"
        ]
    return lines, bool(found) or same is False


def same_state(a: RunFiles, b: RunFiles) -> bool | None:
    """Return whether the newest checkpoints hold the same state; None if they are not of one generation."""
    one, other = a.provenance, b.provenance
    if one.get("checkpoint_generation", -1) != other.get("checkpoint_generation", -2):
        return None
    return one["state_sha256"] == other["state_sha256"]
