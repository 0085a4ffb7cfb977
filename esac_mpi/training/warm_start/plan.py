"""What a run takes of its source, and what it does not and why.

Equal shape and equal meaning are taken. Policies from any algorithm: by their names where both have
them, else the one that counts. What else there is of a State by its parts (warm_start_fields.py);
the learner where it is of the same kind and all of it fits; its replay where the task is the same.
Counts, the best policy and the number of generations begin anew.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any

import numpy as np

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import Config, PolicyNetwork
from esac_mpi.operators.policy import Layout
from esac_mpi.play.state import kept
from esac_mpi.play.warm_start_fields import ANEW, OBSERVATIONS, Part
from esac_mpi.record import Checkpoint
from esac_mpi.training.warm_start.source import Source, acts_as, other_task

NEVER = ("generation", "counters", "best")


@dataclass
class Plan:
    """What is taken of a state's fields, the learner and its replay; and that in words."""

    source: Source
    # field -> theta [d], for each of its rows where it has such
    policies: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)  # field -> value
    learner: dict[str, np.ndarray] = field(default_factory=dict)
    replay: bool = False
    taken: list[str] = field(default_factory=list)  # in words
    left: list[str] = field(default_factory=list)  # a sentence each, what and why

    def text(self) -> str:
        """Return what the run's files hold, JSON."""
        found = {"seeds": self.source.seeds, "taken": self.taken, "not_taken": self.left}
        return json.dumps(self.source.about | found)


def plan(source: Source, config: Config, state: Any, learner: Any, now: Mapping[str, Any]) -> Plan:
    """Plan what a run of `config` takes, its state and learner as before generation 1.

    now: what the run records of itself, its task among that.
    """
    source = with_heads_as_here(source, config)
    found = Plan(source)
    plan_policies(found, state)
    if words := acts_as(source, config):
        found.left.append(words)
    if source.config is None or source.checkpoint is None:
        plan_observations(found, state)
        found.left.append("all else begins anew: it is a policy alone")
        return found
    changed = other_task(source, config, now)
    plan_parts(found, source.config, source.checkpoint, config, state, changed)
    if learner is not None:
        plan_learner(found, source.config, source.checkpoint, config, learner)
        plan_replay(found, source.config, source.checkpoint, config, learner, changed)
        plan_memories(found, source.checkpoint, state, learner)
    return found


def with_heads_as_here(source: Source, config: Config) -> Source:
    """Scale the last layers as the algorithm here holds them, where an action is a choice."""
    factor = ALGORITHMS[config.algorithm].DECLARES.head_scale / source.head_scale
    if factor == 1 or not source.discrete:
        return source
    assert source.sizes is not None
    observations, choices = source.sizes
    given = {name.removeprefix("policy."): value for name, value in source.network.items()}
    network = PolicyNetwork(**given)
    layout = Layout((observations, *network.hidden, choices), network.layer_norm, network.path_gain)
    scale = layout.scale(factor)
    scaled = {name: scale * theta for name, theta in source.policies.items()}
    return replace(source, policies=scaled)


def plan_policies(found: Plan, state: Any) -> None:
    """Let each policy begin as the source's of that name, or as the one that counts."""
    source = found.source
    for name, theta in state.policies.items():
        own = next((f.name for f in fields(state) if getattr(state, f.name) is theta), None)
        given = name if name in source.policies else next(iter(source.policies))
        if own is not None:
            found.policies[own] = source.policies[given]
            found.taken.append(own if own == given or name == given else f"{own} (of {given})")
    for f in fields(state):
        if f.metadata.get("members"):
            found.policies[f.name] = source.theta


def plan_observations(found: Plan, state: Any) -> None:
    """Take what a policy alone has of the observations that it saw."""
    for f in fields(state):
        if f.metadata.get("part") == OBSERVATIONS and found.source.sums is not None:
            found.values[f.name] = found.source.sums
            found.taken.append(OBSERVATIONS.name)


def plan_parts(
    found: Plan, before: Config, saved: Checkpoint, config: Config, state: Any, changed: str
) -> None:
    """Take the parts of the state that fit."""
    same = ALGORITHMS[before.algorithm].State is ALGORITHMS[config.algorithm].State
    theirs = {part.name for part in parts(ALGORITHMS[before.algorithm].State)}
    for part, those in parts(state).items():
        if not (same or (part.common and part.name in theirs)):
            continue
        values = {f.name: value_of(f, saved) for f in those}
        why = unfit(part, before, config) or misshapen(values, state)
        if not why and changed and not declared(those):
            why = changed
        if why:
            found.left.append(f"{part.name}: {why}")
            continue
        found.values.update(values)
        if any(np.any(value) for value in values.values()):
            found.taken.append(part.name)
        for f in those:
            found.policies.pop(f.name, None)
    if not same:
        found.left.append(f"all else begins anew: {config.algorithm} is not {before.algorithm}")


