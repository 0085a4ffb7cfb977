"""Generations as a run recorded them, and when each would have ended on another number of ranks.

What was recorded on rank 0 in the order of the program, row by row: seconds_record of the row before, seconds_evaluate, plan,
offspring, learn, update, evaluation. What shrinks with ranks is taken apart (every member, whoever is born, every evaluation
episode, the update's blocks); whatever else a generation lasted stays as it was. Of more than one rank, waiting for others is
left out, since the cluster's own takes its place. Where a run had one rank, its times count as much as its process had a core
(seconds_processor): other work on the machine, or waiting for the disk, makes the run longer, but not its clock. Files of before
this was recorded have: members expected alike, one block of parameters, evaluation episodes of equal length, and a phase that
cannot be split.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from esac_mpi.analysis.busy import busy
from esac_mpi.analysis.clock import recorded_tasks
from esac_mpi.analysis.clock.core import AS_RECORDED, Core, paces
from esac_mpi.analysis.messages import Unusable
from esac_mpi.comm import schedule
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.generations import Generation, ticks
from esac_mpi.config import individuals
from esac_mpi.record import RunFiles

Parts = dict[str, np.ndarray]  # by name, each [generations] or [generations, ...]


@dataclass(frozen=True)
class Machine:
    """Where a run's clock is computed for."""

    ranks: int
    updates_per_second: float = (
        0.0  # of its learner; 0 = as fast as the one that was recorded, inf = in no time
    )
    core: Core | None = None  # of its ranks; None: as those of the run, at each time

    def __str__(self) -> str:
        rate = f", {self.updates_per_second:,.6g} updates/s" if self.updates_per_second else ""
        return f"computed for {self.ranks:,} rank{'s' * (self.ranks > 1)}{rate}"


def computed(run: RunFiles, machine: Machine) -> np.ndarray:
    """Return when each generation of a run would have ended, float64 [generations] [s]. Raises Unusable."""
    if machine.ranks < 1 or not machine.updates_per_second >= 0:
        raise Unusable(
            f"ranks {machine.ranks}, updates/s {machine.updates_per_second}: expected 1 or more, and a positive rate"
        )
    on_cluster = ends(run, machine.updates_per_second, machine.core)
    return np.fromiter(on_cluster(Cluster(machine.ranks)), float, count=run.generation)


def ends(
    run: RunFiles, updates_per_second: float = 0.0, core: Core | None = None, evaluates: bool = True
) -> Callable[[Cluster], Iterator[float]]:
    """Return what yields, for a cluster, the time at the end of each generation of a run [s]. Raises Unusable.

    evaluates: with the run's evaluations; else as if there had been none.
    """
    if core and (recorded_tasks.has_tasks(run) or bears_offspring(run) or teaches(run)):
        name = run.config.algorithm
        raise Unusable(
            f"{run.path}: {name} has work beside steps and a learner's updates, which no core is told of"
        )
    share = had_a_core(run)
    tasks = (
        recorded_tasks.recorded(run, share, updates_per_second)
        if recorded_tasks.has_tasks(run)
        else None
    )
    parts = task_parts(run, share) if tasks else times(run, core)
    if not evaluates:
        parts["evaluation"] = np.full_like(parts["evaluation"], np.nan)
    if tasks:
        made = list(recorded_tasks.sections(run, parts))
        return lambda cluster: map(recorded_tasks.queue(tasks, cluster).go, made)
    whole = list(generations(run, parts, updates_per_second))
    return lambda cluster: ticks(whole, cluster)


def task_parts(run: RunFiles, share: np.ndarray) -> Parts:
    """Return what generations without a barrier have beside their tasks, as `recorded_tasks.sections` takes it."""
    ranks, total, *_ = busy(run)
    part = {name: seconds(run, name) for name in ("record", "lead", "evaluation")}
    told = np.isfinite(run.columns["timing/task_busy"]).sum(axis=1)
    rest = np.where(ranks == 1, generation_seconds(run) - total - sum(part.values()), 0.0).clip(0)
    evaluation = episodes(run, part["evaluation"], ranks)
    return {
        "record": part["record"] * share,
        "lead": part["lead"] * share / np.maximum(told, 1),
        "serial": rest * share,
        "evaluation": evaluation * share[:, None],
    }


