"""Before the first generation: task, state and learner, the run directory, and what it holds."""

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esac_mpi import envs, learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.algorithms.declaration import Learning
from esac_mpi.comm import World, schedule
from esac_mpi.comm.contracts import Memory
from esac_mpi.config import Config, ConfigError, slots, updated
from esac_mpi.envs import probe
from esac_mpi.host import affinity, log, ram
from esac_mpi.operators.noise import pieces
from esac_mpi.operators.policy import Layout
from esac_mpi.play import epsilon, rollout, state
from esac_mpi.play.counters import Best
from esac_mpi.play.params import Params, make_layout, make_policy
from esac_mpi.training import provenance, replay_memory
from esac_mpi.training.active_run import (
    FAILED,
    FINISHED,
    NO_CHECKPOINT,
    STOPPED,
    UNSAVED,
    WRONG_USAGE,
    Ended,
    Job,
    check_directory_is_shared,
    fail,
    learner_arrays,
    main_policy,
    pending_arrays,
    pending_row,
    progress,
    replay,
    results,
    save_policy,
    saved,
    state_arrays,
    together,
)
from esac_mpi.training.forecast import automatic
from esac_mpi.training.forecast.learners import threads_that_gain
from esac_mpi.training.forecast.schedule import remark_at_start
from esac_mpi.training.task_set_up import make_task, own_env, sentences, settled

if TYPE_CHECKING:
    from esac_mpi.record import Run
    from esac_mpi.training.warm_start import Source


NO_LEARNER = learners.NoDevice, learners.NotInstalled, replay_memory.ReplayTooLarge


def set_up(
    config: Config, fresh: bool, world: World, command: list[str], made: list[envs.Env | None]
) -> Job:
    """Make task, state and learner, then the run directory; restore what it holds; `made` gets the tasks. Raises Ended."""
    task_errors: dict[type[Exception], int] = {
        envs.TaskError: WRONG_USAGE,
        ImportError: WRONG_USAGE,
    }
    env = together(world, lambda: make_task(config), task_errors)
    made.append(env)
    config, names = world.from_root(settled(config, env))
    no_learner: dict[type[Exception], int] = dict.fromkeys(NO_LEARNER, WRONG_USAGE)
    unsettled = {
        **task_errors,
        **no_learner,
        **exit_codes(world),
        MemoryError: WRONG_USAGE,
        ConfigError: WRONG_USAGE,
    }
    found = together(
        world,
        lambda: automatic.resolve(config, env, world, run_directory(config), fresh),
        unsettled,
    )
    values, told = world.from_root(found)
    config = updated(config, values)
    layout = make_layout(config, env)
    declares = ALGORITHMS[config.algorithm].DECLARES
    no_table: dict[type[Exception], int] = {
        epsilon.TableTooSmall: WRONG_USAGE,
        MemoryError: WRONG_USAGE,
    }
    noise = together(world, lambda: make_epsilon(config, layout, world), no_table)
    together(
        world,
        lambda: refuse_too_large(config, env, world),
        {replay_memory.ReplayTooLarge: WRONG_USAGE},
    )
    apart = together(world, lambda: own_env(config, world.rank), task_errors)
    made.append(apart)
    operators = together(world, lambda: make_operators(config, layout), {})
    params = Params(config, layout, env.horizon, noise, operators, apart)
    initial = together(world, lambda: make_state(params, world), {MemoryError: WRONG_USAGE})
    job = Job(
        config, world, env, params, initial, make_policy(params, env, output=declares.output), None
    )
    job.learner = together(world, lambda: make_learner(params, env, initial, world), no_learner)

    device = "none" if job.learner is None else job.learner.device_name
    threads = config.learner.threads if declares.learning else 0
    found = together(world, lambda: probe.played(env), task_errors)
    origin = provenance.gather(env, found, world, device, threads, command)
    origin["blocks"] = pieces(
        layout.d, slots(declares.evolution(config)) if declares.evolution else 1
    )
    origin |= {
        "sizes": " ".join(map(str, layout.sizes)),
        "discrete": int(envs.is_discrete(env)),
        "start": "",
    }
    origin["settled"] = " ".join([*names.split(), *values])
    if world.agree():
        raise Ended(
            STOPPED,
            f"stopped before it began ({', '.join(dict.fromkeys(world.reasons))}); nothing was written",
        )
    source = together(world, lambda: source_of(job, fresh, origin), exit_codes(world))
    job.run = together(world, lambda: begin(job, fresh, origin), exit_codes(world))
    try:
        go_back(job, origin, source)
    except BaseException as error:
        if job.run:
            from esac_mpi.record import Away

            if isinstance(error, Ended) and error.code != FINISHED and error.kind is not Away:
                fail(job)
            job.run.close()
        raise
    if job.run:
        announce(job, origin, told)
        take_up(job, job.run)
    return job


