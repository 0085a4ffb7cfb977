"""The outer loop: set up, restore, generation after generation, evaluate, record, checkpoint, stop."""

import math
import platform
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from esac_mpi import affinity, envs, learners, log, mutation, provenance, rollout, state
from esac_mpi.algorithms import ALGORITHMS, es
from esac_mpi.comm import Abandoned, World
from esac_mpi.config import Config
from esac_mpi.policy import Layout, Policy

if TYPE_CHECKING:
    from esac_mpi.record import Run

FINISHED, STOPPED, WRONG_USAGE, NO_CHECKPOINT, UNSAVED, FAILED = 0, 75, 2, 65, 74, 1
RETRY = 60.0  # time after which a checkpoint that could not be written is tried again [s]
SILENCE = 20  # generations for which rank 0 waits for the others, at least
SPARE, SPARE_FRACTION = 30.0, 0.05  # of max_hours, kept for what was not foreseen: the lesser of the two [s]


class Ended(Exception):
    """The run ends here, on all ranks, with `code`; rank 0 prints the message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def together(world: World, action: Callable[[], Any], codes: dict[type[Exception], int]) -> Any:
    """Run `action` on every rank; if one fails with an error of `codes`, all ranks raise Ended with the first such error."""
    failure, result = None, None
    try:
        result = action()
    except tuple(codes) as error:
        code = next(code for kind, code in codes.items() if isinstance(error, kind))
        failure = (code, str(error))
    for found in world.gather(failure):
        if found is not None:
            raise Ended(*found)
    return result


@dataclass
class Job:
    """Everything a run is made of, on one rank. `run`, `learner` and `display` are None on all ranks but 0."""

    config: Config
    world: World
    env: envs.Env
    params: Any
    state: Any
    policy: Policy
    learner: Any
    run: "Run | None" = None
    display: log.Display | None = None
    unevaluated: tuple[dict[str, Any], dict[str, Any]] | None = None  # row and timing of a generation without its evaluation
    deadline: float = math.inf  # when the batch job must be over, by rank 0's clock [s]
    seconds: list[float] = field(default_factory=list)  # of the generations since the start [s]
    saving: list[float] = field(default_factory=list)  # of the checkpoints since the start [s]

    @property
    def algorithm(self) -> Any:
        """The algorithm's module."""
        return ALGORITHMS[self.config.algorithm]

    @property
    def evaluated(self) -> bool:
        """Whether this generation is one of those that are evaluated."""
        return self.state.generation % self.config.evaluation.every == 0


def train(config: Config, fresh: bool, world: World, command: list[str], seconds_left: float = math.inf) -> int:
    """Run `config` to the end of its budget, from where its run directory stands; return the exit code.

    seconds_left: what the batch system leaves to this job [s].
    """
    world.stop.grace = config.stop.grace_seconds
    seconds_left = 3600 * config.max_hours or seconds_left
    deadline = world.clock() + seconds_left - min(SPARE, SPARE_FRACTION * seconds_left)
    try:
        job = set_up(config, fresh, world, command)
    except Ended as end:
        if world.rank == 0:
            log.say(f"esac_mpi: {end}") if end.code == FINISHED else print(f"esac_mpi: {end}", file=sys.stderr, flush=True)
        return end.code
    job.deadline = deadline
    if config.stop.member_minutes:
        world.watchdog.member_limit = 60 * config.stop.member_minutes
    try:
        world.agree()
        go_on(job)
        return finish(job)
    except Exception:
        if job.run:
            fail(job)
        raise