def generations(
    run: RunFiles, parts: Parts, updates_per_second: float = 0.0
) -> Iterator[Generation]:
    """Yield the generations of a run on cores like those that it had, its learner as fast as told. Raises Unusable.

    parts: the run's `times`.
    """
    begun, merges, phase = phases(run, parts, updates_per_second)
    blocks, bears = update_blocks(run), bears_offspring(run)
    lessons, first = phase * teaches(run), trained_members(run)
    phase, sums = phase - lessons, sums_over_observations(run)
    for k in range(run.generation):
        evaluation, members, expected = (
            parts[name][k] for name in ("evaluation", "members", "expected")
        )
        made = np.isfinite(members)
        yield Generation(
            members=members[first:][made[first:]],
            expected=expected[first:][made[first:]],
            sums=sums,
            record=parts["record"][k],
            lesson=lessons[k],
            trained=members[:first][made[:first]],
            after_lesson=getattr(run.config.own, "critic", "") == "serial",
            serial=parts["serial"][k],
            offspring=parts["offspring"][k],
            offspring_expected=parts["offspring_expected"][k],
            beside=phase[k] * bears,
            phase=phase[k] * (not bears),
            merges=bool(merges[k]) or bears,
            update=parts["update"][k],
            blocks=blocks,
            begun=begun[k],
            evaluation=evaluation[np.isfinite(evaluation)],
        )


def times(run: RunFiles, core: Core | None = None) -> Parts:
    """Return the parts of every generation but the phase, as `Generation` has them; evaluation is nan where there was none.

    updating, of_phase: by what to multiply the time of the updates of a phase that entered in it, and of all else of that.
    """
    ranks, total, most, _ = busy(run)
    if len(ranks) != run.generation:
        raise Unusable(f"{run.path}: no busy seconds of ranks are recorded")
    one, share = ranks == 1, had_a_core(run)
    part = {
        name: seconds(run, name)
        for name in ("record", "evaluate", "plan", "offspring", "learn", "update", "evaluation")
    }
    phase = np.nan_to_num(phase_seconds(run))
    members, expected, alone = pieces(run, total, phase)
    born, born_expected = offspring(run)
    evaluation = episodes(run, part["evaluation"], ranks)
    beside = running(run)
    rest = generation_seconds(run) - sum(part.values())  # outside all parts
    rest += np.where(
        one, part["evaluate"] - alone, np.where(beside, 0.0, part["evaluate"] - most)
    ).clip(0) * (alone > 0)
    rest += np.where(
        np.isfinite(members).any(axis=1), 0.0, alone
    )  # where nobody played, in whose time this would be
    rest += np.where(one, part["offspring"] - born.sum(axis=1), 0.0).clip(0)
    rest += np.where(one, part["evaluation"] - np.nan_to_num(evaluation).sum(axis=1), 0.0)
    played = (
        0.0 if "timing/seconds_evaluate" in run.columns else alone
    )  # training episodes are a part of the learner's time
    rest += np.where(one | (not phases_beside(run)), part["learn"] - phase - played, 0.0).clip(0)
    own, learner = (
        paces(run, core, np.nansum(members, axis=1) * share, share)
        if core
        else (AS_RECORDED, AS_RECORDED)
    )
    stepping, updating, of_phase = (
        share * factor for factor in (own.counted, learner.counted, learner.rest)
    )
    share = share * own.rest
    return {
        "members": members * stepping[:, None],
        "expected": expected,
        "record": part["record"] * share,
        "serial": (rest.clip(0) + part["plan"]) * share,
        "offspring": born * share[:, None],
        "offspring_expected": born_expected,
        "update": part["update"] * share / update_share(run, ranks),
        "evaluation": evaluation * share[:, None],
        "updating": updating,
        "of_phase": of_phase,
    }