def go_back(job: Job, origin: dict[str, Any], source: "Source | None" = None) -> None:
    """Give every rank the state that the run directory holds, or a new run's. Raises Ended, also where there is nothing to do."""
    world = job.world
    together(world, lambda: restore(job, origin, source), exit_codes(world))
    state.share(job.state, world)
    job.trained = world.from_root(job.run.wall_seconds if job.run else 0.0)
    if world.from_root(job.unevaluated is not None) and world.rank:
        job.unevaluated = {}, {}
    check_directory_is_shared(job)
    if end := world.from_root(at_once(job.config, job.run, progress(job)) if job.run else None):
        raise Ended(*end)


def at_once(config: Config, run: "Run", done: float) -> tuple[int, str] | None:
    """Return code and message of a run that ends where it stands, finished or started too often in vain; None if it goes on.

    done: how much of its budget is spent.
    """
    where, limit = run_directory(config), config.stop.starts
    if done >= 1 and run.complete:
        return (
            FINISHED,
            f"the run in {where} is finished; raise its budget to go on, or --fresh to start over",
        )
    if 0 < limit < run.starts:
        return FAILED, (
            f"{limit} starts in a row without a new checkpoint (stop.starts): the run counts as failed now. Look at what it "
            f"printed, and at {where / 'log.txt'}; the same command starts it again"
        )
    return None


def make_state(params: Params, world: Memory) -> Any:
    """Return the state before the first generation; make all that the node shares, the boards too. Raises MemoryError."""
    config, algorithm = params.config, ALGORITHMS[params.config.algorithm]
    initial = algorithm.init(params, world)
    evaluations = [
        rollout.evaluation_board(count, config.evaluation.episodes)
        for count in {1, len(initial.policies)}
    ]
    for board in (algorithm.board(params), *evaluations):
        if board.rows:
            world.reserve(board.rows, board.columns)
    return initial


def make_epsilon(config: Config, layout: Layout, world: Memory) -> epsilon.Epsilon:
    """Return how the noise of a slot is made. Raises epsilon.TableTooSmall, MemoryError."""
    declared = ALGORITHMS[config.algorithm].DECLARES.evolution
    return epsilon.make(declared and declared(config), config.seed, layout, world)


def make_operators(config: Config, layout: Layout) -> Any:
    """Return the operators by which every rank takes gradients, where the algorithm has such."""
    name = ALGORITHMS[config.algorithm].DECLARES.operators(config)
    return learners.make_operators(name, config, layout) if name else None


