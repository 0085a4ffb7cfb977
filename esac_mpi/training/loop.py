"""The outer loop: generation after generation, evaluate, record, checkpoint, stop in time."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from esac_mpi.comm.world import World
from esac_mpi.config import Config
from esac_mpi.envs import Env
from esac_mpi.host import log, process_state
from esac_mpi.host.errors import FAILED, FINISHED, STOPPED, UNSAVED, BrokenAlgorithm
from esac_mpi.host.stop import Abandoned
from esac_mpi.play import state
from esac_mpi.play.counters import Best
from esac_mpi.play.rollout import NoFiniteReturn
from esac_mpi.training import active_run, evaluation
from esac_mpi.training.active_run import Job
from esac_mpi.training.ended import Ended
from esac_mpi.training.set_up import set_up
from esac_mpi.training.task_set_up import let_go

RECORDED = 64  # ranks of which a row has the busy seconds
SILENCE = 20  # generations for which rank 0 waits for the others, at least
SET_UP = 1800.0  # least time for imports, the lock of the job before and a replay [s]
IN_FULL = 5  # generations or evaluations with returns not finite that are all told
# of the job's time [s]: the lesser of the two is kept for what was not foreseen
SPARE, SPARE_FRACTION = 30.0, 0.05

# a row by its columns -> whether the run is to end here, saved
Listener = Callable[[dict[str, Any]], object]


def train(
    config: Config,
    fresh: bool,
    world: World,
    command: list[str],
    seconds_left: float = math.inf,
    listener: Listener | None = None,
) -> int:
    """Run `config` to the end of its budget, or go on; return the exit code. Raises Ended.

    seconds_left: what the batch system leaves to this job [s]. listener: rank 0's hears of
    every generation.
    """
    world.stop.grace = config.stop.grace_seconds
    own = 3600 * config.max_hours or math.inf
    limit = "--max-hours are over" if own < seconds_left else "the batch job's time is over"
    seconds_left = min(own, seconds_left)
    deadline = world.clock() + seconds_left - min(SPARE, SPARE_FRACTION * seconds_left)
    member = 60 * config.stop.member_minutes or math.inf
    silence = math.inf if world.rank else 60 * config.stop.silent_minutes or math.inf
    world.watchdog.member_limit = max(member, SET_UP)
    world.watchdog.silence_limit = max(silence, SET_UP)
    world.watchdog.watch()
    tasks: list[Env | None] = []
    job = None
    try:
        job = set_up(config, fresh, world, command, tasks)
        world.watchdog.member_limit, world.watchdog.silence_limit = member, silence
        job.listener, job.has_listener = listener, world.from_root(listener is not None)
        job.limit = world.from_root(limit)
        # rank 0's decides, on every rank's own clock
        job.deadline = world.clock() + world.from_root(deadline - world.clock())
        world.agree()
        go_on(job)
        code = finish(job, "--fresh" in command)
        world.end_dispatch()
        let_go(*tasks)
        return code
    except BaseException as error:  # also what leaves a script, whose process lives on
        if job and job.run:
            active_run.fail(job, error)
        if world.size == 1 or isinstance(error, Ended):  # on all ranks: the process may live on
            let_go(*tasks)
        if job is None and isinstance(error, Ended) and error.code == FINISHED:
            log.say(f"esac_mpi: {error}")
            return FINISHED
        raise
    finally:
        if job and job.run and job.display:
            job.display.close()
            job.run.close()


def go_on(job: Job) -> None:
    """Make generations until the budget is spent, or a rank wishes to stop."""
    world, start = job.world, job.world.clock()
    before = job.run.wall_seconds if job.run else 0.0
    tried = job.state.generation, start
    recording = 0.0
    saved_before = len(job.saving)
    processor = time.process_time()
    keep_time(job)
    over = False
    while job.unevaluated or not (active_run.at_end(job) or world.stopping or over):
        began = world.clock()
        try:
            if not job.unevaluated:
                made_before = job.state.generation
                with process_state.preserve_state(wholly=False):
                    job.unevaluated = job.algorithm.generation(
                        job.params, job.state, world, job.env, job.learner
                    )
                check_counted(job, made_before)
                state.settle(job.state)
            row, timing = job.unevaluated
            made = world.clock()
            columns, episodes = evaluation.on_schedule(job)
            row.update(columns)
            if math.isfinite(job.deadline):  # now: others do not wait while rank 0 writes
                job.slowest = world.from_root(slowest_save(job))
        except Abandoned:  # what is unfinished is made again at the next start
            return
        except NoFiniteReturn as error:  # on all ranks
            tell_number(job, job.unstable + 1)
            raise NoFiniteReturn(f"{error}{of_task(job)}") from error
        job.unevaluated = None
        tell_number(job, job.state.counters.unstable_episodes)
        if job.run:
            now, used = world.clock(), time.process_time()
            saving = job.saving[saved_before:]
            seconds, size = np.sum(saving, axis=0) if saving else (0.0, 0)
            timing |= {
                "wall_seconds": before + now - start,
                "bytes_exchanged": world.bytes_exchanged,
                "seconds_evaluation": now - made,
                "seconds_record": recording,  # of the row before this one
                "evaluation_seconds": episodes,
                "seconds_processor": used - processor,
                "seconds_checkpoint": seconds,
                "bytes_checkpoint": size,
            }
            processor = used
            saved_before = len(job.saving)
            add_row(job, row, timing)
            tried = active_run.checkpoint_if_due(job, tried)
            recording = world.clock() - now
        if job.config.budget.minutes:
            # as the next start reads it
            job.trained = world.from_root(job.run.wall_seconds if job.run else 0.0)
        over = end_is_wished(job)
        job.seconds.append(world.clock() - began)
        keep_time(job)


def check_counted(job: Job, before: int) -> None:
    """Raise BrokenAlgorithm unless one more generation is counted, without which none is last."""
    if job.state.generation != before + 1:
        own = f"generation() of {job.config.algorithm}"
        left = f"left state.generation = {job.state.generation}"
        raise BrokenAlgorithm(f"{own} {left}, not {before + 1}")


def end_is_wished(job: Job) -> bool:
    """Call rank 0's listener; return on all ranks whether it ends the run."""
    if not job.has_listener:
        return False
    answer = None
    if job.run and job.listener:
        row = {n: v.copy() if np.ndim(v) else v.item() for n, v in job.run.last_row().items()}
        answer = job.listener({**row, "wall_seconds": job.run.wall_seconds})
    if answer:
        job.world.stop.why = job.world.stop.why or "the callback's answer"
    return bool(job.world.from_root(bool(answer)))