def pieces(
    run: RunFiles, total: np.ndarray, phase: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what members took and how long they were expected, each [generations, n], and their sum [generations] [s].

    Trial episodes are among them, nan in a generation without; nan is the time of a member that played nothing. total: busy
    seconds of all ranks. Members' noise and what was between them are shared out alike. Training episodes that ranks share, whose
    single times are not recorded, are taken to be of equal length.
    """
    own = run.columns.get("timing/member_seconds")
    if own is None:
        if "metrics/fitness" in run.columns:
            raise Unusable(
                f"{run.path}: made before the time of every member was recorded: it has no clock on other ranks"
            )
        count = shared_episodes(run)
        alone = np.maximum(total - phase, 0.0) * (count > 0)
        equal = np.repeat(alone[:, None] / max(count, 1), count, axis=1)
        return equal, np.ones_like(equal), alone
    expected = np.nan_to_num(run.columns.get("timing/member_expected", np.ones_like(own)), nan=1.0)
    if bears_offspring(
        run
    ):  # the ranks' busy seconds are not of members alone, and each episode's are whole
        return own, expected, np.nansum(own, axis=1)
    if "timing/trial_seconds" in run.columns:
        trials, of_member = (
            run.columns["timing/trial_seconds"],
            getattr(run.config.own, "fitness_episodes", 1),
        )
        own, expected = (
            np.hstack([own, trials]),
            schedule.with_trials(expected, of_member, trials.shape[1]),
        )
    overhead = (total - np.nansum(own, axis=1)).clip(0) / np.isfinite(own).sum(axis=1).clip(1)
    return own + overhead[:, None], expected, total


def offspring(run: RunFiles) -> tuple[np.ndarray, np.ndarray]:
    """Return what each slot's next member took and how long it was expected, [generations, k]; k = 0 where none are born."""
    none = np.zeros((run.generation, 0))
    return run.columns.get("timing/offspring_seconds", none), run.columns.get(
        "timing/offspring_expected", none
    )


def bears_offspring(run: RunFiles) -> bool:
    """Return whether the ranks make a next population, beside which the learner's phase runs."""
    return "timing/offspring_seconds" in run.columns


def episodes(run: RunFiles, lasted: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return what the episodes of each evaluation took [generations, episodes] [s], nan where there was none."""
    names = [name for name in run.columns if name.startswith("metrics/evaluation_")]
    made = np.isfinite(run.columns[names[0]]).any(axis=1) if names else np.zeros(len(lasted), bool)
    count = len(names) * run.config.evaluation.episodes
    turns = np.ceil(max(count, 1) / np.maximum(ranks, 1))  # of a rank
    equal = np.repeat((lasted / turns)[:, None], count, axis=1)
    own = run.columns.get("timing/evaluation_seconds", np.full_like(equal, np.nan))
    more = max(0, own.shape[1] - count)  # those that confirmed a new best policy
    equal = np.pad(equal, ((0, 0), (0, more)), constant_values=np.nan)
    return np.where(made[:, None], np.where(np.isfinite(own), own, equal), np.nan)


def phases(run: RunFiles, parts: Parts, rate: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for every generation, the phase that begins beside what follows [s], whether one ends, and one all wait for [s]."""
    found = duration(run, parts, rate)
    entered = np.isfinite(found)
    begun, none = np.zeros(len(found)), np.zeros(len(found))
    if not phases_beside(run):
        return begun, np.zeros(len(found), bool), np.where(entered, found, 0.0)
    usual = 0.0  # of a phase whose end was not recorded: as the one before it
    for k, end in flights(run):
        usual = found[end] if end < len(found) and entered[end] else usual
        begun[k] = usual
    return begun, entered, none


def duration(run: RunFiles, parts: Parts, rate: float) -> np.ndarray:
    """Return the time of the phase that entered in each generation, nan where none did [generations] [s]. Raises Unusable."""
    lasted = phase_seconds(run)
    updating = run.columns.get("timing/seconds_updates", np.full(run.generation, np.nan))
    if not rate:
        updates = np.nan_to_num(updating) * parts["updating"]
    elif (np.isnan(updating) & np.isfinite(lasted)).any():
        raise Unusable(
            f"{run.path}: made before the time of gradient updates was recorded: its updates/s cannot be others"
        )
    else:
        updates = (
            np.diff(
                run.columns.get("metrics/gradient_updates", np.zeros(run.generation)), prepend=0
            )
            / rate
        )
    return (lasted - np.nan_to_num(updating)) * parts["of_phase"] + updates


def phase_seconds(run: RunFiles) -> np.ndarray:
    """Return the time of the phase that entered in each generation, nan where none did [generations] [s]."""
    entered = (
        np.diff(run.columns.get("metrics/learner_phases", np.zeros(run.generation)), prepend=0) > 0
    )
    if not entered.any():
        return np.full(run.generation, np.nan)
    older = np.where(
        entered, busy(run).root, np.nan
    )  # without a population, rank 0's busy time is its phase
    return run.columns.get("timing/seconds_phase", older)


def had_a_core(run: RunFiles) -> np.ndarray:
    """Return the share of each generation's time in which a core was there [generations], 1 where it cannot be told."""
    used = run.columns.get("timing/seconds_processor")
    if used is None or str(run.provenance.get("device", "")).startswith("cuda"):
        return np.ones(run.generation)
    lasted = generation_seconds(run)
    told = np.isfinite(used) & (lasted > 0) & (busy(run).ranks == 1)
    return np.divide(used, lasted, out=np.ones(run.generation), where=told).clip(0, 1)


def update_share(run: RunFiles, ranks: np.ndarray) -> np.ndarray:
    """Return the part of the update that the busiest rank made [generations]; ranks are taken to have been on equal nodes."""
    nodes, blocks = int(run.provenance.get("nodes", 1)), update_blocks(run)
    each = {
        count: Cluster(count, -(-count // nodes)).share(blocks)
        for count in np.unique(ranks).tolist()
        if count
    }
    return np.array([each.get(count, 1.0) for count in ranks.tolist()])


def update_blocks(run: RunFiles) -> float:
    """Return in how many parts ranks share an update: blocks of parameters, or members, champion and the learner's memory."""
    born, _ = offspring(run)
    return born.shape[1] + 2.0 if bears_offspring(run) else float(run.provenance.get("blocks", 1))


def sums_over_observations(run: RunFiles) -> int:
    """Return how many numbers a member's sums over observations are; 0 where the population does not normalise them."""
    sizes = str(run.provenance.get("sizes", "")).split()
    return (
        3 * int(sizes[0])
        if sizes and getattr(run.config.own, "observation_normalisation", False)
        else 0
    )


def generation_seconds(run: RunFiles) -> np.ndarray:
    """Return how long each generation lasted, the writing of the row before it included [generations] [s]."""
    return np.diff(run.columns.get("timing/wall_seconds", np.zeros(0)), prepend=0)


def seconds(run: RunFiles, name: str) -> np.ndarray:
    """Return a part's seconds in every generation [generations], 0 where the algorithm has none."""
    return np.nan_to_num(run.columns.get(f"timing/seconds_{name}", np.zeros(run.generation)))


def phases_beside(run: RunFiles) -> bool:
    """Return whether the learner's phases run beside the evaluation."""
    own = run.config.own
    return (
        getattr(own, "learner_lag", 0) > 0 or getattr(own, "phase_timing", "interval") == "virtual"
    )


def teaches(run: RunFiles) -> bool:
    """Return whether a critic has its lessons beside the members of the same generation, of which it trains some."""
    return hasattr(run.config.own, "trained_fraction")


def trained_members(run: RunFiles) -> int:
    """Return how many members of a generation learn before they play; they stand first."""
    options: Any = run.config.own
    return individuals(options)[1] if teaches(run) else 0


def flights(run: RunFiles) -> list[tuple[int, int]]:
    """Return the rows in which each phase beside the evaluation began and entered, which the newest may not have done yet."""
    begun, lag = np.flatnonzero(started(run)), getattr(run.config.own, "learner_lag", 0)
    if getattr(run.config.own, "phase_timing", "interval") == "interval":
        return [(int(k), int(k) + lag) for k in begun]
    entered = np.flatnonzero(np.isfinite(phase_seconds(run)))
    ends = np.append(entered, run.generation)
    return [(int(k), int(ends[np.searchsorted(entered, k, "right")])) for k in begun]


def started(run: RunFiles) -> np.ndarray:
    """Return whether a phase began in each generation [generations]."""
    names = [
        name
        for name in run.columns.scalars
        if name.startswith("metrics/") and name.endswith("_phase")
    ]
    return run.columns[names[0]].astype(bool) if names else np.zeros(run.generation, bool)


def running(run: RunFiles) -> np.ndarray:
    """Return whether a learner phase ran beside each generation's evaluation: until it entered after one began."""
    if teaches(run):
        return np.isfinite(phase_seconds(run))
    found = np.zeros(run.generation, bool)
    for k, end in flights(run) if phases_beside(run) else ():
        found[k + 1 : end + 1] = True
    return found


def shared_episodes(run: RunFiles) -> int:
    """Return how many training episodes of a generation the ranks share, 0 where rank 0 plays alone."""
    options = run.config.own
    return (
        int(getattr(options, "episodes_per_generation", 0))
        if getattr(options, "episodes_on", "root") == "ranks"
        else 0
    )
