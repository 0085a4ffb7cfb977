"""What a run takes of its source, and the taking.

The policies, by their names where both have them, else the one that counts, and the sums over
observations: always. All else only where it is of the same kind, has the same shapes and grew out
of the same settings: what there is of a State by its parts (play/marks.py), the learner, its
replay if the task is the same. It begins anew otherwise, as do counts, the best policy and the
number of generations always.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

import numpy as np

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import Config, as_text
from esac_mpi.play.marks import ANEW, OBSERVATIONS, Part, mark_of, marked
from esac_mpi.play.state import checkpoint_fields, put_back
from esac_mpi.record import Checkpoint, replays
from esac_mpi.record.task_identity import changes
from esac_mpi.training.warm_start.source import Source

NEVER = ("generation", "counters", "best")
APART = ("changed", "horizon")  # fields of [task] that leave the meaning of a transition as it is


@dataclass
class Plan:
    """What is taken beside policies and sums over observations; and all that in words."""

    source: Source
    values: dict[str, Any] = field(default_factory=dict)  # field of the state -> value
    learner: dict[str, np.ndarray] = field(default_factory=dict)
    replay: bool = False
    taken: list[str] = field(default_factory=list)  # in words
    left: list[str] = field(default_factory=list)  # what begins anew, in words

    def text(self) -> str:
        """Write what the run's files hold, JSON."""
        return json.dumps({**self.source.about, "taken": self.taken, "not_taken": self.left})

    def note(self, what: str, fits: bool) -> None:
        """Note whether something is taken."""
        (self.taken if fits else self.left).append(what)


def begin_policies(source: Source, state: Any) -> list[str]:
    """Copy the source's policies and sums over observations into a new state; name them."""
    taken, seen = list[str](), list[str]()
    by_name = state.policies
    for f in fields(state):
        own = getattr(state, f.name)
        name = next((name for name, theta in by_name.items() if theta is own), None)
        if name is not None:
            given = name if name in source.policies else next(iter(source.policies))
            own[...] = source.policies[given]
            taken.append(f.name if given in (f.name, name) else f"{f.name} (of {given})")
        elif mark_of(f).members:
            own[...] = source.theta
        elif mark_of(f).part == OBSERVATIONS and source.sums is not None:
            setattr(state, f.name, source.sums.copy())
            seen = [OBSERVATIONS.name]
    return taken + seen


def plan(source: Source, config: Config, state: Any, learner: Any, now: Mapping[str, Any]) -> Plan:
    """Plan what a run takes; its state gets the policies, its learner is that of this state.

    now: what the run records of itself, its task among that.
    """
    found = Plan(source, taken=begin_policies(source, state))
    output = ALGORITHMS[config.algorithm].DECLARES.output or config.policy.output
    if output != source.output:
        found.left.append(f"the bound {source.output} of its actions, here {output}")
    if source.config is None or source.checkpoint is None:
        found.left.append("all else, as it is a policy alone")
        return found
    before, saved = source.config, source.checkpoint
    plan_parts(found, before, saved, config, state)
    if learner is not None:
        if kind_of_learner(before) == kind_of_learner(config):
            with suppress(ValueError):  # of another form
                found.learner = learner.fitting(saved.learner, before)
        found.note("the learner", bool(found.learner))
        first, stop = saved.replay_bounds
        if learner.replay is not None and stop > first:
            limits = [vars(c.own).get("time_limits", "truncation") for c in (before, config)]
            changed = other_task(before, saved, config, now)
            found.replay = not changed and limits[0] == limits[1]
            found.note(f"the replay ({changed})" if changed else "the replay", found.replay)
    found.left += [f.name for f, mark in marked(state) if mark.numbers]
    if config.algorithm != before.algorithm:
        found.left.append(f"all else, as {config.algorithm} is not {before.algorithm}")
    return found


def plan_parts(found: Plan, before: Config, saved: Checkpoint, config: Config, state: Any) -> None:
    """Take the parts of the state that fit."""
    kind = ALGORITHMS[before.algorithm].State
    theirs = {mark.part for _, mark in marked(kind)}
    for part, those in parts(state).items():
        if not (kind is type(state) or (part.common and part in theirs)):
            continue
        values = {f.name: value_of(f, saved) for f in those}
        own = {f.name: getattr(state, f.name) for f in those}
        fits = all(
            value is not None and np.shape(value) == np.shape(own[name])
            for name, value in values.items()
        )
        was, now = vars(before.own), vars(config.own)
        if not (fits and all(was.get(name) == now.get(name) for name in part.settings)):
            found.left.append(part.name)
            continue
        found.values |= values
        if any(np.any(value) for value in values.values()):
            found.taken.append(part.name)


def parts(state: Any) -> dict[Part, list[Field[Any]]]:
    """List the parts of a state; what is always taken and what always begins anew are none."""
    found: dict[Part, list[Field[Any]]] = {}
    policies = [id(theta) for theta in state.policies.values()]
    numbers = {mark.numbers for _, mark in marked(state)}
    for f in checkpoint_fields(state):
        mark = mark_of(f)
        part = mark.part or Part(f.name)
        always = part == OBSERVATIONS or id(getattr(state, f.name)) in policies
        apart = mark.numbers or mark.transitions  # goes with the numbers of transitions
        never = part == ANEW or apart or f.name in (*NEVER, *numbers)
        if not (always or never):
            found.setdefault(part, []).append(f)
    return found


def value_of(f: Field[Any], saved: Checkpoint) -> Any:
    """Read a field of a checkpoint, an older one's by default; None where there is none."""
    value = saved.state.get(f.name)
    if value is None:
        value = None if f.default is MISSING else np.asarray(f.default)
    if value is not None and mark_of(f).generation:
        return np.asarray(int(value) - saved.generation)
    return value


def kind_of_learner(config: Config) -> str:
    """Name the learner of a configuration's algorithm, empty for none."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    return learning.learner(config) if learning else ""


def other_task(before: Config, saved: Checkpoint, config: Config, now: Mapping[str, Any]) -> str:
    """Say in what the task is another than the source's. now: what this run records of it."""
    was, here = vars(before.task), vars(config.task)
    changed = [
        f"task.{name} was {as_text(was[name])}"
        for name in was
        if was[name] != here[name] and name not in APART
    ]
    return ", ".join(changed or changes(saved.attributes, now))


def take(found: Plan, config: Config, state: Any, learner: Any) -> None:
    """Load the planned parts into a state and its learner. Raises Unreadable."""
    saved = found.source.checkpoint
    if found.replay:
        assert saved is not None
        replays.fill(learner.replay, found.source.folder, saved, anew=True)
    if found.learner:
        learner.load(found.learner)
        ALGORITHMS[config.algorithm].DECLARES.learning.actor(state)[...] = learner.theta
    for f, mark in marked(state):
        if f.name in found.values:
            put_back(state, f, found.values[f.name])
        elif mark.transitions and found.replay:
            setattr(state, f.name, learner.replay.added)


def describe(start: str) -> str:
    """Say of a Plan's text where a run began, what it has of that, and what began anew."""
    about = json.loads(start)
    taken = ", ".join(about["taken"])
    line = f"begun from {about['from']}, generation {about['generation']}: {taken}"
    return f"{line}; anew: {', '.join(about['not_taken'])}" if about["not_taken"] else line
