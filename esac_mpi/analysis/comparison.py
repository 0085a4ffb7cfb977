"""What differs between two runs: configuration, task, machine, versions; where their bits part."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from esac_mpi.config import as_option, flatten
from esac_mpi.config import differences as decisive
from esac_mpi.record import RunFiles

MACHINE = (
    "command", "started", "git_commit", "hosts", "nodes", "ranks", "cpu", "device", "kernel",
    "mpi", "python", "platform",
)  # fmt: skip
# what a run records of its task
TASK = ("task_source", "task_wrappers", "task_model", "task_probe", "task_changes")


def compare_runs(a: RunFiles, b: RunFiles) -> tuple[str, bool]:
    """Compare two runs; return a text, and whether their bits differ."""
    lines, part = compare_bits(a, b)
    sections: dict[str, Iterable[str]] = {
        "configuration": configurations(a, b),
        "task": differences(provenance(a, TASK), provenance(b, TASK)),
        "machine and versions": differences(machine(a), machine(b)),
        "bits of metrics/": lines,
    }
    text = f"A {a.path}, {a.generation} generations\nB {b.path}, {b.generation} generations\n"
    for title, found in sections.items():
        text += f"\n{title}:\n" + "".join(f"  {line}\n" for line in list(found) or ["equal"])
    return text.rstrip("\n"), part


def configurations(a: RunFiles, b: RunFiles) -> Iterator[str]:
    """Yield the differing fields, marking those that decide no bits."""
    deciding = decisive(a.config, b.config)
    for (name, one), (_, other) in zip(flatten(a.config), flatten(b.config), strict=True):
        if one != other:
            free = "" if name in deciding else "  (decides no bits)"
            yield f"{name}: {as_option(one)} -> {as_option(other)}{free}"


def differences(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    """Yield the entries that differ, long ones on lines of their own."""
    for name in dict.fromkeys([*one, *other]):
        a, b = str(one.get(name, "not recorded")), str(other.get(name, "not recorded"))
        if a != b:
            yield f"{name}: {a} -> {b}" if len(a + b) < 90 else f"{name}:\n    A {a}\n    B {b}"


def provenance(run: RunFiles, names: Iterable[str]) -> dict[str, Any]:
    """Select entries of a run's provenance."""
    return {name: run.provenance[name] for name in names if name in run.provenance}


def machine(run: RunFiles) -> dict[str, Any]:
    """Look up where a run was made and with what, versions of packages included."""
    entries = run.provenance.get("versions", "").split(", ")
    versions = dict(entry.split(" ", 1) for entry in entries if " " in entry)
    return {**provenance(run, MACHINE), "schema of the file": run.columns.schema, **versions}


def first_difference(one: np.ndarray, other: np.ndarray) -> tuple[int, str] | None:
    """Find the first row whose bits differ in two columns, nan equal to nan; None: none."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return 0, f"a row is {one.dtype} {one.shape[1:]} -> {other.dtype} {other.shape[1:]}"
    bits, others = (np.ascontiguousarray(x).view(f"u{x.itemsize}") for x in (one, other))
    apart = bits != others
    if one.dtype.kind == "f":
        apart &= ~(np.isnan(one) & np.isnan(other))
    if not apart.any():
        return None
    row, *place = where = tuple(np.argwhere(apart)[0])
    said = f"{one[where]!s} -> {other[where]!s}"
    if place:
        index = ", ".join(map(str, place))
        said = f"[{index}]: {said} ({apart[row].sum()} of {one[row].size} differ)"
    return int(row), said


def compare_bits(a: RunFiles, b: RunFiles) -> tuple[list[str], bool]:
    """Compare the rows that both runs have, and states; return lines, and whether any differ."""
    n = min(a.generation, b.generation)
    if not n:
        return ["no generation is published in both"], False
    own, others = ([name for name in run.columns if name.startswith("metrics/")] for run in (a, b))
    names = [name for name in own if name in others]
    found = []
    for name in names:
        if part := first_difference(*(run.columns.read([name])[name][:n] for run in (a, b))):
            found.append((part[0], name, part[1]))
    found.sort(key=lambda part: part[0])
    generations = a.columns["metrics/generation"]
    lines = [f"equal for the {n} generations both have, in {len(names)} datasets"]
    if found:
        first = found[0][0]
        equal = f"equal before generation {generations[first]}"
        whole = f"{len(names) - len(found)} of {len(names)} datasets are equal throughout"
        lines = [f"{equal if first else 'different from the first generation on'}; {whole}"]
    lines += [f"generation {generations[row]}  {name}  {what}" for row, name, what in found]
    for letter, mine in (("A", own), ("B", others)):
        if lone := [name for name in mine if name not in names]:
            lines.append(f"only in {letter}: {', '.join(lone)}")
    one, other = a.provenance, b.provenance
    newest = one.get("checkpoint_generation")
    same = True
    if newest is not None and newest == other.get("checkpoint_generation"):
        same = one["state_sha256"] == other["state_sha256"]
        what = f"the states (State, Learner, replay) of generation {newest}"
        lines.append(f"{what} {'are equal' if same else 'differ'}")
    return lines, bool(found) or not same
