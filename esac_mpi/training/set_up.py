"""Before the first generation: task, state and learner, the run directory, and what it holds."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from esac_mpi import envs, learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm import schedule
from esac_mpi.comm.contracts import Memory
from esac_mpi.comm.world import World
from esac_mpi.config import Config, amend, slots
from esac_mpi.envs import probe
from esac_mpi.host import log, ram
from esac_mpi.host.errors import FAILED, FINISHED, STOPPED, BrokenAlgorithm, WrongUsage
from esac_mpi.operators.noise import pieces
from esac_mpi.operators.policy import Layout
from esac_mpi.play import epsilon, rollout, state
from esac_mpi.play.counters import Best
from esac_mpi.play.params import Params, make_env, make_layout, make_policy
from esac_mpi.record import Away, Refused, Run, source
from esac_mpi.training import active_run, memory, provenance, warm_start
from esac_mpi.training.active_run import Job, run_directory
from esac_mpi.training.ended import Ended, run_together
from esac_mpi.training.forecast import automatic
from esac_mpi.training.task_set_up import describe_task, make_task, resolve_by_task


def set_up(
    config: Config, fresh: bool, world: World, command: list[str], made: list[envs.Env | None]
) -> Job:
    """Make task, state, learner, run directory; restore that; `made` gets tasks. Raises Ended."""
    do = partial(run_together, world)

    def at_root(action: Callable[[], Any]) -> Any:
        return do(lambda: None if world.rank else action())

    try:
        env = do(lambda: make_task(config))
    except Ended:  # a signal to stop may have ended what the task's libraries start
        end_if_wished(world)
        raise
    made.append(env)
    config, names = world.from_root(resolve_by_task(config, env))
    # before a learner is made to measure it
    at_root(lambda: memory.refuse_networks(config, env, ram.total()))
    found = do(lambda: automatic.resolve(config, env, world, fresh))
    values, said = world.from_root(found)
    config = amend(config, values)
    layout = make_layout(config, env)
    declares = ALGORITHMS[config.algorithm].DECLARES
    noise = do(lambda: make_epsilon(config, layout, world))
    at_root(lambda: refuse_too_large(config, env))
    # on ranks with work beside others' episodes
    plays_apart = declares.learning and declares.learning.own_env(config, world.rank)
    apart = do(lambda: make_env(config) if plays_apart else None)
    made.append(apart)
    operators = do(lambda: make_operators(config, layout))
    params = Params(config, layout, env.horizon, noise, operators, apart)
    initial = do(lambda: make_state(params, world))
    policy = make_policy(params, env, output=declares.output)
    job = Job(config, world, env, params, initial, policy, None)
    found = do(lambda: probe.probe(env))
    threads = config.learner.threads if declares.learning else 0
    origin = provenance.gather(env, found, world, threads, command, config.algorithm) | {
        "blocks": update_pieces(config, layout),
        "sizes": describe_sizes(layout),
        "discrete": int(envs.is_discrete(env)),
        "settled": " ".join([*names.split(), *values]),
    }
    end_if_wished(world)
    source = at_root(lambda: source_of(job, fresh, origin))
    job.learner = do(lambda: make_learner(params, env, initial, world))
    origin["device"] = "none" if job.learner is None else job.learner.device_name
    origin["start"] = at_root(lambda: warm_start.take_over(source, job, origin) if source else "")
    job.run = at_root(lambda: begin(job, fresh, origin))
    try:
        restore_everywhere(job, origin)
        if job.run:
            announce(job, origin, said)
            take_up(job, job.run)
    except BaseException as error:
        if job.run:
            ended = isinstance(error, Ended) and (error.code == FINISHED or error.kind is Away)
            if not (ended or job.run.complete):
                active_run.fail(job, error)
            job.run.close()
        raise
    return job


def describe_sizes(layout: Layout) -> str:
    """Write the units of the layers, from observations to actions, as a run's files have them."""
    return " ".join(map(str, layout.sizes))


def end_if_wished(world: World) -> None:
    """Raise Ended where a rank wishes to stop. All ranks call this."""
    if reasons := world.agree():
        why = ", ".join(reasons)
        raise Ended(STOPPED, f"stopped before it began ({why}); nothing was written")


def restore_everywhere(job: Job, origin: dict[str, Any]) -> None:
    """Give every rank the run's state. Raises Ended, also where there is nothing to do."""
    world = job.world
    active_run.let_ranks_record(job)
    run_together(world, lambda: restore(job, origin))
    state.share(job.state, world)
    job.trained = world.from_root(job.run.wall_seconds if job.run else 0.0)
    if world.from_root(job.unevaluated is not None) and world.rank:
        job.unevaluated = {}, {}
    active_run.check_directory_is_shared(job)
    end = end_of(job.config, job.run, active_run.progress(job)) if job.run else None
    if end := world.from_root(end):
        raise Ended(*end)


