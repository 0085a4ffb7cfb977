"""Which runs are seeds of the same thing: same task, algorithm and settings.

A group is named by its algorithm and by the settings in which it differs from other groups of that
task and algorithm, so that two presets of ESAC, or two values of a swept field, are never averaged
as if they were seeds.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from pathlib import PurePath
from typing import Any

from esac_mpi.analysis.messages import Unusable, note, shorten
from esac_mpi.analysis.names import sort_key
from esac_mpi.config import FREE, PRESETS, WARN, find_unread, flatten
from esac_mpi.config.fields import DEFAULTS, takes_auto
from esac_mpi.config.reads import reads
from esac_mpi.record import RunFiles

Groups = dict[str, dict[str, list[RunFiles]]]  # {task: {label: runs}}
Labelled = dict[str, dict[str, list[Any]]]  # the same of runs, be they files or rows of results
# settings that decide nothing of what a run learns
IRRELEVANT = FREE | WARN | {"algorithm", "seed", "task.id", "evaluation", "learner.threads"}
NEAR = 2.0  # costs that are measured on one kind of machine: its noise, and other jobs beside
PRESET, START, KWARGS = "esac.preset", "start_from", "task.kwargs"


def settings(run: RunFiles) -> dict[str, Any]:
    """Collect the read fields that decide what a run learns, a task's keyword arguments each."""
    algorithm = run.config.algorithm
    read = {name: value for name, value in flatten(run.config) if reads(algorithm, name)}
    idle = find_unread(run.config, filter(takes_auto, read))  # which versions have in several ways
    found = {
        name: value
        for name, value in read.items()
        if name not in idle and not {name, name.split(".")[0]} & IRRELEVANT
    }
    kwargs = unfold(KWARGS, found.pop(KWARGS))
    return {**found, START: source_of(run), **kwargs}


def unfold(name: str, value: Any) -> dict[str, Any]:
    """Return {dotted name: value} of a table and the tables in it, with tuples for lists."""
    if not isinstance(value, dict) or not (value or name == KWARGS):
        return {name: make_hashable(value)}
    return {n: v for key, entry in value.items() for n, v in unfold(f"{name}.{key}", entry).items()}


def make_hashable(value: Any) -> Any:
    """Make a value hashable: lists become tuples, tables text."""
    if isinstance(value, list):
        return tuple(map(make_hashable, value))
    return str(value) if isinstance(value, dict) else value


def source_of(run: RunFiles) -> str:
    """Identify a run's source by name, generation and digest; "" for random weights."""
    if not (start := run.start):
        return run.config.start_from
    path = PurePath(start["path"])
    name = path.name if start.get("kind") != "policy" else f"{path.parent.name}/{path.name}"
    return f"{name}:{start['generation']}:{start.get('state_sha256', start['theta_sha256'])[:6]}"


def find_varying(runs: list[RunFiles], without: Collection[str] = ()) -> list[str]:
    """Return the names of the settings in which runs differ, the preset first."""
    found = [settings(run) for run in runs]
    whole = dict.fromkeys(name for one in found for name in one if name not in without)
    names = (name for name in whole if len({other.get(name) for other in found}) > 1)
    return sorted(names, key=lambda name: name != PRESET)


def label(run: RunFiles, names: list[str]) -> str:
    """Name a run's group: its algorithm and what of these it has and its preset does not imply."""
    mine = settings(run)
    implied = {**DEFAULTS, **PRESETS[mine[PRESET]]} if PRESET in names else {}
    words = [run.config.algorithm.upper()]
    for name in names:
        value = mine.get(name, "")  # nothing of what a run lacks
        if value != "" and (name == PRESET or name not in implied or value != implied[name]):
            words.append(f"{short_name(name)}={format_value(value)}")
    return " ".join(words)


def short_name(name: str) -> str:
    """Shorten a setting's name for a label."""
    return name.removeprefix(f"{KWARGS}.") if name.startswith(KWARGS) else name.split(".")[-1]


def format_value(value: Any) -> str:
    """Format a setting's value for a label."""
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    if isinstance(value, str) and re.match(r"[-+.\d]|(True|False)$", value):
        return repr(value)  # no number, list or truth value that reads like it
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else repr(value)


