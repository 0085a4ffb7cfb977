"""Generations as a run recorded them, and when each would have ended on another number of ranks.

Rank 0 records, in the order of the program, row by row: seconds_record of the row before,
seconds_evaluate, plan, offspring, learn, update, evaluation. What shrinks with ranks is taken apart
(every member, whoever is born, every evaluation episode, the update's blocks); whatever else a
generation lasted stays as it was. Of more than one rank, waiting for others is left out, since the
cluster's own takes its place. Where a run had one rank, its times count as much as its process had
a core (seconds_processor): other work on the machine, or waiting for the disk, makes the run
longer, but not its clock. Files of before all of this was recorded (early 0.1.0) have no clock.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.algorithms.declaration import Declaration, shared_episodes
from esac_mpi.analysis.clock import recorded_tasks
from esac_mpi.analysis.measures import core_share, generation_seconds, read_busy, seconds
from esac_mpi.analysis.messages import Unusable
from esac_mpi.comm import schedule
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.generations import Generation, ticks
from esac_mpi.config import individuals
from esac_mpi.record import RunFiles

Parts = dict[str, np.ndarray]  # by name, each [generations] or [generations, ...]
ALONE = ("record", "serial", "offspring", "offspring_expected", "update")  # parts as they are


def describe_ranks(ranks: int) -> str:
    """Return "computed for N ranks"."""
    return f"computed for {ranks:,} rank{'s' * (ranks > 1)}"


def generation_ends(run: RunFiles, ranks: int) -> np.ndarray:
    """Compute when each generation would have ended, float64 [generations] [s]. Raises Unusable."""
    if ranks < 1:
        raise Unusable(f"ranks {ranks}: expected 1 or more")
    return np.fromiter(make_clock(run)(Cluster(ranks)), float, count=run.generation)


def make_clock(run: RunFiles, evaluates: bool = True) -> Callable[[Cluster], Iterator[float]]:
    """Make a function from a cluster to the end of each generation [s]. Raises Unusable."""
    of_tasks = recorded_tasks.has_tasks(run)
    if f"timing/{'task_busy' if of_tasks else 'seconds_processor'}" not in run.columns:
        raise Unusable(f"{run.path}: made before all of its times were recorded, which this needs")
    whole = recorded_tasks.sections(run) if of_tasks else generations(run, times(run))
    made: list[Any] = list(whole)
    if not evaluates:
        made = [replace(one, evaluation=np.zeros(0)) for one in made]
    if not of_tasks:
        return lambda cluster: ticks(made, cluster)
    queue = recorded_tasks.queue(run)
    return lambda cluster: map(queue(cluster).go, made)


def generations(run: RunFiles, parts: Parts) -> Iterator[Generation]:
    """Yield a run's generations; parts: its `times`. Raises Unusable."""
    lasted = phase_seconds(run) * core_share(run)
    blocks, sums = update_blocks(run), 0  # numbers that a member's sums over observations are
    sizes, evolution = str(run.provenance.get("sizes", "")).split(), declaration_of(run).evolution
    if sizes and evolution is not None and evolution(run.config).counts_observations:
        sums = 3 * int(sizes[0])
    first, after_lesson = 0, False  # members that learn before they play; whether from the lesson
    whole, phase = {name: parts[name] for name in ALONE}, np.nan_to_num(lasted)
    if has_lag(run):
        whole["merges"], whole["begun"] = np.isfinite(lasted), np.zeros(run.generation)
        usual = 0.0
        for k, end in flights(run):  # one that has not entered yet lasts as the one before it
            usual = lasted[end] if end < run.generation else usual
            whole["begun"][k] = usual
    elif has_lessons(run):
        first = individuals(run.config.cem_rl)[1]
        after_lesson = run.config.cem_rl.critic == "serial"
        whole["lesson"] = phase
    elif has_offspring(run):
        whole["merges"], whole["beside"] = np.ones(run.generation, bool), phase
    else:
        whole["phase"] = phase
    for k in range(run.generation):
        evaluation, members, expected = (
            parts[name][k] for name in ("evaluation", "members", "expected")
        )
        made = np.isfinite(members)
        yield Generation(
            members=members[first:][made[first:]],
            expected=expected[first:][made[first:]],
            trained=members[:first][made[:first]],
            evaluation=evaluation[np.isfinite(evaluation)],
            sums=sums,
            after_lesson=after_lesson,
            blocks=blocks,
            **{name: values[k] for name, values in whole.items()},
        )


def times(run: RunFiles) -> Parts:
    """Collect the parts of every generation but the phase, as in `Generation`; nan: none."""
    ranks, total, most, _ = read_busy(run)
    if len(ranks) != run.generation:
        raise Unusable(f"{run.path}: no busy seconds of ranks are recorded")
    one, share = ranks == 1, core_share(run)
    part = {
        name: seconds(run, name)
        for name in ("record", "evaluate", "plan", "offspring", "learn", "update", "evaluation")
    }
    phase = np.nan_to_num(phase_seconds(run))
    members, expected, alone = pieces(run, total, phase)
    born, born_expected = offspring(run)
    evaluation = run.columns["timing/evaluation_seconds"]
    beside = has_phase_beside(run)
    rest = generation_seconds(run) - sum(part.values())  # outside all parts
    rest += np.where(
        one, part["evaluate"] - alone, np.where(beside, 0.0, part["evaluate"] - most)
    ).clip(0) * (alone > 0)
    # where nobody played, in whose time this would be
    rest += np.where(np.isfinite(members).any(axis=1), 0.0, alone)
    rest += np.where(one, part["offspring"] - born.sum(axis=1), 0.0).clip(0)
    rest += np.where(one, part["evaluation"] - np.nan_to_num(evaluation).sum(axis=1), 0.0)
    # training episodes are a part of the learner's time
    played = 0.0 if "timing/seconds_evaluate" in run.columns else alone
    rest += np.where(one | (not has_lag(run)), part["learn"] - phase - played, 0.0).clip(0)
    return {
        "members": members * share[:, None],
        "expected": expected,
        "record": part["record"] * share,
        "serial": (rest.clip(0) + part["plan"]) * share,
        "offspring": born * share[:, None],
        "offspring_expected": born_expected,
        "update": part["update"] * share / update_share(run, ranks),
        "evaluation": evaluation * share[:, None],
    }


