"""The taking: a state and a learner as they are planned, on rank 0."""

from collections.abc import Callable, Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi import learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.operators import memories
from esac_mpi.operators.memories import Memory
from esac_mpi.play.state import kept
from esac_mpi.record import Run, Unreadable
from esac_mpi.record.replays import take as take_replay
from esac_mpi.training.active_run import Job
from esac_mpi.training.warm_start.plan import Plan, plan
from esac_mpi.training.warm_start.source import Source, find, is_within

Remade = Callable[[Any], Any]  # state -> the learner that goes with it, anew
TRIES = 3  # a source that runs on may have deleted what its checkpoint named


def of(job: Job, run_directory: Path, now: Mapping[str, Any], fresh: bool) -> Source | None:
    """Find what the run of a job begins from; None where it goes on. Raises Refused, Unreadable."""
    if not is_within(job.config.start_from, run_directory):  # there, whatever the run is
        found = Run.foresee(run_directory, job.config, now, fresh, waits=True)
        if found.restored is not None:
            return None
    return find(job.config.start_from, job.config, job.env, job.params.layout.d, run_directory)


def begin_from(job: Job, source: Source, now: Mapping[str, Any], remade: Remade) -> None:
    """Let a new run begin from its source, and its files say so. Raises Unreadable, Refused.

    now: what the run records of itself. remade: returns the learner as it goes with a state.
    """
    assert job.run is not None
    found = plan(source, job.config, job.state, job.learner, now)
    for left in reversed(range(TRIES)):
        job.learner = None  # which told what fits: a device may have room for one
        learners.clear()
        try:
            job.learner = take(found, job.state, remade)
            break
        except Unreadable:
            if not left:
                raise
        source = find(source.said, job.config, job.env, job.params.layout.d, job.run.path)
        learners.clear()
        job.learner = remade(job.state)
        found = plan(source, job.config, job.state, job.learner, now)
    if found.learner:
        ALGORITHMS[job.config.algorithm].DECLARES.learning.actor(job.state)[...] = job.learner.theta
    job.run.begins_from(found.text())


def take(found: Plan, state: Any, remade: Remade) -> Any:
    """Let a state be as planned; return its learner. Raises Unreadable: plan again then."""
    for name, theta in found.policies.items():
        getattr(state, name)[...] = theta
    learner, saved = remade(state), found.source.checkpoint
    if found.replay:
        assert saved is not None
        kept_there = saved.segments, saved.replay_bounds, saved.replay_tail
        take_replay(learner.replay, found.source.folder, *kept_there)
    if found.learner:
        learner.load(found.learner)
    lost = {
        f.name: f.metadata["numbers"]
        for f in kept(state)
        if "numbers" in f.metadata and f.name in found.values
    }
    for f in kept(state):
        if f.name in found.values and f.name not in lost:
            put(state, f, found.values[f.name])
        elif "transitions" in f.metadata and found.replay:
            setattr(state, f.name, learner.replay.added)
    for name, numbers in lost.items():
        memory = Memory(getattr(state, name), getattr(state, numbers))
        memories.refill(memory, found.values[name], learner.replay)
    return learner


def put(state: Any, f: Field, value: Any) -> None:
    """Let a field be a value."""
    own = getattr(state, f.name)
    if f.metadata.get("shared"):
        own[...] = value
        return
    if isinstance(own, np.ndarray):
        setattr(state, f.name, value.copy())
    else:
        setattr(state, f.name, type(own)(np.asarray(value)[()]))