def learning_here(config: Config, world: World) -> Learning | None:
    """Return what the algorithm declares of its learner, on the ranks that have one."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    return learning if learning and learning.ranks(world.rank) else None


def refuse_too_large(config: Config, env: envs.Env, world: World) -> None:
    """Raise ReplayTooLarge on the ranks that learn, before anything large is made; warn of what has no room now."""
    if learning_here(config, world) is None:
        return
    replay_memory.refuse_too_large(config, env, ram.total())
    if (need := replay_memory.needed(config, env)) > (free := ram.free()):
        log.warn(
            f"the replay comes to take {ram.size(need)}, and {ram.size(free)} of memory are free now"
        )


def make_learner(params: Params, env: envs.Env, initial: Any, world: World) -> Any:
    """Return the gradient learner, on the ranks that have one, as it goes with the state before the first generation.

    Raises ReplayTooLarge for one without room.
    """
    config, layout = params.config, params.layout
    learning = learning_here(config, world)
    if learning is None:
        return None
    theta, rows = learning.actor(initial), state.replay_rows(initial)
    # a phase keeps what it overwrites, until its result enters; of a room that ranks share all is kept
    reserve = learning.reserve(config, env.horizon) if rows is None else 0
    try:
        return learners.make(
            learning.learner(config), config, layout, theta, reserve, envs.is_discrete(env), rows
        )
    except MemoryError as error:
        if not replay_memory.table(config):
            raise
        added = f"to the {replay_memory.most_added(config, env.horizon):,.0f} transitions at most that this budget adds"
        table = replay_memory.table(config)
        raise replay_memory.ReplayTooLarge(
            f"{error}: lower {table}.replay_capacity, {added}, or the networks"
        ) from error


def begin(job: Job, fresh: bool, origin: dict[str, Any]) -> "Run | None":
    """Open the run directory, on rank 0."""
    if job.world.rank:
        return None
    from esac_mpi.record import Refused, Run, source

    path, follows = run_directory(job.config), job.config.own.follows
    if follows or state.can_be_half_way(job.state):
        restored = Run.foresee(path, job.config, origin, fresh, waits=True).restored
        if restored is not None and (
            told := replay_memory.half_way(job.config, job.env.horizon, job.state, restored)
        ):
            raise Refused(f"{path}: {told}")
        if restored is None and follows:
            state.follow(job.state, source(job.config, path, origin))
    run = Run.begin(path, job.config, origin, fresh)
    log.append_to(run.path / "log.txt", 0, platform.node())
    return run


def source_of(job: Job, fresh: bool, origin: dict[str, Any]) -> "Source | None":
    """Return what a new run begins from, on rank 0; None where that is nothing, or where the run goes on. Raises Refused."""
    if job.world.rank or not job.config.start_from:
        return None
    from esac_mpi.training import warm_start

    return warm_start.of(job, run_directory(job.config), origin, fresh)


def exit_codes(world: World) -> dict[type[Exception], int]:
    """Return the exit codes of what the run directory can refuse."""
    if world.rank:
        return {}
    from esac_mpi import record

    return {
        record.Refused: WRONG_USAGE,
        record.Unsaved: UNSAVED,
        record.Unreadable: NO_CHECKPOINT,
    }  # Away is both


def run_directory(config: Config) -> Path:
    """Return the run directory: the one named, or a name made of task, algorithm and seed."""
    task = config.task.id.replace("/", "-").replace(":", "-")
    return Path(config.run_dir or f"runs/{task}-{config.algorithm}-seed{config.seed}")


def restore(job: Job, origin: dict[str, Any], source: "Source | None" = None) -> None:
    """Load the run's checkpoint into state and learner, on rank 0; write the first one of a new run."""
    if job.run is None:
        return
    from esac_mpi.record import Refused

    if job.run.restored is None:
        if source is not None:
            from esac_mpi.training import warm_start

            warm_start.begin_from(
                job,
                source,
                origin,
                lambda state: make_learner(job.params, job.env, state, job.world),
            )
        job.run.checkpoint(
            0, state_arrays(job), learner_arrays(job), replay(job), theta=main_policy(job)
        )
        return
    try:
        if job.learner is not None:
            (first, stop), found = job.run.restored.replay_bounds, job.learner.replay
            if found is not None and replay_memory.is_cut(
                job.config, job.env.horizon, found.capacity, stop - first
            ):
                if told := replay_memory.half_way(
                    job.config, job.env.horizon, job.state, job.run.restored
                ):
                    raise Refused(
                        f"{job.run.path}: {told}"
                    )  # another start was here since `begin` looked
                found.make_room(stop - first)
            job.run.restore_replay(
                job.learner.replay
            )  # first: it may go back to the checkpoint before
            job.learner.load(job.run.restored.learner)
        state.load(
            job.state,
            job.run.restored.state,
            replay=None if job.learner is None else job.learner.replay,
        )
        job.unevaluated = pending_row(job.run.restored.pending)
        if job.run.task_changed:
            job.state.best = Best()  # of another task
        if job.run.task_changed or moved(job.run, origin):
            state.compare_no_more(job.state, bool(job.run.task_changed))
        if job.run.dropped:
            keep_order(job, job.run)
    except (KeyError, ValueError):
        fail(job)
        raise


def keep_order(job: Job, run: "Run") -> None:
    """Let results be told in the order that dropped rows have, where the settings do not decide it, so that no row changes."""
    if job.config.own.follows is not None and state.follow(job.state, run.published):
        parts = (
            state_arrays(job),
            learner_arrays(job),
            replay(job),
            pending_arrays(job.unevaluated),
            main_policy(job),
        )
        run.checkpoint(
            job.state.generation, *parts
        )  # which replaces metrics.h5, so that it has the order alone