def parts(state: Any) -> dict[Part, list[Field]]:
    """List the parts of a state, or of its kind; policies and what begins anew are none."""
    found: dict[Part, list[Field]] = {}
    thetas = [] if isinstance(state, type) else list(state.policies.values())
    numbers = {f.metadata["numbers"] for f in fields(state) if "numbers" in f.metadata}
    for f in kept(state):
        apart = f.name in (*NEVER, *numbers) or {"numbers", "transitions"} & f.metadata.keys()
        part = f.metadata.get("part", Part(f.name))
        if not (apart or part == ANEW or any(getattr(state, f.name) is theta for theta in thetas)):
            found.setdefault(part, []).append(f)
    return found


def declared(those: list[Field]) -> bool:
    """Return whether fields are a part by declaration, which says what it depends on."""
    return "part" in those[0].metadata


def unfit(part: Part, before: Config, config: Config) -> str:
    """Return which setting is another than the source's, empty where a part may be taken."""
    for name in part.settings:
        was, now = (vars(c.own).get(name) for c in (before, config))
        if was != now:
            return f"{name} was {was}, is {now}"
    return ""


def misshapen(values: Mapping[str, Any], state: Any) -> str:
    """Return which array is of another shape, empty where all fit."""
    for name, value in values.items():
        own = getattr(state, name)
        if value is None:
            return f"the source has no {name}"
        if np.shape(value) != np.shape(own):
            return f"{name} {list(np.shape(value))} is {list(np.shape(own))} here"
    return ""


def value_of(f: Field, saved: Checkpoint) -> Any:
    """Read a field of a checkpoint, an older one's by default; None where there is none."""
    value = saved.state.get(f.name)
    if value is None:
        value = None if f.default is MISSING else np.asarray(f.default)
    if value is not None and "generation" in f.metadata:
        return np.asarray(int(value) - saved.generation)
    return value


def plan_learner(
    found: Plan, before: Config, saved: Checkpoint, config: Config, learner: Any
) -> None:
    """Take the learner if it is of the same kind, whole."""
    was, now = (kind_of_learner(c) for c in (before, config))
    if was != now:
        has = f"that of {was}" if was else "none"
        found.left.append(f"the learner: {before.algorithm} has {has}")
        return
    try:
        found.learner = learner.fitting(saved.learner, before)
        found.taken.append("the learner")
    except ValueError as error:
        found.left.append(f"the learner: {error}")


def kind_of_learner(config: Config) -> str:
    """Return the learner of a configuration's algorithm, empty for none."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    return learning.learner(config) if learning else ""


def plan_replay(
    found: Plan, before: Config, saved: Checkpoint, config: Config, learner: Any, changed: str
) -> None:
    """Take the replay if its transitions mean the same."""
    first, stop = saved.replay_bounds
    if learner.replay is None or stop == first:
        return
    limits = [vars(c.own).get("time_limits", "truncation") for c in (before, config)]
    if changed or saved.lost:
        found.left.append(f"the replay: {changed or saved.lost}")
    elif limits[0] != limits[1]:
        found.left.append(f"the replay: time_limits was {limits[0]}, is {limits[1]}")
    else:
        found.replay, room = True, learner.replay.capacity
        count = stop - first
        found.taken.append(f"the replay ({min(count, room):,} of {count:,} transitions)")


def plan_memories(found: Plan, saved: Checkpoint, state: Any, learner: Any) -> None:
    """Take memories of transitions if the replay keeps all that it had, under the same numbers."""
    for f in (f for f in kept(state) if "numbers" in f.metadata):
        numbers = f.metadata["numbers"]
        ages, (first, stop) = saved.state.get(numbers), saved.replay_bounds
        if ages is None or not ages.size:
            continue
        count = stop - first
        room = 0 if learner.replay is None else learner.replay.capacity
        # some are lost, or get other numbers
        if not found.replay or count > room or (first > 0 and count < room):
            found.left.append(f"{f.name}: the replay here does not hold their transitions")
        elif why := misshapen({numbers: ages}, state):
            found.left.append(f"{f.name}: {why}")
        else:
            found.values |= {numbers: ages, f.name: saved.state[f"{f.name}.lost"]}
            found.taken.append(f.name)


def told(start: str) -> str:
    """Return what to say of a Plan's text: where a run began, what it has of that, and what not."""
    about = json.loads(start)
    source = f"{about['from']}, generation {about['generation']}"
    lines = [f"  begun from {source}: {', '.join(about['taken'])}"]
    return "\n".join([*lines, *(f"    not taken: {sentence}" for sentence in about["not_taken"])])