def slowest_save(job: Job) -> float:
    """Find the time of the slowest save, on ranks that save nothing as they were told [s]."""
    return max((seconds for seconds, _ in job.saving), default=job.slowest)


def keep_time(job: Job) -> None:
    """Tell the watchdog what is usual; wish to stop unless two more generations fit."""
    world, limit = job.world, 60 * job.config.stop.silent_minutes
    world.watchdog.generation = job.state.generation + 1
    if limit and world.rank == 0:
        usual = float(np.median([*job.seconds] or [0.0]))
        world.watchdog.silence_limit = max(limit, SILENCE * usual)
    if math.isfinite(job.deadline):
        last = job.deadline - 3 * slowest_save(job)
        world.stop.give_up_at(last, job.limit)
        if world.rank == 0 and world.clock() + 2 * max(job.seconds, default=0.0) > last:
            world.stop.wish(job.limit)


def add_row(job: Job, row: dict[str, Any], timing: dict[str, Any]) -> None:
    """Add a generation to the run's history; show it. Rank 0 only."""
    assert job.run is not None
    timing |= busy_columns(timing["busy_seconds"], job.state.generation)
    job.run.append({"generation": job.state.generation, **vars(job.state.counters), **row}, timing)
    fitness = row[job.algorithm.DECLARES.fitness]
    if np.ndim(fitness):  # one of each member
        tell_not_finite(job, np.flatnonzero(~np.isfinite(fitness)).tolist())
    if job.evaluated:
        tell_spoilt(job, {name: row[f"evaluation_{name}"] for name in job.state.policies})
    if job.state.best.generation == job.state.generation:
        active_run.attempt(lambda: active_run.save_policy(job, job.state.best))
    job.run.publish_metrics()
    if job.display:
        job.display.update(display_row(job, row, timing))


def tell_not_finite(job: Job, members: list[int]) -> None:
    """Say whose returns are not finite: at first, then when their generations have doubled."""
    if members and is_time_to_say(job, "members"):
        told = f"the return of member(s) {members} is not finite: ranked last, counted"
        count = job.said["members"]
        more = f", in {count} generations so far" if count > IN_FULL else ""
        log.say(f"generation {job.state.generation}: {told}{more}{of_task(job)}")


def tell_spoilt(job: Job, returns: dict[str, np.ndarray]) -> None:
    """Say which evaluations, {policy: returns}, are not finite; ever more rarely."""
    k = job.state.generation
    finite = {name: np.isfinite(values) for name, values in returns.items()}
    names = ", ".join(name for name, each in finite.items() if not each.all())
    if not any(each.any() for each in finite.values()):
        none = "the return of no evaluation episode is finite: look at the task"
        log.warn(f"generation {k}: {none}{of_task(job)}")
    elif names and is_time_to_say(job, "evaluations"):
        what = f"an evaluation episode of {names} has no finite return: no best policy"
        log.say(f"generation {k}: {what}")


def of_task(job: Job) -> str:
    """Say which number of the task was not finite, where that is known."""
    return f"; the task's {job.number}" if job.number else ""