def moved(run: "Run", origin: dict[str, Any]) -> dict[str, Any]:
    """Return {what: its former value} of the machine and versions that a run went on with and that are others now."""
    assert run.restored is not None
    before = {
        what: run.restored.attributes.get(what) for what in ("cpu", "versions", "device", "kernel")
    }
    return {what: was for what, was in before.items() if was != origin.get(what)}


def take_up(job: Job, run: "Run") -> None:
    """Say on disk that the run goes on. Rank 0 only."""
    saved(run.write_config)
    saved(lambda: run.status("running", job.state.generation, **results(job)))
    if (
        job.state.best.policy
    ):  # policy.h5 may hold what was evaluated at the end of a smaller budget
        saved(lambda: save_policy(job, job.state.best))
    job.display = log.Display(
        job.config.display.style,
        job.config.display.every_seconds,
        policies=job.algorithm.DECLARES.policies,
    )


def spread(params: Params, ranks: int) -> tuple[str, str]:
    """Return what work a generation has for the ranks, and what number of them would do better, if any."""
    config, algorithm = params.config, ALGORITHMS[params.config.algorithm]
    declares, rows = algorithm.DECLARES, algorithm.board(params).rows
    if declares.work == "tasks":
        workers: int = vars(config.own)["workers"]
        found = f"{workers} individuals at a time on {ranks} rank(s), rank 0 decides and is with the critic"
        return found, schedule.idle(workers + 1, ranks)
    if not rows:
        evaluations = f"evaluations, {config.evaluation.episodes} episode(s) every {config.evaluation.every} generation(s)"
        return (
            "rank 0 plays and learns",
            f"the other {ranks - 1} only play {evaluations}" if ranks > 1 else "",
        )
    beside = ranks > 1 and declares.learning is not None and declares.learning.beside(config)
    found, better = schedule.fit(rows, ranks - beside, declares.work)
    if born := declares.offspring(config):
        found += (
            f"; then {born} members are made"
            + f" on the other {ranks - 1}, rank 0 with the learner" * (ranks > 1)
        )
    return f"{found}, rank 0 is with the learner" if beside else found, better


def announce(job: Job, origin: dict[str, Any], settled: Sequence[str] = ()) -> None:
    """Say what runs, where, and from which generation; settled: and what was "auto". Rank 0 only."""
    assert job.run is not None
    config, device = job.config, "" if job.learner is None else f", learner on {origin['device']}"
    log.say(
        f"esac_mpi: {config.algorithm} on {config.task.id}, seed {config.seed}, {job.params.layout.d:,} parameters{device}"
    )
    for sentence in sentences(config, origin["settled"], job.env):
        log.say(f"  {sentence}")
    log.say(
        f"  {job.world.size} ranks on {job.world.nodes} node(s): {origin['hosts']}; {origin['mpi']}"
    )
    log.say(f"  run directory {job.run.path}")
    found, better = spread(job.params, job.world.size)
    if better:
        log.say(f"  {found}; {better}")
    for sentence in settled:
        log.say(f"  {sentence}")
    if job.run.start:
        from esac_mpi.training import warm_start

        log.say(warm_start.told(job.run.start))
    if job.run.restored is None:
        for told in (
            remark_at_start(config, job.world.size),
            replay_memory.unseen(config, job.params.horizon),
        ):
            if told:
                log.say(f"  {told}")
        threads = threads_that_gain(config, affinity.cores(), job.world.locals)
        if origin["device"].startswith("cpu") and threads > config.learner.threads:
            spare = f"{threads - 1} core(s) of this node have no rank; the learner of a run begun anew could use them"
            log.say(f"  {spare}: --fresh --learner.threads {threads}")
        return
    if job.run.died:
        log.say(f"  {job.run.died}")
    dropped = (
        f"; {job.run.dropped} later rows dropped, will be made again" if job.run.dropped else ""
    )
    log.say(
        f"  resumed at generation {job.state.generation} from {job.run.restored.source.name}{dropped}"
    )
    if job.run.task_changed:
        log.warn(
            f"the task has changed: {'; '.join(job.run.task_changed)}. The best policy begins anew, and policy.h5 is replaced at "
            "the next evaluation; networks, replay and returns until here are the old task's"
        )
    for what, was in moved(job.run, origin).items():
        log.warn(f"{what}: was {was}, is now {origin[what]}: exact, but bits may differ")