def grouped(runs: list[RunFiles], without: Collection[str] = ()) -> Groups:
    """Sort runs by task and label; without: settings that may differ. Raises Unusable for twins."""
    groups: Groups = {}
    for task in sorted({run.config.task.id for run in runs}):
        here = [run for run in runs if run.config.task.id == task]
        for algorithm in sorted({run.config.algorithm for run in here}, key=sort_key):
            same = [run for run in here if run.config.algorithm == algorithm]
            differ = find_varying(same, without)
            near = near_costs(same, differ)
            names = [name for name in differ if name not in near]
            note_chosen(same, names)
            for run in same:
                groups.setdefault(task, {}).setdefault(label(run, names), []).append(run)
    for found in (group for labels in groups.values() for group in labels.values()):
        if not without:
            refuse_twins(found)
    return groups


def near_costs(runs: list[RunFiles], names: list[str]) -> set[str]:
    """Name the costs measured at first starts that are near in every group; note them."""
    measured = [set(run.provenance.get("settled", "").split()) for run in runs]
    costs = {name for name in set(names).intersection(*measured) if name.endswith("_cost")}
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for mine in map(settings, runs):
        key = tuple(mine.get(name) for name in names if name not in costs)
        groups.setdefault(key, []).append(mine)
    near = set()
    for name in costs:
        found = [sorted(mine[name] for mine in alike) for alike in groups.values()]
        if all(values[-1] <= NEAR * values[0] for values in found):
            near.add(name)
            if any(values[-1] > values[0] for values in found):
                where = f"{runs[0].config.task.id}, {runs[0].config.algorithm.upper()}"
                spans = " or ".join(f"{format_value(v[0])} to {format_value(v[-1])}" for v in found)
                note(f"{where}: seeds of one group measured {short_name(name)} = {spans}")
    return near


def note_chosen(runs: list[RunFiles], names: list[str]) -> None:
    """Note where seeds differ in numbers chosen at first starts: such groups share no seed."""
    chosen = [name for name in names if takes_auto(name)]
    alike: dict[Any, dict[Any, list[int]]] = {}
    for run in runs:
        mine = settings(run)
        values = tuple(mine.get(name, "") for name in chosen)
        rest = tuple(mine.get(name, "") for name in names if name not in chosen)
        alike.setdefault(rest, {}).setdefault(values, []).append(run.config.seed)
    for found in alike.values():
        seeds = [seed for each in found.values() for seed in each]
        columns = (sorted({*many} - {""}) for many in zip(*found, strict=True))
        apart = {name: many for name, many in zip(chosen, columns, strict=True) if len(many) > 1}
        if not apart or len(set(seeds)) < len(seeds):
            continue
        where = f"{runs[0].config.task.id}, {runs[0].config.algorithm.upper()}"
        differ = "; ".join(
            f"{short_name(n)} = {shorten(map(format_value, many))}" for n, many in apart.items()
        )
        remedy = " ".join(f"--{name} {format_value(many[0])}" for name, many in apart.items())
        note(
            f"{where}: runs with {differ} are no seeds of one group; in a study name one for all, "
            f"{remedy}, say"
        )


def relabel(groups: Labelled, labels: Sequence[str]) -> Labelled:
    """Relabel the groups, one label each in the order of a legend. Raises Unusable."""
    there = list(dict.fromkeys(label for found in groups.values() for label in found))
    # a legend leaves out what begins with _
    unfit = any(not label.strip() or label.startswith("_") for label in labels)
    if unfit or len(labels) != len(there) or len(set(labels)) < len(labels):
        raise Unusable(
            f"--label {' --label '.join(labels)}: give one each, no two alike, none empty or with _"
            f" first, for {len(there)} groups in this order: {'; '.join(there)}"
        )
    names = dict(zip(there, labels, strict=True))
    return {
        task: {names[label]: runs for label, runs in found.items()}
        for task, found in groups.items()
    }


def refuse_twins(runs: list[RunFiles], values: Iterable[Any] = repeat("")) -> None:
    """Raise Unusable if two runs of a group have the same seed and value of what is swept."""
    seen: dict[Any, RunFiles] = {}
    for run, value in zip(runs, values, strict=False):
        if (twin := seen.setdefault((run.config.seed, value), run)) is not run:
            raise Unusable(
                f"{twin.path} and {run.path} are the same seed of the same task and settings:"
                " leave one of them out"
            )