def go_on(job: Job) -> None:
    """Make generations until the budget is spent, or a rank wishes to stop."""
    world, start = job.world, job.world.clock()
    before = job.run.wall_seconds if job.run else 0.0
    tried, recording, saved_before = (job.state.generation, start), 0.0, len(job.saving)
    keep_time(job)
    world.watchdog.watch()
    while job.unevaluated or (progress(job) < 1 and not world.stopping):
        began = world.clock()
        try:
            if not job.unevaluated:
                job.unevaluated = job.algorithm.generation(job.params, job.state, world, job.env, job.learner)
            row, timing = job.unevaluated
            made = world.clock()
            row.update(evaluation_columns(job))
        except Abandoned:  # what is unfinished is made again at the next start
            return
        job.unevaluated = None
        if job.run:
            now = world.clock()
            timing.update(wall_seconds=before + now - start, bytes_exchanged=world.bytes_exchanged)
            timing.update(seconds_evaluation=now - made, seconds_record=recording)  # of the row before this one
            timing.update(seconds_checkpoint=sum(job.saving[saved_before:]))
            saved_before = len(job.saving)
            add_row(job, row, timing)
            job.run.beat()
            tried = checkpoint_if_due(job, tried)
            recording = world.clock() - now
        job.seconds.append(world.clock() - began)
        keep_time(job)


def keep_time(job: Job) -> None:
    """Tell the watchdog what is usual; on rank 0, wish to stop when what is left may not last for two more generations."""
    world, limit = job.world, 60 * job.config.stop.silent_minutes
    world.watchdog.generation = job.state.generation + 1
    if world.rank:
        return
    if limit:
        world.watchdog.silence_limit = max(limit, SILENCE * float(np.median(job.seconds or [0.0])))
    if math.isfinite(job.deadline):
        last = job.deadline - 3 * max(job.saving, default=0.0)
        world.stop.give_up_at(last)
        if world.clock() + 2 * max(job.seconds, default=0.0) > last:
            world.stop.wished = True


def set_up(config: Config, fresh: bool, world: World, command: list[str]) -> Job:
    """Make task, state and learner, then the run directory; restore what it holds. Raises Ended."""
    task_errors: dict[type[Exception], int] = {envs.TaskError: WRONG_USAGE, ImportError: WRONG_USAGE}
    env = together(world, lambda: envs.make(config.task.id, config.task.horizon), task_errors)
    layout = Layout((env.observation_size, *config.policy.hidden, env.action_size))
    mutate = together(
        world, lambda: mutation.make(config, layout, world), {mutation.TableTooSmall: WRONG_USAGE, MemoryError: WRONG_USAGE}
    )
    beside = together(world, lambda: learner_env(config, world), task_errors)
    params = ALGORITHMS[config.algorithm].Params(config, layout, env.horizon, mutate, beside)
    initial = together(world, lambda: ALGORITHMS[config.algorithm].init(params, world), {MemoryError: WRONG_USAGE})
    learner = together(world, lambda: make_learner(config, layout, env.horizon, world), {learners.NoDevice: WRONG_USAGE})
    job = Job(config, world, env, params, initial, es.make_policy(params, env), learner)

    device = "none" if learner is None else str(learner.device)
    threads = config.learner.threads if config.algorithm != "es" else 0
    origin = provenance.gather(config.seed, env, world, device, threads, command)
    if world.agree():
        raise Ended(STOPPED, "stopped before it began; nothing was written")
    job.run = together(world, lambda: begin(job, fresh, origin), exit_codes(world))
    together(world, lambda: restore(job), exit_codes(world))
    state.share(job.state, world)
    if world.from_root(job.unevaluated is not None) and world.rank:
        job.unevaluated = {}, {}
    check_directory_is_shared(job)
    world.learning = bool(getattr(job.state, "phase_begun", 0))  # it is begun again
    if progress(job) >= 1 and world.from_root(job.run is not None and job.run.complete):
        where = run_directory(config)
        raise Ended(FINISHED, f"the run in {where} is finished; raise its budget to go on, or --fresh to start over")
    refuse_without_progress(job)
    if job.run:
        announce(job, origin)
        take_up(job, job.run)
    return job


def refuse_without_progress(job: Job) -> None:
    """Make a run that has been started too often in vain a failed one. Raises Ended."""
    limit, run = job.config.stop.starts, job.run
    if not job.world.from_root(run is not None and 0 < limit < run.starts):
        return
    if run:
        fail(job)
    where = run_directory(job.config) / "log.txt"
    raise Ended(
        FAILED,
        f"{limit} starts in a row without a new checkpoint (stop.starts): the run counts as failed now. Look at {where}; "
        "the same command starts it again",
    )