def end_of(config: Config, run: Run, done: float) -> tuple[int, str] | None:
    """Return (code, message) if a run ends where it stands; done: the share of its budget."""
    where, limit = run_directory(config), config.stop.starts
    if done >= 1 and run.complete:
        remedy = "raise its budget to go on, or --fresh to start over"
        return FINISHED, f"the run in {where} is finished; {remedy}"
    if 0 < limit < run.starts:
        told = f"{limit} starts in a row without a new checkpoint (stop.starts)"
        look = f"Look at what it printed, and at {where / 'log.txt'}"
        again = "the same command starts it again"
        return FAILED, f"{told}: the run counts as failed now. {look}; {again}"
    return None


def make_state(params: Params, world: Memory) -> Any:
    """Make the state before the first generation, and all the node shares.

    Raises MemoryError, and BrokenAlgorithm where it is not as an installed algorithm declares.
    """
    config, algorithm = params.config, ALGORITHMS[params.config.algorithm]
    initial = algorithm.init(params, world)
    state.settle(initial)
    state.arrays(initial)  # raises, before anything is created
    if (has := [*initial.policies]) != (said := [*algorithm.DECLARES.policies]):
        raise BrokenAlgorithm(f"State has the policies {has}, DECLARES.policies names {said}")
    episodes = config.evaluation.episodes
    counts = {1, 2, len(initial.policies)}  # of policies that are evaluated together
    evaluations = [rollout.evaluation_board(count, episodes) for count in counts]
    for board in (algorithm.board(params), *evaluations):
        if board.rows:
            world.reserve(board.rows, board.columns)
    return initial


def update_pieces(config: Config, layout: Layout) -> int:
    """Count the pieces in which ranks share an update."""
    evolution = ALGORITHMS[config.algorithm].DECLARES.evolution
    return pieces(layout.d, slots(evolution(config)) if evolution else 1)


def make_epsilon(config: Config, layout: Layout, world: Memory) -> epsilon.Epsilon:
    """Choose how the noise of a slot is made. Raises WrongUsage, MemoryError."""
    declared = ALGORITHMS[config.algorithm].DECLARES.evolution
    return epsilon.make(declared and declared(config), config.seed, layout, world)


def make_operators(config: Config, layout: Layout) -> Any:
    """Make the operators by which every rank takes gradients, where the algorithm has such."""
    name = ALGORITHMS[config.algorithm].DECLARES.operators(config)
    return learners.make_operators(name, config, layout) if name else None


def refuse_too_large(config: Config, env: envs.Env) -> None:
    """Raise WrongUsage for a replay that has no room on rank 0; warn of one that lacks it now."""
    memory.refuse_replay(config, env, ram.total())
    if (need := memory.replay_bytes(config, env)) > (free := ram.free()):
        room = f"{ram.size(free)} of memory are free now"
        log.warn(f"the replay comes to take {ram.size(need)}, and {room}")


def make_learner(params: Params, env: envs.Env, initial: Any, world: World) -> Any:
    """Make the learner of an initial state, on ranks that have one. Raises WrongUsage: no room."""
    config, layout = params.config, params.layout
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    if world.rank or learning is None:
        return None
    theta, rows = learning.actor(initial), state.replay_rows(initial)
    # a phase keeps what it overwrites until its result enters; a shared room keeps all
    reserve = learning.reserve(config, env.horizon) if rows is None else 0
    kind, discrete = learning.learner(config), envs.is_discrete(env)
    try:
        return learners.make(kind, config, layout, theta, reserve, discrete, rows)
    except MemoryError as error:
        table = memory.table(config)
        if not table:
            raise
        most = f"{memory.most_added(config, env.horizon):,.0f} transitions at most"
        lower = f"lower {table}.replay_capacity, to the {most} that this budget adds"
        raise WrongUsage(f"{error}: {lower}, or the networks") from error


def begin(job: Job, fresh: bool, origin: dict[str, Any]) -> Run:
    """Open the run directory, on rank 0."""
    path, follows = run_directory(job.config), job.config.own.follows
    if follows or state.replay_rows(job.state) is not None:
        restored = Run.foresee(path, job.config, origin, fresh).restored
        if restored and (why := memory.too_small(job.config, job.env.horizon, restored)):
            raise Refused(f"{path}: {why}")
        if restored is None and follows:
            job.state.follow(source(job.config, path, origin))
    run = Run.begin(path, job.config, origin, fresh)
    log.append_to(run.path / "log.txt")
    return run


def source_of(job: Job, fresh: bool, origin: dict[str, Any]) -> warm_start.Source | None:
    """Begin a new run's policies as what it begins from has them; None where the run goes on.

    On rank 0. Raises Refused, Unreadable.
    """
    config = job.config
    if not config.start_from:
        return None
    within = warm_start.is_within(config)  # there, whatever the run is
    if not within and Run.foresee(run_directory(config), config, origin, fresh).restored:
        return None
    found = warm_start.find(config, job.env)
    warm_start.begin_policies(found, job.state)
    return found