def pieces(
    run: RunFiles, total: np.ndarray, phase: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return members' times and expected times [generations, n], and the sum [generations] [s].

    Trial episodes are among them, nan in a generation without; nan is the time of a
    member that played nothing. total: busy seconds of all ranks. Members' noise and what was
    between them are shared out alike. Training episodes that ranks share, whose single times are
    not recorded, are taken to be of equal length.
    """
    own = run.columns.get("timing/member_seconds")
    if own is None:
        count = shared_episodes(run.config)
        alone = np.maximum(total - phase, 0.0) * (count > 0)
        equal = np.repeat(alone[:, None] / max(count, 1), count, axis=1)
        return equal, np.ones_like(equal), alone
    expected = np.nan_to_num(run.columns.get("timing/member_expected", np.ones_like(own)), nan=1.0)
    # the ranks' busy seconds are not of members alone, and each episode's are whole
    if has_offspring(run):
        return own, expected, np.nansum(own, axis=1)
    trials, evolution = run.columns.get("timing/trial_seconds"), declaration_of(run).evolution
    if trials is not None and evolution is not None:
        episodes_of_member = evolution(run.config).fitness_episodes
        own = np.hstack([own, trials])
        expected = schedule.with_trials(expected, episodes_of_member, trials.shape[1])
    overhead = (total - np.nansum(own, axis=1)).clip(0) / np.isfinite(own).sum(axis=1).clip(1)
    return own + overhead[:, None], expected, total


def offspring(run: RunFiles) -> tuple[np.ndarray, np.ndarray]:
    """Return time and expected time of each slot's next member, [generations, k], k = 0 without."""
    none = np.zeros((run.generation, 0))
    return run.columns.get("timing/offspring_seconds", none), run.columns.get(
        "timing/offspring_expected", none
    )


def has_offspring(run: RunFiles) -> bool:
    """Tell whether the ranks make a next population, beside which the learner's phase runs."""
    return "timing/offspring_seconds" in run.columns


def phase_seconds(run: RunFiles) -> np.ndarray:
    """Return the time of the phase that entered in each generation, or nan [generations] [s]."""
    return run.columns.get("timing/seconds_phase", np.full(run.generation, np.nan))


def update_share(run: RunFiles, ranks: np.ndarray) -> np.ndarray:
    """Return the busiest rank's part of the update [generations], as if nodes had been equal."""
    nodes, blocks = int(run.provenance.get("nodes", 1)), update_blocks(run)
    each = {
        count: Cluster(count, -(-count // nodes)).share(blocks)
        for count in np.unique(ranks).tolist()
        if count
    }
    return np.array([each.get(count, 1.0) for count in ranks.tolist()])


def update_blocks(run: RunFiles) -> float:
    """Count the parts of a shared update: blocks of parameters, or members and two others."""
    born, _ = offspring(run)
    return born.shape[1] + 2.0 if has_offspring(run) else float(run.provenance.get("blocks", 1))


def declaration_of(run: RunFiles) -> Declaration:
    """Look up the Declaration of a run's algorithm."""
    found: Declaration = ALGORITHMS[run.config.algorithm].DECLARES
    return found


def has_lag(run: RunFiles) -> bool:
    """Tell whether the learner's phases run in parallel to the evaluation."""
    learning = declaration_of(run).learning
    return learning is not None and learning.beside(run.config)


def has_lessons(run: RunFiles) -> bool:
    """Tell whether a critic is trained beside a generation's members and trains some of them."""
    declares = declaration_of(run)
    return declares.work == "episodes" and declares.operators(run.config) == "individuals"


def flights(run: RunFiles) -> list[tuple[int, int]]:
    """List the rows in which each phase beside the evaluation began and entered, if it has."""
    phases = run.columns.get("metrics/learner_phases", np.zeros(run.generation))
    entered = np.flatnonzero(np.diff(phases, prepend=0))
    ends = np.append(entered, run.generation)
    names = [name for name in run.columns.scalars if re.fullmatch("metrics/.*_phase", name)]
    started = np.flatnonzero(run.columns[names[0]]) if names else np.zeros(0, int)
    return [(int(k), int(ends[np.searchsorted(entered, k, "right")])) for k in started]


def has_phase_beside(run: RunFiles) -> np.ndarray:
    """Return whether a learner phase was in flight at each evaluation, bool [generations]."""
    if has_lessons(run):
        return np.isfinite(phase_seconds(run))
    found = np.zeros(run.generation, bool)
    for k, end in flights(run) if has_lag(run) else ():
        found[k + 1 : end + 1] = True
    return found