def check_directory_is_shared(job: Job) -> None:
    """Warn if a node does not see the run directory: a restart whose rank 0 is there would not find the run."""
    world = job.world
    path, content = world.from_root((job.run.path, (job.run.path / "run.lock").read_bytes()) if job.run else None)
    seen = bool(world.local) or sees(path / "run.lock", content, world.clock)
    blind = sorted({world.hosts[rank] for rank, here in enumerate(world.gather(seen)) if not here})
    if blind and world.rank == 0:
        log.warn(f"{', '.join(blind)} cannot see {path}: started again with its first rank there, the run would begin anew")


def sees(path: Path, content: bytes, clock: Callable[[], float], patience: float = 5.0) -> bool:
    """Return whether a file has this content, now or soon: a network file system may take a moment."""
    end = clock() + patience
    while clock() < end:
        with suppress(OSError):
            if path.read_bytes() == content:
                return True
        time.sleep(0.1)
    return False


def make_learner(config: Config, layout: Layout, horizon: int, world: World) -> Any:
    """Return the SAC learner, on rank 0 of the algorithms that have one."""
    if world.rank or config.algorithm == "es":
        return None
    esac = config.esac  # a phase keeps the transitions that it overwrites, until its result enters
    reserve = max(esac.sac_episodes * horizon, esac.sac_min_steps + horizon)
    if config.algorithm == "sac":
        reserve = config.sac.steps_per_generation
    return learners.make("sac", config, layout, layout.initial(config.seed, es.THETA_SAC), reserve=reserve)


def learner_env(config: Config, world: World) -> envs.Env | None:
    """Return an environment of its own for SAC phases that run beside the evaluation, on rank 0."""
    lagged = config.algorithm == "esac" and config.esac.learner_lag
    return envs.make(config.task.id, config.task.horizon) if lagged and world.rank == 0 else None


def begin(job: Job, fresh: bool, origin: dict[str, Any]) -> "Run | None":
    """Open the run directory, on rank 0."""
    if job.world.rank:
        return None
    from esac_mpi.record import Run

    run = Run.begin(run_directory(job.config), job.config, origin, fresh)
    log.append_to(run.path / "log.txt", 0, platform.node())
    return run


def exit_codes(world: World) -> dict[type[Exception], int]:
    """Return the exit codes of what the run directory can refuse."""
    if world.rank:
        return {}
    from esac_mpi import record

    return {record.Refused: WRONG_USAGE, record.Unreadable: NO_CHECKPOINT, record.Unsaved: UNSAVED}


def run_directory(config: Config) -> Path:
    """Return the run directory: the one named, or a name made of task, algorithm and seed."""
    task = config.task.id.replace("/", "-").replace(":", "-")
    return Path(config.run_dir or f"runs/{task}-{config.algorithm}-seed{config.seed}")


def restore(job: Job) -> None:
    """Load the run's checkpoint into state and learner, on rank 0; write the first one of a new run."""
    if job.run is None:
        return
    if job.run.restored is None:
        job.run.checkpoint(0, state.arrays(job.state), learner_arrays(job), replay(job))
        return
    try:
        state.load(job.state, job.run.restored.state)
        if job.learner is not None:
            job.learner.load(job.run.restored.learner)
            job.run.restore_replay(job.learner.replay)
        job.unevaluated = taken_apart(job.run.restored.pending)
    except (KeyError, ValueError):
        fail(job)
        raise


