"""What differs between two runs: configuration, task, machine, versions; where their bits part."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from esac_mpi.config import FREE, flatten
from esac_mpi.config.reads import unread
from esac_mpi.record import RunFiles

MACHINE = (
    "command", "started", "git_commit", "hosts", "nodes", "ranks", "cpu", "device", "kernel",
    "mpi", "python", "platform",
)  # fmt: skip
# what a run records of its task
TASK = ("task_source", "task_wrappers", "task_model", "task_probe", "task_changes")
SHOWN = 12  # datasets listed where bits part


def compared(a: RunFiles, b: RunFiles) -> tuple[str, bool]:
    """Compare two runs, as text; and whether their bits part."""
    lines, part = bits(a, b)
    sections: dict[str, Iterable[str]] = {
        "configuration": configurations(a, b),
        "task": differences(recorded(a, TASK), recorded(b, TASK)),
        "machine and versions": differences(machine(a), machine(b)),
        "bits of metrics/": lines,
    }
    text = f"A {a.path}, {a.generation} generations\nB {b.path}, {b.generation} generations\n"
    for title, found in sections.items():
        text += f"\n{title}:\n" + "".join(f"  {line}\n" for line in list(found) or ["equal"])
    return text.rstrip("\n"), part


def configurations(a: RunFiles, b: RunFiles) -> Iterator[str]:
    """Yield the differing fields, marking those not read or that a continuation may change."""
    for (name, one), (_, other) in zip(flatten(a.config), flatten(b.config), strict=True):
        if one != other:
            idle = all(unread(run.config, [name]) for run in (a, b))
            free = "  (decides no bits)" if idle or {name, name.split(".")[0]} & FREE else ""
            yield f"{name}: {one!r} -> {other!r}{free}"


def differences(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    """Yield the entries that differ, long ones on lines of their own."""
    for name in dict.fromkeys([*one, *other]):
        a, b = str(one.get(name, "not recorded")), str(other.get(name, "not recorded"))
        if a != b:
            yield f"{name}: {a} -> {b}" if len(a + b) < 90 else f"{name}:\n    A {a}\n    B {b}"


def recorded(run: RunFiles, names: Iterable[str]) -> dict[str, Any]:
    """Return the entries that a run has of its provenance."""
    return {name: run.provenance[name] for name in names if name in run.provenance}


def machine(run: RunFiles) -> dict[str, Any]:
    """Return where a run was made and with what, versions of packages included."""
    entries = run.provenance.get("versions", "").split(", ")
    versions = dict(entry.split(" ", 1) for entry in entries if " " in entry)
    return {**recorded(run, MACHINE), "schema of the file": run.columns.schema, **versions}


def differing(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Compare the bits of two arrays of a shape and dtype, bool; nan equals nan."""
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    apart = one.view(f"u{one.itemsize}") != other.view(f"u{other.itemsize}")
    return apart & ~(np.isnan(one) & np.isnan(other)) if one.dtype.kind == "f" else apart


def parting(one: np.ndarray, other: np.ndarray) -> tuple[int, str] | None:
    """Find the first row in which two columns of a length part, and say how; None: in no row."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        shapes = f"{one.dtype} {list(one.shape[1:])} -> {other.dtype} {list(other.shape[1:])}"
        return 0, f"a row is {shapes}"
    apart = np.argwhere(differing(one, other))
    if not len(apart):
        return None
    row, *place = where = tuple(apart[0])
    said = f"{one[where]!s} -> {other[where]!s}"
    if place:
        number = sum(apart[:, 0] == row)
        said = f"[{', '.join(map(str, place))}]: {said} ({number} of {one[0].size} differ)"
    return int(row), said


def bits(a: RunFiles, b: RunFiles) -> tuple[list[str], bool]:
    """Compare the rows that both runs have, and states; return lines, and whether they part."""
    n = min(a.generation, b.generation)
    if not n:
        return ["no generation is published in both"], False
    own, others = ([name for name in run.columns if name.startswith("metrics/")] for run in (a, b))
    names = [name for name in own if name in others]
    found = []
    for name in names:
        rows = (run.columns.read([name])[name][:n] for run in (a, b))
        if part := parting(*rows):
            found.append((part[0], name, part[1]))
    found.sort(key=lambda part: part[0])
    generations = a.columns["metrics/generation"]
    whole = f"{len(names) - len(found)} of {len(names)} datasets are equal throughout"
    if not found:
        lines = [f"equal for the {n} generations both have, in {len(names)} datasets"]
    elif found[0][0]:
        lines = [f"equal before generation {generations[found[0][0]]}; {whole}"]
    else:
        lines = [f"apart from the first generation; {whole}"]
    lines += [f"generation {generations[row]}  {name}  {what}" for row, name, what in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"and {len(found) - SHOWN} more datasets")
    for letter, mine in (("A", own), ("B", others)):
        if lone := [name for name in mine if name not in names]:
            lines.append(f"only in {letter}: {', '.join(lone)}")
    same = same_state(a, b)
    if same is not None:
        what = (
            "the states (State, Learner, replay) of generation "
            f"{a.provenance['checkpoint_generation']}"
        )
        lines.append(f"{what} {'are equal' if same else 'differ'}")
    return lines, bool(found) or same is False


def same_state(a: RunFiles, b: RunFiles) -> bool | None:
    """Compare the states of the newest checkpoints; None if they are not of one generation."""
    one, other = a.provenance, b.provenance
    if one.get("checkpoint_generation", -1) != other.get("checkpoint_generation", -2):
        return None
    return one["state_sha256"] == other["state_sha256"]