def tell_number(job: Job, unstable: int) -> None:
    """Say once which number was not finite, if episodes have ended for that; all ranks call this.

    unstable: episodes whose return was not finite, of the whole run.
    """
    if job.number or unstable == job.unstable:
        return
    job.unstable = unstable
    if is_time_to_say(job, "looks"):
        mine = [getattr(env, "not_finite", "") for env in (job.env, job.params.own_env)]
        found = [told for everyone in job.world.gather(mine) for told in everyone if told]
        job.number = found[0] if found else ""
        if found and job.world.rank == 0:
            such = "such an episode is unstable and ranks last (told once)"
            log.warn(f"{job.config.task.id}: {job.number}: {such}")


def is_time_to_say(job: Job, what: str) -> bool:
    """Count what there is to say; tell whether to say it: the first few times, then by doubling."""
    job.said[what] += 1
    return job.said[what] <= IN_FULL or job.said[what].bit_count() == 1


def busy_columns(busy: np.ndarray, generation: int) -> dict[str, Any]:
    """Make a row's columns of busy seconds [ranks]; of RECORDED ranks, others in turn."""
    first, others = 1, RECORDED - 1
    if len(busy) > RECORDED:
        first += generation % -(-(len(busy) - 1) // others) * others
    return {
        "busy_seconds": np.concatenate([busy[:1], busy[first : first + others]]),
        "busy_first": first,
        "busy_ranks": len(busy),
        "busy_min": busy.min(),
        "busy_mean": busy.mean(),
        "busy_max": busy.max(),
    }


def finish(job: Job, fresh: bool = False) -> int:
    """Save the state; at the budget's end evaluate; return the exit code. fresh: as given."""
    complete, final, best = active_run.at_end(job) and not job.unevaluated, Best(), job.state.best
    if complete:
        try:
            final, best = evaluation.at_end(job)
        except Abandoned:
            complete = False
    code = FINISHED if complete else STOPPED
    reasons = dict.fromkeys(why for why in job.world.gather(job.world.stop.why) if why)
    if job.run:
        status = "complete" if complete else "requeue"
        began = job.run.restored.generation if job.run.restored else 0
        in_vain = 0 < job.config.stop.starts <= job.run.starts and job.state.generation == began
        failed = not best.policy if complete else in_vain
        if failed:
            status, code = "failed", FAILED
        # again: a full disk may have had room since
        written = not best.policy or active_run.attempt(lambda: active_run.save_policy(job, best))
        if not active_run.save(job, status, best, final) or not written:
            code = UNSAVED
            active_run.fail(job)
        if job.display:
            job.display.close()
        but = ", without --fresh," if fresh else ""
        say_end(job, code, best if written else Best(), final, but, ", ".join(reasons))
        job.run.close()
    return job.world.from_root(code)


def display_row(job: Job, row: dict[str, Any], timing: dict[str, Any]) -> dict[str, Any]:
    """Choose what the display shows of a generation; it keeps the last figure where one is nan."""
    counters = job.state.counters
    fitness = np.atleast_1d(row[job.algorithm.DECLARES.fitness])
    finite = fitness[np.isfinite(fitness)]
    return {
        "generation": job.state.generation,
        "progress": min(active_run.progress(job, timing["wall_seconds"]), 1.0),
        "env_steps": counters.env_steps,
        "fitness_mean": finite.mean() if finite.size else np.nan,
        "fitness_max": finite.max() if finite.size else np.nan,
        **{f"evaluation_{name}": row[f"evaluation_{name}"].mean() for name in job.state.policies},
        "sigma": row.get("sigma", np.nan),
        "gradient_updates": counters.gradient_updates,
        "wall_seconds": timing["wall_seconds"],
    }


def say_end(job: Job, code: int, best: Best, final: Best, but: str = "", why: str = "") -> None:
    """Say where the results are; but: how the command that goes on differs. Rank 0 only.

    why: what stopped it before its budget was spent.
    """
    assert job.run is not None
    here = f"generation {job.state.generation}"
    if code == FINISHED:
        found = f"best return {log.figures(best.episodic_return)} ({best.policy})"
        if final.policy:
            found += f", final {log.figures(final.episodic_return)} ({final.policy})"
        log.say(f"finished at {here}: {found}")
    elif code == STOPPED:
        by = f" ({why})" if why else ""
        log.say(f"stopped at {here}{by}, saved; run the same command again{but} to go on")
    elif code == FAILED and active_run.at_end(job) and not best.policy:
        end = "the end of its budget: no evaluation and its confirmation had all returns finite"
        log.warn(f"failed at {here}, {end}{of_task(job)}")
    elif code == FAILED:
        starts = f"{job.run.starts} starts in a row before it"
        log.warn(f"stopped at {here} as {starts}: failed (stop.starts)")
    else:
        log.warn(f"{here} is not wholly saved: {active_run.describe_saved(job)}")
    active_run.say_files(job.run.path, job.state.generation, bool(best.policy))