def taken_apart(pending: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the row and timing of a checkpoint's pending generation, None where there is none."""
    parts: dict[str, dict[str, Any]] = {"metrics": {}, "timing": {}}
    for name, array in pending.items():
        group, _, column = name.partition("/")
        parts[group][column] = array[()]
    return (parts["metrics"], parts["timing"]) if pending else None


def put_together(unevaluated: tuple[dict[str, Any], dict[str, Any]] | None) -> dict[str, np.ndarray]:
    """Return what a checkpoint stores of a generation without its evaluation; empty where there is none."""
    parts = zip(("metrics", "timing"), unevaluated or (), strict=False)
    return {f"{group}/{column}": np.asarray(value) for group, part in parts for column, value in part.items()}


def take_up(job: Job, run: "Run") -> None:
    """Say on disk that the run goes on. Rank 0 only."""
    run.write_config()
    saved(lambda: run.status("running", job.state.generation, **results(job)))
    if job.state.best.policy:  # policy.h5 may hold what was evaluated at the end of a smaller budget
        saved(lambda: save_policy(job, job.state.best))
    job.display = log.Display(job.config.display.style, job.config.display.every_seconds)


def progress(job: Job) -> float:
    """Return how much of the budget is spent; 1 or more is the end."""
    budget, counters = job.config.budget, job.state.counters
    spent = [
        (job.state.generation, budget.generations),
        (counters.env_steps, budget.env_steps),
        (counters.nominal_steps, budget.nominal_steps),
    ]
    return max(done / limit for done, limit in spent if limit)


def evaluation_columns(job: Job) -> dict[str, np.ndarray | float]:
    """Evaluate on schedule; return a row's columns about it, nan in a generation without evaluation."""
    if job.evaluated:
        columns = evaluate(job)
        job.state.best = better(job, columns, job.state.best)
    else:
        columns = {f"evaluation_{name}": np.full(job.config.evaluation.episodes, np.nan) for name in job.state.policies}
    return {**columns, "best_return": job.state.best.episodic_return}


def evaluate(job: Job) -> dict[str, np.ndarray]:
    """Play the evaluation episodes of this generation and count them; return {evaluation_<policy>: returns [episodes]}."""
    job.policy.normaliser = job.state.normaliser
    returns, steps, unstable = rollout.evaluate(
        job.world,
        job.env,
        job.policy,
        job.state.policies,
        job.config.evaluation.episodes,
        job.config.seed,
        job.state.generation,
    )
    job.state.counters.env_steps_evaluation += steps
    job.state.counters.unstable_episodes += unstable
    return {f"evaluation_{name}": values for name, values in returns.items()}


def better(job: Job, columns: dict[str, np.ndarray], best: rollout.Best) -> rollout.Best:
    """Return the best of this generation's policies if one of them beats `best`, else `best`."""
    for name, theta in job.state.policies.items():
        value = rollout.mean_return(columns[f"evaluation_{name}"])
        if value > best.episodic_return:
            normaliser = job.state.normaliser
            seen = np.zeros((2, 0), np.float32) if normaliser is None else normaliser.stacked()
            best = rollout.Best(value, job.state.generation, name, theta.copy(), seen)
    return best


def add_row(job: Job, row: dict[str, Any], timing: dict[str, Any]) -> None:
    """Add a generation to the run's history; show it. Rank 0 only."""
    assert job.run is not None
    counters = {f.name: getattr(job.state.counters, f.name) for f in fields(job.state.counters)}
    job.run.append({"generation": job.state.generation, **counters, **row}, timing)
    if not np.isfinite(row.get("fitness", 0.0)).all():
        broken = np.flatnonzero(~np.isfinite(row["fitness"])).tolist()
        seeds = [es.episode_seed(job.params, getattr(job.config, job.config.algorithm), job.state.generation, i) for i in broken]
        told = f"the return of member(s) {broken} is not finite: ranked last, counted; seeds of their episodes {seeds}"
        log.say(f"generation {job.state.generation}: {told}")
    if job.state.best.generation == job.state.generation:
        saved(lambda: save_policy(job, job.state.best))
    job.run.publish_metrics()
    if job.display:
        job.display.update(shown(job, row, timing))


def save_policy(job: Job, best: rollout.Best) -> None:
    """Write policy.h5. Rank 0 only."""
    assert job.run is not None
    policy = job.policy
    about = {
        "sizes": np.array(policy.layout.sizes), "activation": policy.activation, "output": policy.output,
        "low": policy.low, "high": policy.high, "task": job.config.task.id, "policy": best.policy,
        "generation": best.generation, "episodic_return": best.episodic_return, "versions": provenance.versions(),
    }  # fmt: skip
    if best.normaliser.size:
        about["normaliser_mean"], about["normaliser_std"] = best.normaliser
    job.run.save_policy(best.theta, about)


def checkpoint_if_due(job: Job, tried: tuple[int, float]) -> tuple[int, float]:
    """Save the complete state when its time has come; return when that was last tried (generation, clock). Rank 0 only."""
    due, now = job.config.checkpoint, job.world.clock()
    by_generation = due.every_generations and job.state.generation - tried[0] >= due.every_generations
    by_time = due.every_minutes and now - tried[1] >= 60 * due.every_minutes
    if not (by_generation or by_time):
        return tried
    done = save(job, "running")
    soon = 0.0 if done else max(0.0, 60 * due.every_minutes - RETRY)
    return job.state.generation, job.world.clock() - soon


def save(job: Job, status: str, final: rollout.Best | None = None) -> bool:
    """Write the complete state and the status; return whether that worked. A failure leaves the older checkpoint. Rank 0 only."""
    run, start = job.run, job.world.clock()
    assert run is not None
    arrays, pending = state.arrays(job.state), put_together(job.unevaluated)
    if not saved(lambda: run.checkpoint(job.state.generation, arrays, learner_arrays(job), replay(job), pending)):
        return False
    job.saving.append(job.world.clock() - start)
    return saved(lambda: run.status(status, job.state.generation, **results(job, final)))


def saved(write: Callable[[], None]) -> bool:
    """Write something; return whether that worked, and warn if not. Rank 0 only."""
    from esac_mpi.record import Unsaved

    try:
        write()
    except Unsaved as error:
        log.warn(str(error))
        return False
    return True


def fail(job: Job) -> None:
    """Say on disk that the run failed, as far as that can be said; what ended it is the error to tell. Rank 0 only."""
    if job.display:
        job.display.close()
    with suppress(Exception):
        assert job.run is not None
        job.run.status("failed", job.state.generation)


def finish(job: Job) -> int:
    """Save the state; at the end of the budget also evaluate what is final; return the exit code."""
    complete, final = progress(job) >= 1 and not job.unevaluated, rollout.Best()
    if complete:
        try:
            final = final_evaluation(job)
        except Abandoned:
            complete = False
    code = FINISHED if complete else STOPPED
    if job.run:
        status = "complete" if complete else "requeue"
        began = job.run.restored.generation if job.run.restored else 0
        if not complete and 0 < job.config.stop.starts <= job.run.starts and job.state.generation == began:
            status, code = "failed", FAILED
        best = final if final.episodic_return > job.state.best.episodic_return else job.state.best
        written = not best.policy or saved(lambda: save_policy(job, best))  # again: a full disk may have had room since
        if not save(job, status, final) or not written:
            code = UNSAVED
        if job.display:
            job.display.close()
        say_end(job, code, best, final)
        job.run.close()
    return job.world.from_root(code)


def final_evaluation(job: Job) -> rollout.Best:
    """Return the better policy of the last generation; evaluate off schedule where needed, without a trace in the state."""
    counters = job.state.counters
    if job.evaluated:
        columns = job.run.last_row("evaluation_") if job.run else None
    else:
        job.world.background, job.world.learning = None, False  # what is in flight cannot enter any more: its start is saved
        steps, unstable = counters.env_steps_evaluation, counters.unstable_episodes
        columns = evaluate(job)
        extra = counters.env_steps_evaluation - steps
        counters.env_steps_evaluation, counters.unstable_episodes = steps, unstable
        if job.run:
            job.run.final({"generation": np.array(job.state.generation), "env_steps_evaluation": np.array(extra), **columns})
    return better(job, columns, rollout.Best()) if columns else rollout.Best()


def results(job: Job, final: rollout.Best | None = None) -> dict[str, Any]:
    """Return what status.json says about the run's results."""
    best = job.state.best.episodic_return
    if final is None or not final.policy:
        return {"best_return": best}
    return {"best_return": max(best, final.episodic_return), "final_return": final.episodic_return}


def learner_arrays(job: Job) -> dict[str, np.ndarray]:
    """Return the learner's arrays without its replay."""
    return {} if job.learner is None else job.learner.arrays()


def replay(job: Job) -> Any:
    """Return the learner's replay, or None."""
    return None if job.learner is None else job.learner.stored_replay


def announce(job: Job, origin: dict[str, Any]) -> None:
    """Say what runs, where, and from which generation. Rank 0 only."""
    assert job.run is not None
    config, device = job.config, "" if job.learner is None else f", SAC on {origin['device']}"
    log.say(f"esac_mpi: {config.algorithm} on {config.task.id}, seed {config.seed}, {job.params.layout.d:,} parameters{device}")
    log.say(f"  {job.world.size} ranks on {job.world.nodes} node(s): {origin['hosts']}; {origin['mpi']}")
    log.say(f"  run directory {job.run.path}")
    if job.run.restored is None:
        spare = len(affinity.cores()) - job.world.locals
        if origin["device"] == "cpu" and spare > 0:
            threads = config.learner.threads
            log.say(f"  {spare} core(s) of this node have no rank; SAC could use them: --learner.threads {threads + spare}")
        return
    if job.run.died:
        log.say(f"  {job.run.died}")
    dropped = f"; {job.run.dropped} later rows dropped, will be made again" if job.run.dropped else ""
    log.say(f"  resumed at generation {job.state.generation} from {job.run.restored.source.name}{dropped}")
    for what in ("cpu", "versions", "device", "kernel"):
        was = job.run.restored.attributes.get(what)
        if was != origin[what]:
            log.warn(f"{what}: was {was}, is now {origin[what]}: exact, but bits may differ")


def shown(job: Job, row: dict[str, Any], timing: dict[str, Any]) -> dict[str, Any]:
    """Return what the display shows of a generation; it keeps the last figure where one is nan."""
    counters = job.state.counters
    fitness = np.atleast_1d(row.get("fitness", row.get("sac_episodic_return", np.nan)))
    finite = fitness[np.isfinite(fitness)]
    return {
        "generation": job.state.generation,
        "progress": min(progress(job), 1.0),
        "env_steps": counters.env_steps,
        "fitness_mean": finite.mean() if finite.size else np.nan,
        "fitness_max": finite.max() if finite.size else np.nan,
        **{f"evaluation_{name}": row[f"evaluation_{name}"].mean() for name in job.state.policies},
        "sigma": row.get("sigma", np.nan),
        "gradient_updates": counters.gradient_updates,
        "wall_seconds": timing["wall_seconds"],
    }


def say_end(job: Job, code: int, best: rollout.Best, final: rollout.Best) -> None:
    """Say where the results are and what to do with them. Rank 0 only."""
    assert job.run is not None
    path, generation = job.run.path, job.state.generation
    if code == FINISHED:
        last = f", final {final.episodic_return:.1f} ({final.policy})" if final.policy else ""
        log.say(f"finished at generation {generation}: best return {best.episodic_return:.1f} ({best.policy}){last}")
    elif code == STOPPED:
        log.say(f"stopped at generation {generation}, saved; run the same command again to go on")
    elif code == FAILED:
        log.warn(f"stopped at generation {generation} as {job.run.starts} starts in a row before it: failed (stop.starts)")
    else:
        log.warn(f"generation {generation} is not wholly saved; the checkpoint before it stands")
    policy = f", best policy {path / 'policy.h5'}" if best.policy else ""
    log.say(f"  results {path / 'metrics.h5'}{policy}")
    log.say(f"  curve   python tools/plot.py {shlex.quote(str(path))}")