def restore(job: Job, origin: dict[str, Any]) -> None:
    """Load the checkpoint into state and learner, on rank 0; write a new run's first one."""
    run = job.run
    if run is None:
        return
    saved = run.restored
    if saved is None:
        run.checkpoint(0, *active_run.gather_checkpoint(job))
        return
    replay: Any = None if job.learner is None else job.learner.replay
    try:
        if job.learner is not None:
            if replay is not None:
                run.restore_replay(replay)  # first: it may go back to the checkpoint before
                saved = run.restored or saved
            job.learner.load(saved.learner)
        state.load(job.state, saved.state, replay=replay)
    except (KeyError, ValueError) as error:
        other = f"another version of {job.config.algorithm}, whose State differs: {error}"
        remedy = "go on with that version, or choose --fresh or another --run-dir"
        raise Refused(f"{run.path}: its checkpoint is of {other}; {remedy}") from error
    job.unevaluated = active_run.pending_row(saved.pending)
    if run.task_changed:
        job.state.best = Best()  # of another task
    if run.task_changed or changed_machine(run, origin):
        job.state.compare_no_more(bool(run.task_changed))
    ordered = run.dropped and job.config.own.follows is not None
    if ordered and job.state.follow(run.published):  # the order of dropped rows: none changes
        # which replaces metrics.h5, so that it has the order alone
        run.checkpoint(job.state.generation, *active_run.gather_checkpoint(job))


def changed_machine(run: Run, origin: dict[str, Any]) -> dict[str, Any]:
    """Return {what: its former value} of machine and versions that are others now."""
    assert run.restored is not None
    before = run.restored.attributes
    return {
        what: before.get(what)
        for what in ("cpu", "versions", "device", "kernel")
        if before.get(what) != origin.get(what)
    }


def take_up(job: Job, run: Run) -> None:
    """Say on disk that the run goes on. Rank 0 only."""
    active_run.attempt(run.write_config)
    best = active_run.results(job)
    active_run.attempt(lambda: run.status("running", job.state.generation, **best))
    # policy.h5 may hold what was evaluated at the end of a smaller budget
    if job.state.best.policy:
        active_run.attempt(lambda: active_run.save_policy(job, job.state.best))
    job.display = log.Display(job.config.display.every_seconds)


def describe_work(params: Params, ranks: int) -> tuple[str, str]:
    """Say what work a generation has for the ranks, and what number would do better."""
    config, algorithm = params.config, ALGORITHMS[params.config.algorithm]
    declares, rows = algorithm.DECLARES, algorithm.board(params).rows
    if declares.work == "tasks":
        workers: int = vars(config.own)["workers"]
        found = f"{workers} individuals at a time on {ranks} rank(s)"
        return f"{found}, rank 0 decides and is with the critic", schedule.idle(workers + 1, ranks)
    if not rows:
        played, every = config.evaluation.episodes, config.evaluation.every
        evaluations = f"evaluations, {played} episode(s) every {every} generation(s)"
        better = f"the other {ranks - 1} only play {evaluations}" if ranks > 1 else ""
        return "rank 0 plays and learns", better
    beside = ranks > 1 and declares.learning is not None and declares.learning.beside(config)
    found, better = schedule.fit(rows, ranks - beside, declares.work)
    if born := declares.offspring(config):
        found += f"; then {born} members are made"
        if ranks > 1:
            found += f" on the other {ranks - 1}, rank 0 with the learner"
    return f"{found}, rank 0 is with the learner" if beside else found, better


def announce(job: Job, origin: dict[str, Any], settled: Sequence[str] = ()) -> None:
    """Say what runs, where, from which generation; settled: what was "auto". Rank 0 only."""
    run, config, world = job.run, job.config, job.world
    assert run is not None
    device = "" if job.learner is None else f", learner on {origin['device']}"
    what = f"{config.algorithm} on {config.task.id}, seed {config.seed}"
    log.say(f"esac_mpi: {what}, {job.params.layout.d:,} parameters{device}")
    found, better = describe_work(job.params, world.size)
    where = f"{origin['hosts']}; {origin['mpi']}"
    said = [
        *describe_task(config, origin["settled"], job.env),
        f"{world.size} rank(s) on {world.nodes} node(s): {where}",
        f"run directory {run.path}",
        f"{found}; {better}" if better else "",
        *settled,
    ]
    if run.start:
        said.append(warm_start.describe(run.start))
    if run.restored is None:
        said.append(automatic.remark_at_start(config, world.size))
        said.append(memory.cut_episodes(config, job.params.horizon))
        said.append(memory.never_learns(config, job.params.horizon))
    else:
        again = f"; {run.dropped} later rows dropped, will be made again" if run.dropped else ""
        resumed = f"resumed at generation {job.state.generation} from {run.restored.source.name}"
        said += [run.died, f"{resumed}{again}"]
    for sentence in filter(None, said):
        log.say(f"  {sentence}")
    if run.restored is None:
        return
    if run.task_changed:
        told = f"the task has changed: {'; '.join(run.task_changed)}. The best policy begins anew"
        policy = "policy.h5 is replaced at the next evaluation"
        old = "networks, replay and returns until here are the old task's"
        log.warn(f"{told}, and {policy}; {old}")
    for what, was in changed_machine(run, origin).items():
        log.warn(f"{what}: was {was}, is now {origin[what]}: exact, but bits may differ")
